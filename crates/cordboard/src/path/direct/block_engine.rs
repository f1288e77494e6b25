//! What the direct path asks of whoever carries its blocks out.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::errno::Errno;
use crate::sys::Piece;

/// One block: read from the source and written to the sink out of the same
/// memory.
pub(super) struct Block {
    /// Which it is, among those in flight: below [`crate::sys::SLOTS`].
    pub(super) slot: usize,
    /// As long as what is to be read.
    pub(super) memory: Piece,
    /// Offset in the source.
    pub(super) from: u64,
    /// Offset in the sink.
    pub(super) to: u64,
}

/// What became of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Read in full; the write has begun.
    Read,
    /// All of it is in the sink.
    Written,
    /// The source ended in it: nothing of it was written.
    Short,
    /// The source failed: nothing of it was written.
    ReadFailed(Errno),
    /// The sink took so many bytes of it, not yet counted, and no more.
    Cut(usize),
    /// The sink failed.
    WriteFailed(Errno),
    /// Given up before it was begun.
    Dropped,
}

impl Fate {
    /// Nothing more comes of this block.
    pub(super) fn is_final(self) -> bool {
        self != Fate::Read
    }

    /// Of a read of `length` bytes.
    pub(super) fn of_read(result: Result<usize, Errno>, length: usize) -> Fate {
        match result {
            Ok(n) if n == length => Fate::Read,
            Ok(_) => Fate::Short,
            Err(errno) => Fate::ReadFailed(errno),
        }
    }

    /// Of a write of `length` bytes.
    pub(super) fn of_write(result: Result<usize, Errno>, length: usize) -> Fate {
        match result {
            Ok(n) if n == length => Fate::Written,
            Ok(n) => Fate::Cut(n),
            Err(errno) => Fate::WriteFailed(errno),
        }
    }
}

/// Carries blocks out, several at a time and in any order.
pub(super) trait BlockEngine: Send {
    /// Takes a block on. It may begin only with the next [`Ring::reap`].
    /// `Err`: not now.
    fn submit(&mut self, block: Block) -> Result<(), ()>;

    /// Begins what was submitted and tells what has become of blocks since the
    /// last time. With `wait`, not before there is something to tell.
    ///
    /// # Errors
    ///
    /// `EINTR`: a signal came while it waited. Any other: it will not go on.
    fn reap(&mut self, wait: bool, told: &mut Vec<(usize, Fate)>) -> Result<(), Errno>;

    /// Readable when there is something to reap.
    fn fd(&self) -> BorrowedFd<'_>;

    /// How often to reap all the same, where [`Ring::fd`] may stay silent.
    fn looks_each(&self) -> Option<Duration> {
        None
    }

    /// Drops what has not begun; it is told of as [`Fate::Dropped`].
    fn cancel(&mut self) {}

    /// Nothing is in flight, and nothing will be: whoever is told of the end
    /// finds both files closed. On the thread that all else was called on.
    fn retire(&mut self) {}
}
