//! Replaces `ring/` on architectures whose `io_uring(7)` structures the
//! `io-uring` crate lacks, such as all with 32 bits. Every ring is refused with
//! the errno of a kernel without the call.

use std::convert::Infallible;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::arena::{Arena, Piece};
use super::blocks::Completion;
use crate::errno::Errno;

/// Never made.
pub(crate) struct Uring(Infallible);

/// # Errors
///
/// `ENOSYS`.
pub(crate) fn try_io_uring() -> Result<(), Errno> {
    Err(Errno::ENOSYS)
}

impl Uring {
    /// # Errors
    ///
    /// `ENOSYS`.
    pub(crate) fn new(files: [OwnedFd; 2], _: &Arena) -> Result<Uring, (Errno, [OwnedFd; 2])> {
        Err((Errno::ENOSYS, files))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match self.0 {}
    }

    pub(crate) fn queue(&mut self, _: usize, _: Piece, _: u64, _: u64) -> Result<(), Piece> {
        match self.0 {}
    }

    pub(crate) fn enter(&mut self, _: bool) -> Result<(), Errno> {
        match self.0 {}
    }

    pub(crate) fn complete(&mut self, _: bool) -> Result<(), Errno> {
        match self.0 {}
    }

    pub(crate) fn rest(&self) {
        match self.0 {}
    }

    pub(crate) fn abandon(&mut self) {
        match self.0 {}
    }

    pub(crate) fn is_in_use(&self, _: usize) -> bool {
        match self.0 {}
    }

    pub(crate) fn close(&mut self) {
        match self.0 {}
    }

    pub(crate) fn is_closed(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn is_stuck(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn next(&mut self) -> Option<Completion> {
        match self.0 {}
    }

    pub(crate) fn release(&mut self, _: usize) -> Option<Piece> {
        match self.0 {}
    }

    pub(crate) fn retire(&mut self) {
        match self.0 {}
    }

    pub(crate) fn take_sink(&mut self) -> Option<OwnedFd> {
        match self.0 {}
    }
}
