//! What a descriptor's open description keeps about signals: `fcntl(2)`.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use cordboard::Errno;

use super::{Owner, done};

// libc does not name them on every target; the kernel's generic numbers.
const F_SETSIG: libc::c_int = 10;
const F_GETSIG: libc::c_int = 11;
const F_GETOWN_EX: libc::c_int = 16;

/// A caller's descriptor, for the length of the call.
///
/// # Errors
///
/// `EBADF` for a number below 0. One that is not open fails at its first use.
pub(crate) fn lend<'a>(number: RawFd) -> Result<BorrowedFd<'a>, Errno> {
    if number < 0 {
        return Err(Errno::EBADF);
    }
    // SAFETY: not -1. Whoever calls the library keeps it open meanwhile, as
    // with any system call; if not, those calls fail with EBADF.
    Ok(unsafe { BorrowedFd::borrow_raw(number) })
}

/// The status flags: `F_GETFL`.
pub(crate) fn flags(fd: BorrowedFd<'_>) -> Result<libc::c_int, Errno> {
    // SAFETY: takes and returns integers only.
    done(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })
}

/// `F_SETFL`.
pub(crate) fn set_flags(fd: BorrowedFd<'_>, flags: libc::c_int) -> Result<(), Errno> {
    // SAFETY: takes and returns integers only.
    done(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags) }).map(drop)
}

/// The signal that tells of events on it; 0 is SIGIO: `F_GETSIG`.
pub(crate) fn signal(fd: BorrowedFd<'_>) -> Result<libc::c_int, Errno> {
    // SAFETY: takes and returns integers only.
    done(unsafe { libc::fcntl(fd.as_raw_fd(), F_GETSIG) })
}

/// `F_SETSIG`.
pub(crate) fn set_signal(fd: BorrowedFd<'_>, signal: libc::c_int) -> Result<(), Errno> {
    // SAFETY: takes and returns integers only.
    done(unsafe { libc::fcntl(fd.as_raw_fd(), F_SETSIG, signal) }).map(drop)
}

/// What `F_GETOWN_EX` says (since Linux 2.6.32).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owned {
    kind: libc::c_int,
    id: libc::pid_t,
}

impl Owned {
    /// Who is told of events. `None` where nobody was set, and just so where
    /// whoever was has gone (fs/fcntl.c, `f_getown_ex`).
    pub(crate) fn by(self) -> Option<Owner> {
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
pub(crate) fn owner(fd: BorrowedFd<'_>) -> Result<Owned, Errno> {
    let mut owner = Owned { kind: 0, id: 0 };
    // SAFETY: writes one struct f_owner_ex, which the pointer is valid for.
    done(unsafe { libc::fcntl(fd.as_raw_fd(), F_GETOWN_EX, &raw mut owner) })?;
    Ok(owner)
}
