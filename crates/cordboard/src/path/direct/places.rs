//! The offsets of both sides, which advance by the bytes that are in the sink.

use super::takes::INCONGRUENT;
use crate::endpoint::Side;
use crate::errno::Errno;
use crate::path::flow::Flow;
use crate::path::verdict::Verdict;
use crate::request::Why;

/// The offsets of both sides.
pub(super) fn offsets(flow: &Flow<'_>) -> Result<(u64, u64), Errno> {
    Ok((flow.source.place()?, flow.sink.place()?))
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
