//! Descriptors with numbers above 2. A host may have closed standard input,
//! output or error: if a descriptor of the library took such a number, the
//! host's output would go to it, and a host that opens `/dev/null` in its place
//! would close it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::errno::Errno;

const FIRST: RawFd = 3;

/// Duplicates a descriptor, with close-on-exec.
///
/// # Errors
///
/// `EMFILE`: no number above 2 is free. Another errno: a filter refuses `fcntl(2)`.
pub fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    match rustix::io::fcntl_dupfd_cloexec(fd, FIRST) {
        // fcntl(2): the limit (RLIMIT_NOFILE) is not above that number.
        Err(rustix::io::Errno::INVAL) => Err(Errno::EMFILE),
        done => Ok(done?),
    }
}

/// Moves a descriptor to a number above 2 if it is lower.
///
/// # Errors
///
/// `EMFILE`: no other number is free.
pub(crate) fn beyond(fd: OwnedFd) -> Result<OwnedFd, Errno> {
    match is_beyond(&fd) {
        true => Ok(fd),
        false => duplicate(fd.as_fd()),
    }
}

pub(super) fn is_beyond(fd: &impl AsRawFd) -> bool {
    fd.as_raw_fd() >= FIRST
}
