//! A private pipe.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::budget::{Share, User, fair};
use super::channel::Channel;
use super::resize::resize;
use crate::errno::Errno;
use crate::sys::{Identity, beyond, identity};

/// A pipe that knows what it holds.
///
/// Capacity is counted in pages and not in bytes: a 64 KiB pipe has been seen
/// to hold 245,760 bytes of a socket's, and one byte to take a whole page. So
/// `capacity` is a measure for step sizes and never a bound; only the kernel
/// knows when a pipe is full.
pub(crate) struct OwnedPipe {
    pub(super) reader: OwnedFd,
    pub(super) writer: OwnedFd,
    /// Its device and inode; `None`: not known.
    pub(super) id: Option<Identity>,
    pub(super) capacity: usize,
    /// What was asked for.
    pub(super) wanted: usize,
    pub(super) held: u64,
    /// It could have taken more the last time, as it seems.
    pub(super) was_full: bool,
    pub(super) share: Share,
    /// `None` while nobody has it.
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

    /// Asks for this capacity in bytes. A refusal leaves it as it is, which
    /// works as well, only slower.
    pub(super) fn resize(&mut self, capacity: usize) {
        resize(
            self.writer.as_fd(),
            &mut self.capacity,
            capacity,
            &mut self.share,
        );
    }

    /// While it is empty: gives back what others are to have of it by now, or
    /// takes what they have given back.
    pub(crate) fn fit(&mut self) {
        let fair = self.wanted.min(fair());
        if self.capacity > fair || self.was_full {
            self.resize(fair);
        }
    }

    /// Capacity in bytes, if every page of it were full.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// So many bytes went in.
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

    fn forget(self) {
        std::mem::forget((self.reader, self.writer));
    }
}
