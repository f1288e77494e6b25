//! Writing to the device while the transfer still runs, where its end will
//! wait for all of it.

use std::os::fd::BorrowedFd;

use crate::errno::Errno;
use crate::sys;

/// Bytes that are handed to the device at a time.
const PIECE: u64 = 8 << 20;

/// Starts the device on what has been written so far, piece by piece, so that
/// the final `fsync(2)` finds most of it done: without, the kernel keeps
/// gigabytes of dirty pages before it begins. `fsync` alone decides what is
/// durable.
#[derive(Debug)]
pub(super) struct Writeback {
    /// Where in the sink the transfer began.
    start: u64,
    /// Bytes from there that the device has been started on.
    begun: u64,
}

impl Writeback {
    pub(super) fn from(start: u64) -> Writeback {
        Writeback { start, begun: 0 }
    }

    /// So many bytes have been written in all. `Ok(false)` if the file has no
    /// such call: no need to ask again.
    ///
    /// # Errors
    ///
    /// What the file system says of these pages: it may have dropped them (ext4:
    /// `mpage_map_and_submit_extent`, "Data will be lost"), and whether the
    /// `fsync(2)` at the end repeats the error depends on the file system.
    ///
    /// | errno | result | evidence |
    /// |---|---|---|
    /// | `ENOSYS`, `ESPIPE`, `EINVAL` | no such call | `sync_file_range(2)` |
    /// | `EPERM`, `EACCES` | no such call | a filter; `sync_file_range(2)` gives neither |
    /// | `EINTR`, `EAGAIN`, `ENOMEM` | goes on | the pages stay dirty, for the next call or `fsync(2)` |
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
