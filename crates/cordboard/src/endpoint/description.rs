//! Whether two descriptors share one open description.

use std::os::fd::{AsFd, BorrowedFd};

/// Returns whether two descriptors share one open file description, and with it
/// position and flags: the same number, `F_DUPFD_QUERY` (since Linux 6.10), or
/// `kcmp(2)` (since Linux 3.5, where configured and not filtered). `false` if
/// the kernel cannot compare them.
pub fn same_description(a: impl AsFd, b: impl AsFd) -> bool {
    compare_descriptions(a.as_fd(), b.as_fd()) == Some(true)
}

/// As [`same_description`]; `None` if the kernel cannot compare them.
///
/// Public for the C library only; not part of the API.
#[doc(hidden)]
pub fn compare_descriptions(a: BorrowedFd<'_>, b: BorrowedFd<'_>) -> Option<bool> {
    crate::sys::same_description(a, b)
}
