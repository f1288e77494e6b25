//! Starts writeback while the transfer still runs, if the transfer ends with
//! `fsync(2)`.

use std::os::fd::BorrowedFd;

use crate::errno::Errno;
use crate::sys;

/// Bytes per call.
const PIECE: u64 = 8 << 20;

/// Starts writeback of what has been written so far, piece by piece, so that the
/// final `fsync(2)` finds most of it done: otherwise the kernel collects gigabytes
/// of dirty pages before it begins. Only `fsync` makes them durable.
#[derive(Debug)]
pub(super) struct Writeback {
    /// The offset in the sink at which the transfer began.
    start: u64,
    /// Bytes from there whose writeback has started.
    begun: u64,
}

impl Writeback {
    pub(super) fn from(start: u64) -> Writeback {
        Writeback { start, begun: 0 }
    }

    /// Starts writeback for `written` bytes in all. `Ok(false)` if the file does
    /// not support the call: the caller need not try again.
    ///
    /// # Errors
    ///
    /// The file system's error for these pages: it may have dropped them (ext4:
    /// `mpage_map_and_submit_extent`, "Data will be lost"), and whether the
    /// `fsync(2)` at the end repeats the error depends on the file system.
    ///
    /// | errno | result | evidence |
    /// |---|---|---|
    /// | `ENOSYS`, `ESPIPE`, `EINVAL` | no such call | `sync_file_range(2)` |
    /// | `EPERM`, `EACCES` | no such call | a filter; `sync_file_range(2)` gives neither |
    /// | `EINTR`, `EAGAIN`, `ENOMEM` | continues | the pages stay dirty, for the next call or `fsync(2)` |
    /// | anything else (`EIO`, `ENOSPC`, `EDQUOT`) | an error | |
    pub(super) fn advance(&mut self, sink: BorrowedFd<'_>, written: u64) -> Result<bool, Errno> {
        let due = written.saturating_sub(self.begun);
        if due < PIECE {
            return Ok(true);
        }
        let offset = self.start + self.begun;
        self.begun = written;
        match sys::start_writeback(sink, offset, due) {
            Ok(()) | Err(Errno::EINTR | Errno::EAGAIN | Errno::ENOMEM) => Ok(true),
            Err(Errno::ENOSYS | Errno::ESPIPE | Errno::EINVAL | Errno::EPERM | Errno::EACCES) => {
                Ok(false)
            }
            Err(errno) => Err(errno),
        }
    }
}
