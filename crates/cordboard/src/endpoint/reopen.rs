//! A second open description of a file.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

use crate::errno::Errno;

/// Opens the file behind a descriptor again, through procfs, with what the
/// first one promises of its reads and writes: the flags of one that was lent
/// are not changed. Nobody waits for a lease that somebody has on it.
///
/// # Errors
///
/// | errno | why |
/// |---|---|
/// | `ENOENT` | no procfs |
/// | `EACCES`, `EPERM` | the file's mode or seals; not the owner, with `O_NOATIME` |
/// | `EINVAL` | `O_DIRECT`, and a file system without direct I/O (`open(2)`) |
/// | `ETXTBSY`, `EROFS` | a program that runs; mounted read-only since |
/// | `EAGAIN` | a lease (`F_SETLEASE` in `fcntl(2)`) |
pub(crate) fn reopen(fd: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let promised = OFlags::SYNC | OFlags::DSYNC | OFlags::NOATIME;
    let kept = rustix::fs::fcntl_getfl(fd)? & promised;
    let flags = flags | kept | OFlags::CLOEXEC | OFlags::NONBLOCK;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn the_second_descriptor_keeps_the_promises_of_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("f");
        std::fs::write(&name, b"x").unwrap();
        for promise in [
            OFlags::empty(),
            OFlags::DSYNC,
            OFlags::SYNC,
            OFlags::NOATIME,
        ] {
            let flags = OFlags::WRONLY | OFlags::CLOEXEC | promise;
            let first = rustix::fs::open(&name, flags, Mode::empty()).unwrap();
            let again = reopen(first.as_fd(), OFlags::WRONLY).unwrap();
            let seen = rustix::fs::fcntl_getfl(&again).unwrap();
            let all = OFlags::SYNC | OFlags::DSYNC | OFlags::NOATIME;
            assert_eq!(seen & all, promise, "{promise:?}");
        }
    }
}
