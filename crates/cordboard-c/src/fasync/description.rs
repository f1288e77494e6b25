//! Open file descriptions, compared as far as the kernel can.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use cordboard::endpoint::compare_descriptions;
use cordboard::{Errno, duplicate};

use crate::checked_fd::{CheckedFd, file_id};
use crate::sys;

/// An open file description, kept open by a duplicate. The program may have
/// closed the duplicate (`close_range(2)`) and opened another file, or the same
/// one, under its number.
pub(super) struct Description {
    duplicate: CheckedFd,
    /// The program's descriptor number.
    number: RawFd,
}

impl Description {
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

    /// Returns the duplicate; `None` if its number refers to another file.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.duplicate.fd()
    }

    /// In a child of `fork(2)`: see [`CheckedFd::close_inherited`].
    pub(super) fn close_inherited(&self) {
        self.duplicate.close_inherited();
    }

    /// Whether `fd` refers to this description. If that cannot be determined,
    /// the same file under the same number counts as it.
    pub(super) fn is(&self, fd: BorrowedFd<'_>) -> bool {
        let same_number = fd.as_raw_fd() == self.number;
        file_id(fd).is_ok_and(|file| self.duplicate.is_file(file))
            && (self.fd()).is_some_and(|own| compare_descriptions(own, fd).unwrap_or(same_number))
    }

    /// Returns the program's own descriptor if it still refers to this
    /// description, else the duplicate.
    pub(super) fn program_fd(&self) -> Option<BorrowedFd<'_>> {
        let number = sys::lend(self.number).ok();
        number.filter(|number| self.is(*number)).or(self.fd())
    }
}
