//! Open descriptions, told apart as far as this kernel can.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use cordboard::Errno;
use cordboard::endpoint::same_description;

use crate::kept::{Kept, duplicate, file};
use crate::sys;

/// Whether two descriptors of one file share an open description; `None` where
/// nobody can tell: before Linux 6.10 in a container that filters `kcmp(2)`.
pub(super) fn same(a: BorrowedFd<'_>, b: BorrowedFd<'_>) -> Option<bool> {
    if same_description(a, b) {
        return Some(true);
    }
    // What is not even true of a duplicate says nothing.
    let copy = duplicate(a).ok()?;
    same_description(a, &copy).then_some(false)
}

/// An open description, kept by a duplicate of its own. The host may have
/// closed the duplicate's number (`close_range(2)`) and opened another file
/// under it, or the same.
pub(super) struct Description {
    kept: Kept,
    /// The number under which it came.
    number: RawFd,
}

impl Description {
    /// # Errors
    ///
    /// `EBADF`; `EMFILE` where there is no descriptor for the duplicate.
    pub(super) fn keep(fd: BorrowedFd<'_>) -> Result<Description, Errno> {
        Ok(Description {
            kept: Kept::of_the_hosts(duplicate(fd)?),
            number: fd.as_raw_fd(),
        })
    }

    /// It; `None` where its number is no longer its own.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.kept.fd()
    }

    /// Whether this is it. Where nobody can tell, the same file under the same
    /// number is taken for it.
    pub(super) fn is(&self, fd: BorrowedFd<'_>) -> bool {
        let by_number = fd.as_raw_fd() == self.number;
        file(fd).is_ok_and(|file| self.kept.is_of(file))
            && (self.fd()).is_some_and(|own| same(own, fd).unwrap_or(by_number))
    }

    /// It, by the number that the program knows, if that still leads to it.
    pub(super) fn by_number(&self) -> Option<BorrowedFd<'_>> {
        let number = sys::lend(self.number).ok();
        number.filter(|number| self.is(*number)).or(self.fd())
    }
}
