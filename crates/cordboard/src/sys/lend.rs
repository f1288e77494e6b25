//! Lending a descriptor to a value that owns it as well.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

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
