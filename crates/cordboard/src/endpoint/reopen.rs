//! A second open description of a file.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

use crate::errno::Errno;
use crate::sys::{Thread, beyond, fstat};

/// Calls `call` with the procfs name of a descriptor of the calling thread. The thread
/// may have its own descriptor table, and `/proc/self/fd` shows that of the first
/// thread, where the number may be another file. `/proc/thread-self` exists since
/// Linux 3.17; before, the name contains the thread's number.
pub(super) fn by_name<T>(
    fd: BorrowedFd<'_>,
    call: impl Fn(&str) -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    let number = fd.as_raw_fd();
    match call(&format!("/proc/thread-self/fd/{number}")) {
        Err(rustix::io::Errno::NOENT) => {}
        done => return done,
    }
    let thread = Thread::this().number();
    call(&format!("/proc/self/task/{thread}/fd/{number}"))
}

/// Opens the file behind a descriptor again, through procfs. Keeps the flags that
/// affect reads and writes, and does not change those of the caller's descriptor. Does
/// not wait for a lease that another process holds on the file.
///
/// # Errors
///
/// | errno | why |
/// |---|---|
/// | `ENOENT` | no procfs; or the name refers to another file, as it may in the procfs of another PID namespace |
/// | `EACCES`, `EPERM` | the file's mode or seals; not the owner, with `O_NOATIME` |
/// | `EINVAL` | `O_DIRECT`, and a file system without direct I/O (`open(2)`) |
/// | `ETXTBSY`, `EROFS` | a running program; mounted read-only since |
/// | `EAGAIN` | a lease (`F_SETLEASE` in `fcntl(2)`) |
pub(crate) fn reopen(fd: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
    let promised = OFlags::SYNC | OFlags::DSYNC | OFlags::NOATIME;
    let kept = rustix::fs::fcntl_getfl(fd)? & promised;
    let flags = flags | kept | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let again = by_name(fd, |name| rustix::fs::open(name, flags, Mode::empty()))?;
    let again = beyond(again)?;
    // Nothing is read or written through the new descriptor before this check.
    if same_file(fd, again.as_fd())? {
        Ok(again)
    } else {
        Err(Errno::ENOENT)
    }
}

fn same_file(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> Result<bool, Errno> {
    let what = |fd| fstat(fd).map(|stat| (stat.st_dev, stat.st_ino, stat.st_rdev));
    Ok(what(one)? == what(other)?)
}

#[cfg(test)]
mod tests {
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

    /// The number refers to one file in this thread and to another in all other
    /// threads.
    #[test]
    fn a_thread_with_descriptors_of_its_own_gets_its_own_file() {
        let files = [0, 1].map(|_| tempfile::tempfile().unwrap());
        let [theirs, ours] = files.each_ref().map(|file| file.as_fd());
        assert!(!same_file(theirs, ours).unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                testkit::child::own_descriptors();
                let name = |fd| by_name(fd, |name| rustix::fs::readlink(name, Vec::new()));
                let our_name = name(ours).unwrap();
                assert_ne!(name(theirs).unwrap(), our_name);
                testkit::child::replace(theirs, ours);
                assert_eq!(name(theirs).unwrap(), our_name);
                let again = reopen(theirs, OFlags::RDONLY).unwrap();
                assert!(same_file(again.as_fd(), ours).unwrap());
            });
        });
        assert!(!same_file(theirs, ours).unwrap());
    }
}
