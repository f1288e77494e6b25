//! Holes: ranges without blocks, which read as zeros.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FallocateFlags, OFlags, SeekFrom};

use crate::endpoint::reopen;
use crate::errno::Errno;
use crate::path::{Cursor, Flow, lengthen};

/// Bytes of a hole in one step where a stage looks at its zeros: few enough
/// that cancelling comes through.
const LOOKED_AT: u64 = 16 << 20;

/// Makes the sink's next `length` bytes a hole and moves past them. `false`
/// if that is not to be had, so that zeros have to be written.
///
/// The sink is as long as that at once: whoever sets `O_APPEND` on it meanwhile
/// then still appends in the right place, and no byte is counted that the sink
/// does not have.
pub(crate) fn make(flow: &mut Flow<'_>, length: u64) -> Result<bool, Errno> {
    let Some(offset) = flow.sink_offset() else {
        return Ok(false);
    };
    let sink = flow.sink_fd();
    let size = rustix::fs::fstat(sink)?.st_size as u64;
    let end = offset.saturating_add(length);
    if size < end {
        match lengthen(sink, end) {
            Ok(()) => {}
            // No file may be that long here: a disk full of zeros would not
            // change that.
            Err(Errno::EFBIG) if !is_past_the_limit(end) => return Err(Errno::EFBIG),
            // EPERM of a sealed memory file, the limit: the zeros will tell how
            // far it goes.
            Err(_) => return Ok(false),
        }
    }
    // What was there before must read as zeros from now on, and no room be kept
    // for it.
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    if rustix::fs::fallocate(sink, flags, offset, end - offset).is_err() && offset < size {
        return Ok(false);
    }
    flow.move_sink(length as i64)?;
    Ok(true)
}

/// A file of ours may not be so long, as `RLIMIT_FSIZE` has it.
fn is_past_the_limit(size: u64) -> bool {
    // Unknown, it is for the zeros to find.
    crate::sys::file_size_limit().map_or(true, |limit| limit.is_some_and(|limit| limit < size))
}

/// Walks a source's data and holes.
#[derive(Debug)]
pub(crate) struct Walk {
    /// Up to here the source is known to be data.
    data_until: u64,
    /// For a transfer with an offset of its own: looking for holes moves a
    /// position, and that of the source belongs to everyone who shares it.
    own: Option<OwnedFd>,
}

impl Walk {
    pub(crate) fn new() -> Walk {
        Walk {
            data_until: 0,
            own: None,
        }
    }

    /// Where a hole comes next, skips it on both sides; limits the step to the
    /// data before the next one; to none, where more of the hole is left.
    /// `false`: no walking here, all is data.
    pub(crate) fn advance(&mut self, flow: &mut Flow<'_>) -> Result<bool, Errno> {
        let Some(offset) = flow.source_offset() else {
            return Ok(false);
        };
        if offset >= self.data_until {
            let (data, end) = match self.extent(flow, offset) {
                Some(extent) => extent,
                None => return Ok(false),
            };
            let mut hole = data.saturating_sub(offset).min(flow.left);
            let whole = !flow.stages.look() || hole <= LOOKED_AT;
            if !whole {
                hole = LOOKED_AT;
            }
            if hole > 0 {
                if !make(flow, hole)? {
                    return Ok(false);
                }
                flow.move_source(hole as i64)?;
                flow.skipped(hole);
            }
            if !whole {
                flow.span = 0;
                return Ok(true);
            }
            self.data_until = end;
            flow.span = end - data;
            return Ok(true);
        }
        flow.span = self.data_until - offset;
        Ok(true)
    }

    /// What comes next, seen from a position that is the transfer's to move;
    /// it is put back.
    fn extent(&mut self, flow: &Flow<'_>, offset: u64) -> Option<(u64, u64)> {
        if flow.from == Cursor::Position {
            let found = find(flow.source_fd(), offset);
            rustix::fs::seek(flow.source_fd(), SeekFrom::Start(offset)).ok()?;
            return found;
        }
        if self.own.is_none() {
            self.own = reopen(flow.source_fd(), OFlags::RDONLY).ok();
        }
        find(self.own.as_ref()?.as_fd(), offset)
    }
}

/// The next range of data at or after `offset`; at the end of the data, an
/// empty range at the end of the file. `None` where the file system cannot
/// tell. `lseek(2)`, since Linux 3.1; leaves the position anywhere.
fn find(fd: BorrowedFd<'_>, offset: u64) -> Option<(u64, u64)> {
    match rustix::fs::seek(fd, SeekFrom::Data(offset)) {
        Ok(data) => {
            let end = rustix::fs::seek(fd, SeekFrom::Hole(data)).ok()?;
            // A hole that somebody has punched there since: not to be relied on.
            (end > data).then_some((data, end))
        }
        // Past the last data: a hole to the end, or the end itself.
        Err(rustix::io::Errno::NXIO) => {
            let size = rustix::fs::fstat(fd).ok()?.st_size as u64;
            (size >= offset).then_some((size, u64::MAX))
        }
        Err(_) => None,
    }
}
