//! Descriptors beyond the first three. A host that has closed those may not know:
//! what it prints would go into whatever has their numbers, and what opens
//! `/dev/null` under them would close it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::errno::Errno;

const FIRST: RawFd = 3;

/// A second descriptor of the same thing, which is closed over `execve(2)`.
pub(crate) fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    match rustix::io::fcntl_dupfd_cloexec(fd, FIRST) {
        // fcntl(2): the limit is below even that.
        Err(rustix::io::Errno::INVAL) => Err(Errno::EMFILE),
        done => Ok(done?),
    }
}

/// The same one, under another number where it has one of the first three.
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
