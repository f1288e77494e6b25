//! Two descriptors of our own, and the bytes between them: a private pipe, or a
//! socket pair.

use std::os::fd::BorrowedFd;

use crate::sys::{Identity, identity};

/// It is kept by its numbers. They may be something else's to a thread with a
/// descriptor table of its own (`unshare(2)`), in a child of `fork(2)`, and where
/// the host closes what it has not opened.
pub(crate) trait Channel: Sized {
    /// The end that is read from, and the end that is written to, each with what
    /// it was when it was made; `None`: not known.
    fn ends(&self) -> [(BorrowedFd<'_>, Option<Identity>); 2];

    /// Bytes in it.
    fn held(&self) -> u64;

    /// So many bytes came out.
    fn drained(&mut self, bytes: usize);

    /// Forgets its numbers without closing them.
    fn forget(self);

    /// The end that is read from.
    fn reader(&self) -> BorrowedFd<'_> {
        self.ends()[0].0
    }

    /// The end that is written to.
    fn writer(&self) -> BorrowedFd<'_> {
        self.ends()[1].0
    }

    /// Its numbers are still its own.
    fn is_here(&self) -> bool {
        let own = |(fd, id): (_, Option<_>)| id.is_some() && identity(fd) == id;
        self.ends().into_iter().all(own)
    }

    /// Closes it, unless its numbers refer to other files by now.
    fn close(self) {
        if !self.is_here() {
            self.forget();
        }
    }
}
