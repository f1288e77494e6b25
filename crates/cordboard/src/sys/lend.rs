//! Borrowed descriptors whose lifetime the compiler cannot check.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Borrows a descriptor without a lifetime, for a value that both owns and borrows
/// it.
///
/// # Safety
///
/// The owner must outlive every use of the result.
pub(crate) unsafe fn lend(owner: &OwnedFd) -> BorrowedFd<'static> {
    // SAFETY: open for as long as the owner is, which the caller promises to keep.
    unsafe { BorrowedFd::borrow_raw(owner.as_raw_fd()) }
}

/// Borrows a caller's descriptor by its number, if it is open. Only for calls that do
/// no harm if the number is closed or reused meanwhile.
pub(crate) fn at(number: RawFd) -> Option<BorrowedFd<'static>> {
    // SAFETY: F_GETFD takes any number, and changes nothing.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return None;
    }
    // SAFETY: it is open. If it is closed before it is used, the call returns EBADF.
    Some(unsafe { BorrowedFd::borrow_raw(number) })
}
