//! The file status flags as a program of the paper expects them.

use std::os::fd::BorrowedFd;

use cordboard::Errno;

use super::{emulated, suspended};
use crate::sys;

/// `F_GETFL`, with `O_ASYNC` also if it is emulated or suspended.
pub(crate) fn flags(fd: BorrowedFd<'_>) -> Result<libc::c_int, Errno> {
    let flags = sys::flags(fd)?;
    if flags & libc::O_ASYNC != 0 {
        return Ok(flags);
    }
    match suspended::will_be_restored(fd) {
        Some(false) => Ok(flags),
        None if !emulated::is_set(fd) => {
            // A transfer may have restored the flag since the first query.
            sys::flags(fd)
        }
        _ => Ok(flags | libc::O_ASYNC),
    }
}

/// `F_SETFL`; sets and clears `O_ASYNC` even if the kernel ignores it, or if it
/// is suspended.
pub(crate) fn set_flags(fd: BorrowedFd<'_>, flags: libc::c_int) -> Result<(), Errno> {
    if let Some(done) = suspended::set_flags(fd, flags) {
        return done;
    }
    let wanted = flags & libc::O_ASYNC != 0;
    sys::set_flags(fd, flags)?;
    let kept = sys::flags(fd)? & libc::O_ASYNC != 0;
    match (wanted, kept) {
        (true, false) => emulated::set(fd),
        (false, _) => emulated::clear(fd),
        (true, true) => Ok(()),
    }
}
