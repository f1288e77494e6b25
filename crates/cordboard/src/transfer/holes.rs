//! Holes: ranges without blocks, which read as zeros.

use rustix::fs::{FallocateFlags, SeekFrom};

use crate::errno::Errno;
use crate::path::{Cursor, Flow};

/// Makes the sink's next `length` bytes a hole and moves past them. `false`
/// if that is not to be had, so that zeros have to be written.
///
/// A hole at the end is there at once, by `ftruncate(2)`: whoever sets
/// `O_APPEND` on the sink meanwhile then still appends in the right place, and
/// no byte is counted that the sink does not have.
pub(crate) fn make(flow: &mut Flow<'_>, length: u64) -> Result<bool, Errno> {
    let Some(offset) = flow.sink_offset() else {
        return Ok(false);
    };
    let size = rustix::fs::fstat(flow.sink_fd())?.st_size as u64;
    if size > offset {
        // What was there before must read as zeros from now on.
        let old = length.min(size - offset);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if rustix::fs::fallocate(flow.sink_fd(), flags, offset, old).is_err() {
            return Ok(false);
        }
    }
    let end = offset.saturating_add(length);
    // EFBIG, EPERM of a sealed memory file: the zeros will tell how far it goes.
    if size < end && rustix::fs::ftruncate(flow.sink_fd(), end).is_err() {
        return Ok(false);
    }
    flow.move_sink(length as i64)?;
    Ok(true)
}

/// Walks a source's data and holes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Walk {
    /// Up to here the source is known to be data.
    data_until: u64,
}

impl Walk {
    pub(crate) fn new() -> Walk {
        Walk { data_until: 0 }
    }

    /// Where a hole comes next, skips it on both sides; limits the step to the
    /// data before the next one. `false`: no walking here, all is data.
    pub(crate) fn advance(&mut self, flow: &mut Flow<'_>) -> Result<bool, Errno> {
        let Some(offset) = flow.source_offset() else {
            return Ok(false);
        };
        if offset >= self.data_until {
            let (data, end) = match extent(flow, offset) {
                Some(extent) => extent,
                None => return Ok(false),
            };
            let hole = data.saturating_sub(offset).min(flow.left);
            if hole > 0 {
                if !make(flow, hole)? {
                    return Ok(false);
                }
                flow.move_source(hole as i64)?;
                flow.took(hole);
                flow.gave(hole);
            }
            self.data_until = end;
            flow.span = end - data;
            return Ok(true);
        }
        flow.span = self.data_until - offset;
        Ok(true)
    }
}

/// The next range of data at or after `offset`; at the end of the data, an
/// empty range at the end of the file. `None` where the file system cannot
/// tell. `lseek(2)`, since Linux 3.1; the position is put back.
fn extent(flow: &Flow<'_>, offset: u64) -> Option<(u64, u64)> {
    let fd = flow.source_fd();
    // Looking moves the position, which with an offset of its own the
    // transfer must not.
    let before = match flow.from {
        Cursor::Position => offset,
        _ => rustix::fs::tell(fd).ok()?,
    };
    let found = match rustix::fs::seek(fd, SeekFrom::Data(offset)) {
        Ok(data) => rustix::fs::seek(fd, SeekFrom::Hole(data))
            .ok()
            .map(|end| (data, end)),
        // Past the last data: a hole to the end, or the end itself.
        Err(rustix::io::Errno::NXIO) => {
            let size = rustix::fs::fstat(fd).ok()?.st_size as u64;
            (size >= offset).then_some((size, u64::MAX))
        }
        Err(_) => None,
    };
    rustix::fs::seek(fd, SeekFrom::Start(before)).ok()?;
    found
}
