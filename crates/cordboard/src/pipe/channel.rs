//! A private pipe or a socket pair: two descriptors of the library, and the
//! bytes between them.

use std::os::fd::{BorrowedFd, OwnedFd};

use crate::sys::{Identity, close_own, identity};

/// A private pipe or a socket pair. Its descriptor numbers may refer to other
/// files in a thread with a descriptor table of its own (`unshare(2)`), in a
/// child of `fork(2)`, and if the host closes descriptors that it has not
/// opened.
pub(crate) trait Channel: Sized {
    /// Returns the read end and the write end, each with its identity when the
    /// channel was made; `None`: unknown.
    fn ends(&self) -> [(BorrowedFd<'_>, Option<Identity>); 2];

    /// Returns the number of bytes in the channel.
    fn held(&self) -> u64;

    /// Counts bytes that were read.
    fn drained(&mut self, bytes: usize);

    /// As [`Channel::ends`].
    fn into_ends(self) -> [(OwnedFd, Option<Identity>); 2];

    /// Forgets its descriptors without closing them.
    fn forget(self) {
        std::mem::forget(self.into_ends());
    }

    /// Returns the read end.
    fn reader(&self) -> BorrowedFd<'_> {
        self.ends()[0].0
    }

    /// Returns the write end.
    fn writer(&self) -> BorrowedFd<'_> {
        self.ends()[1].0
    }

    /// Whether both descriptor numbers still refer to this channel.
    fn is_here(&self) -> bool {
        let own = |(fd, id): (_, Option<_>)| id.is_some() && identity(fd) == id;
        self.ends().into_iter().all(own)
    }

    /// Closes the channel, unless its numbers refer to other files.
    fn close(self) {
        if !self.is_here() {
            return self.forget();
        }
        for (fd, id) in self.into_ends() {
            if let Some(id) = id {
                close_own(fd, id);
            }
        }
    }
}
