//! Lending a descriptor to a value that owns it as well.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// The descriptor, for as long as the caller keeps the owner: a value that
/// owns a descriptor and works with it needs both in one place.
///
/// # Safety
///
/// The owner must outlive every use of what is returned.
pub(crate) unsafe fn lend(owner: &OwnedFd) -> BorrowedFd<'static> {
    // SAFETY: open for as long as the owner is, which the caller promises to keep.
    unsafe { BorrowedFd::borrow_raw(owner.as_raw_fd()) }
}

/// The file that a caller's descriptor number refers to, if it is open: only
/// for calls that do no harm if the number is closed or reused meanwhile.
pub(crate) fn at(number: RawFd) -> Option<BorrowedFd<'static>> {
    // SAFETY: F_GETFD takes any number, and changes nothing.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return None;
    }
    // SAFETY: it is open. Where it is closed before it is used, the call that
    // it is used for says EBADF.
    Some(unsafe { BorrowedFd::borrow_raw(number) })
}
