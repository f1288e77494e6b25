//! The offsets of both sides, which advance by the bytes that are in the sink.

use crate::endpoint::{Alignment, Side};
use crate::errno::Errno;
use crate::path::flow::Flow;
use crate::path::verdict::Verdict;
use crate::request::Why;

pub(super) const INCONGRUENT: &str = "source and sink offsets differ within a block of direct I/O";

/// The offsets of both sides.
pub(super) fn offsets(flow: &Flow<'_>) -> Result<(u64, u64), Errno> {
    Ok((flow.source.place()?, flow.sink.place()?))
}

/// Returns the number of bytes that offsets and lengths must be multiples of
/// for both sides: at least a page, since a file system that reads the rest of
/// a block before it writes it is slower than the page cache (`STATX_DIOALIGN`
/// in `statx(2)`, since Linux 6.1).
pub(super) fn unit(source: Alignment, sink: Alignment) -> Result<u64, Why> {
    let largest = source.offset.max(sink.offset).max(4096);
    let memory = source.memory.max(sink.memory);
    if memory > 4096 || !largest.is_power_of_two() || largest > 256 << 10 {
        return Err("direct I/O needs a coarser alignment than is supported here".into());
    }
    Ok(u64::from(largest))
}

/// Fails unless both offsets are equal within a block.
pub(super) fn congruent((from, to): (u64, u64), unit: u64) -> Result<(), Why> {
    match from % unit == to % unit {
        true => Ok(()),
        false => Err(INCONGRUENT.into()),
    }
}

/// Counts bytes that are in the sink without a gap, and advances both offsets.
pub(super) fn account(flow: &mut Flow<'_>, bytes: u64) -> Result<(), Verdict> {
    if bytes == 0 {
        return Ok(());
    }
    let failed = |side| move |errno| Verdict::Failed(side, errno);
    flow.source
        .move_by(bytes as i64)
        .map_err(failed(Side::Source))?;
    if let Err(errno) = flow.sink.move_by(bytes as i64) {
        // Nothing is counted, so the source is moved back.
        let _ = flow.source.move_by(-(bytes as i64));
        return Err(Verdict::Failed(Side::Sink, errno));
    }
    flow.carried(bytes);
    Ok(())
}
