//! Writing to the device while the transfer still runs, where its end will
//! wait for all of it.

use std::os::fd::BorrowedFd;

use crate::errno::Errno;
use crate::sys;

/// Bytes that are handed to the device at a time.
const PIECE: u64 = 8 << 20;

/// Starts the device on what has been written so far, piece by piece, so that
/// the final `fsync(2)` finds most of it done: without, the kernel keeps
/// gigabytes of dirty pages before it begins. Only a hint: `fsync` alone
/// decides what is durable, and reports what failed.
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

    /// So many bytes have been written in all. `false` if the file has no such
    /// call: no need to ask again.
    pub(super) fn advance(&mut self, sink: BorrowedFd<'_>, written: u64) -> bool {
        let due = written.saturating_sub(self.begun);
        if due < PIECE {
            return true;
        }
        let offset = self.start + self.begun;
        self.begun = written;
        !matches!(
            sys::start_writeback(sink, offset, due),
            Err(Errno::ENOSYS | Errno::ESPIPE | Errno::EINVAL)
        )
    }
}
