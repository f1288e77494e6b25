//! Flags, signal and owner of an open file description: `fcntl(2)`.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use cordboard::Errno;

use super::errno::result;
use super::signal::Owner;

// The kernel's generic numbers, which the libc crate lacks on some targets.
const F_SETSIG: libc::c_int = 10;
const F_GETSIG: libc::c_int = 11;
const F_GETOWN_EX: libc::c_int = 16;

/// Borrows the caller's descriptor for the duration of the call.
///
/// # Errors
///
/// `EBADF`: the number is below 0. The first use of a number that is not open
/// fails.
pub(crate) fn lend<'a>(number: RawFd) -> Result<BorrowedFd<'a>, Errno> {
    if number < 0 {
        return Err(Errno::EBADF);
    }
    // SAFETY: not -1. The caller keeps it open during the call, as with any
    // system call; otherwise the system calls fail with EBADF.
    Ok(unsafe { BorrowedFd::borrow_raw(number) })
}

/// The status flags: `F_GETFL`.
pub(crate) fn flags(fd: BorrowedFd<'_>) -> Result<libc::c_int, Errno> {
    // SAFETY: takes and returns integers only.
    result(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })
}

/// `F_SETFL`.
pub(crate) fn set_flags(fd: BorrowedFd<'_>, flags: libc::c_int) -> Result<(), Errno> {
    // SAFETY: takes and returns integers only.
    result(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags) }).map(drop)
}

/// Sets or clears `O_ASYNC` alone (`FIOASYNC`): `F_SETFL` of flags that were queried before would
/// undo a change that another thread or process makes in between. It is the fallback if a
/// filter refuses the call. Does nothing if the file does not support the flag
/// (`ioctl_fioasync`, fs/ioctl.c), as `F_SETFL`.
pub(crate) fn set_async(fd: BorrowedFd<'_>, on: bool) -> Result<(), Errno> {
    let value = libc::c_int::from(on);
    // SAFETY: reads one int; the pointer is valid for it.
    match result(unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIOASYNC, &raw const value) }) {
        Ok(_) | Err(Errno::ENOTTY) => Ok(()),
        Err(_) => {
            let others = flags(fd)? & !libc::O_ASYNC;
            set_flags(fd, if on { others | libc::O_ASYNC } else { others })
        }
    }
}

/// The signal that reports events; 0 means SIGIO: `F_GETSIG`.
pub(crate) fn signal(fd: BorrowedFd<'_>) -> Result<libc::c_int, Errno> {
    // SAFETY: takes and returns integers only.
    result(unsafe { libc::fcntl(fd.as_raw_fd(), F_GETSIG) })
}

/// `F_SETSIG`.
pub(crate) fn set_signal(fd: BorrowedFd<'_>, signal: libc::c_int) -> Result<(), Errno> {
    // SAFETY: takes and returns integers only.
    result(unsafe { libc::fcntl(fd.as_raw_fd(), F_SETSIG, signal) }).map(drop)
}

/// `struct f_owner_ex`, for `F_GETOWN_EX` (since Linux 2.6.32).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnerEx {
    kind: libc::c_int,
    id: libc::pid_t,
}

impl OwnerEx {
    /// The owner, which gets the signals. `None` if none was set, or if the
    /// owner has exited (fs/fcntl.c, `f_getown_ex`).
    pub(crate) fn owner(self) -> Option<Owner> {
        const F_OWNER_TID: libc::c_int = 0;
        const F_OWNER_PGRP: libc::c_int = 2;
        match (self.kind, self.id) {
            (_, 0) => None,
            (F_OWNER_TID, id) => Some(Owner::Thread(id)),
            (F_OWNER_PGRP, id) => Some(Owner::Group(id)),
            (_, id) => Some(Owner::Process(id)),
        }
    }
}

/// `F_GETOWN_EX`.
pub(crate) fn owner(fd: BorrowedFd<'_>) -> Result<OwnerEx, Errno> {
    let mut owner = OwnerEx { kind: 0, id: 0 };
    // SAFETY: writes one struct f_owner_ex; the pointer is valid for it.
    result(unsafe { libc::fcntl(fd.as_raw_fd(), F_GETOWN_EX, &raw mut owner) })?;
    Ok(owner)
}
