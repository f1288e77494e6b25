//! The interface between the direct path and the engine that executes its
//! blocks.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::errno::Errno;
use crate::sys::Piece;

/// One block: read from the source and written to the sink from the same
/// memory.
pub(super) struct Block {
    /// Its index among those in flight: below [`crate::sys::SLOTS`].
    pub(super) slot: usize,
    /// The buffer, as long as the read.
    pub(super) memory: Piece,
    /// Offset in the source.
    pub(super) from: u64,
    /// Offset in the sink.
    pub(super) to: u64,
}

/// The progress, or the end, of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Read in full; the write has begun.
    Read,
    /// Written in full.
    Written,
    /// Short read: nothing of it was written.
    ShortRead,
    /// The read failed: nothing of it was written.
    ReadFailed(Errno),
    /// Short write of this many bytes, not yet counted.
    ShortWrite(usize),
    /// The write failed.
    WriteFailed(Errno),
    /// Cancelled before it began.
    Cancelled,
}

impl Outcome {
    /// Whether the block is finished.
    pub(super) fn is_final(self) -> bool {
        self != Outcome::Read
    }

    /// The outcome of a read of `length` bytes.
    pub(super) fn of_read(result: Result<usize, Errno>, length: usize) -> Outcome {
        match result {
            Ok(n) if n == length => Outcome::Read,
            Ok(_) => Outcome::ShortRead,
            Err(errno) => Outcome::ReadFailed(errno),
        }
    }

    /// The outcome of a write of `length` bytes.
    pub(super) fn of_write(result: Result<usize, Errno>, length: usize) -> Outcome {
        match result {
            Ok(n) if n == length => Outcome::Written,
            Ok(n) => Outcome::ShortWrite(n),
            Err(errno) => Outcome::WriteFailed(errno),
        }
    }
}

/// Executes blocks, several at a time and in any order.
pub(super) trait BlockEngine: Send {
    /// Queues a block. It may begin only with the next [`BlockEngine::reap`].
    /// `Err`: the engine accepts none at present.
    fn submit(&mut self, block: Block) -> Result<(), ()>;

    /// Begins the queued blocks and collects completions since the last call.
    /// With `wait`, blocks until there is one.
    ///
    /// # Errors
    ///
    /// `EINTR`: a signal came while it waited. Any other: the engine cannot
    /// continue.
    fn reap(&mut self, wait: bool, completed: &mut Vec<(usize, Outcome)>) -> Result<(), Errno>;

    /// Readable when there are completions. `None`: no descriptor shows them.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// The interval at which to reap anyway, if [`BlockEngine::fd`] may miss an
    /// event.
    fn poll_interval(&self) -> Option<Duration> {
        None
    }

    /// Drops blocks that have not begun; they are reported as
    /// [`Outcome::Cancelled`].
    fn cancel(&mut self) {}

    /// Shuts down with nothing in flight: both files are closed before the end
    /// of the transfer is reported. Called on the same thread as all else.
    fn retire(&mut self) {}

    /// Returns the engine's description of the sink, with nothing in flight. The engine
    /// executes no blocks afterwards. `None`: it has none, or a thread still uses it.
    fn take_sink(&mut self) -> Option<OwnedFd> {
        None
    }

    /// Drops the engine without touching a descriptor. Blocks that have not begun never do.
    /// Returns whether its memory may be freed: not if the kernel may still write to it.
    fn drop_without_close(self: Box<Self>) -> bool {
        std::mem::forget(self);
        false
    }
}
