//! Open file descriptions, compared as far as the kernel can.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use cordboard::endpoint::compare_descriptions;
use cordboard::{Errno, duplicate};

use crate::checked_fd::{CheckedFd, Identity};
use crate::sys;

/// A descriptor of the program, and the identity of its file. It is queried before a lock is
/// taken: the query may wait for the server of the file, and all other calls would wait too.
#[derive(Clone, Copy)]
pub(super) struct Named<'a> {
    pub(super) fd: BorrowedFd<'a>,
    /// The program's descriptor number.
    number: RawFd,
    identity: Identity,
}

impl<'a> Named<'a> {
    pub(super) fn of(fd: BorrowedFd<'a>) -> Named<'a> {
        Named {
            fd,
            number: fd.as_raw_fd(),
            identity: Identity::of(fd),
        }
    }
}

/// An open file description, kept open by a duplicate. The program may have
/// closed the duplicate (`close_range(2)`) and opened another file, or the same
/// one, under its number.
pub(super) struct Description {
    duplicate: CheckedFd,
    /// The program's descriptor number.
    number: RawFd,
}

impl Description {
    /// Duplicates the descriptor. Queries the file of the duplicate, which may wait for its
    /// server: the program may reuse the number meanwhile.
    ///
    /// # Errors
    ///
    /// * `EBADF`: not an open descriptor.
    /// * `EMFILE`: no descriptor is available for the duplicate.
    pub(super) fn new(fd: BorrowedFd<'_>) -> Result<Description, Errno> {
        Ok(Description {
            duplicate: CheckedFd::of_program(duplicate(fd)?),
            number: fd.as_raw_fd(),
        })
    }

    /// Returns the duplicate as the program's descriptor; `None` as [`Description::fd`].
    pub(super) fn named(&self) -> Option<Named<'_>> {
        Some(Named {
            fd: self.fd()?,
            number: self.number,
            identity: self.duplicate.identity(),
        })
    }

    /// Returns the duplicate; `None` if its number refers to another file.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.duplicate.fd()
    }

    /// In a child of `fork(2)`: see [`CheckedFd::close_inherited`].
    pub(super) fn close_inherited(&self) {
        self.duplicate.close_inherited();
    }

    /// Whether the descriptor refers to this description. If that cannot be determined,
    /// the same file under the same number counts as it. Waits for no server.
    pub(super) fn is(&self, named: Named<'_>) -> bool {
        self.is_by(named.fd, named.number, || named.identity)
    }

    fn is_by(
        &self,
        fd: BorrowedFd<'_>,
        number: RawFd,
        identity: impl FnOnce() -> Identity,
    ) -> bool {
        let same_name =
            || number == self.number && identity().is_that_of(self.duplicate.identity());
        (self.fd()).is_some_and(|own| compare_descriptions(own, fd).unwrap_or_else(same_name))
    }

    /// Returns the program's own descriptor if it still refers to this
    /// description, else the duplicate. May wait for the server of a file that the program has
    /// under the number, if the kernel cannot compare.
    pub(super) fn program_fd(&self) -> Option<BorrowedFd<'_>> {
        let number = sys::lend(self.number).ok();
        let is_this = |fd: &BorrowedFd<'_>| self.is_by(*fd, self.number, || Identity::of(*fd));
        number.filter(is_this).or(self.fd())
    }
}
