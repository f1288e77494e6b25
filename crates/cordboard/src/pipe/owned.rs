//! A private pipe.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::budget::{Share, User, fair};
use super::channel::Channel;
use super::resize::resize;
use crate::errno::Errno;
use crate::sys::{Identity, beyond, identity};

/// A pipe that counts the bytes in it.
///
/// The kernel counts capacity in pages and not in bytes: a 64 KiB pipe has held
/// 245,760 bytes from a socket, and a single byte can occupy a whole page. So
/// `capacity` guides step sizes and is never a bound: only the kernel knows
/// when a pipe is full.
pub(crate) struct OwnedPipe {
    pub(super) reader: OwnedFd,
    pub(super) writer: OwnedFd,
    /// Its device and inode; `None`: unknown.
    pub(super) id: Option<Identity>,
    pub(super) capacity: usize,
    /// The capacity that was requested.
    pub(super) wanted: usize,
    pub(super) held: u64,
    /// The last step filled at least half of the pipe: a larger pipe may be
    /// faster.
    pub(super) was_full: bool,
    pub(super) share: Share,
    /// `None` while it is idle.
    pub(super) user: Option<User>,
}

impl OwnedPipe {
    pub(super) fn open() -> Result<OwnedPipe, Errno> {
        use rustix::pipe::{PipeFlags, pipe_with};
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let (reader, writer) = (beyond(reader)?, beyond(writer)?);
        let capacity = rustix::pipe::fcntl_getpipe_size(&writer)?;
        Ok(OwnedPipe {
            id: identity(&reader),
            reader,
            writer,
            capacity,
            wanted: capacity,
            held: 0,
            was_full: false,
            share: Share::none(),
            user: None,
        })
    }

    /// Requests this capacity, in bytes. If the request is refused, the pipe
    /// keeps its old capacity, which is only slower.
    pub(super) fn resize(&mut self, capacity: usize) {
        resize(
            self.writer.as_fd(),
            &mut self.capacity,
            capacity,
            &mut self.share,
        );
    }

    /// Shrinks the pipe to its fair share of the budget, or grows it to that
    /// share if it was full. Must be called while the pipe is empty.
    pub(crate) fn fit(&mut self) {
        let fair = self.wanted.min(fair());
        if self.capacity > fair || self.was_full {
            self.resize(fair);
        }
    }

    /// Returns the number of bytes that the pipe holds if every page is full.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Closes the write end and returns the read end, with the content.
    pub(crate) fn into_read_end(self) -> OwnedFd {
        self.reader
    }

    /// Counts bytes that were written.
    pub(crate) fn filled(&mut self, bytes: usize) {
        self.held += bytes as u64;
        self.was_full = bytes >= self.capacity / 2;
    }
}

impl Channel for OwnedPipe {
    fn ends(&self) -> [(BorrowedFd<'_>, Option<Identity>); 2] {
        [&self.reader, &self.writer].map(|end| (end.as_fd(), self.id))
    }

    fn held(&self) -> u64 {
        self.held
    }

    fn drained(&mut self, bytes: usize) {
        self.held -= bytes as u64;
    }

    fn into_ends(self) -> [(OwnedFd, Option<Identity>); 2] {
        [self.reader, self.writer].map(|end| (end, self.id))
    }
}
