//! A write that always fails.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use super::last_errno::last_errno;
use crate::errno::Errno;

/// Writes from memory that is not readable: the file system prepares for this
/// many bytes, gets none (`EFAULT`), and undoes the preparation. Never writes a
/// byte.
pub(crate) fn write_unreadable(fd: BorrowedFd<'_>, offset: u64, length: usize) -> Errno {
    let Ok(offset) = libc::off64_t::try_from(offset) else {
        return Errno::EINVAL;
    };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, where the kernel has room for one.
    let none = unsafe { libc::mmap(ptr::null_mut(), length, libc::PROT_NONE, flags, -1, 0) };
    if none == libc::MAP_FAILED {
        return last_errno();
    }
    // SAFETY: the kernel may not read there either, and returns an error.
    let done = unsafe { libc::pwrite64(fd.as_raw_fd(), none, length, offset) };
    let errno = match done {
        -1 => last_errno(),
        _ => Errno::from_raw(0),
    };
    // SAFETY: the mapping is ours, and no pointer into it is left.
    unsafe { libc::munmap(none, length) };
    errno
}
