//! Opening a file on which another process may hold a lease (`fcntl(2)`),
//! without blocking on anything else that its name may refer to by then; and
//! reading and writing it as a file.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, fcntl_setfl};
use rustix::io::Errno;

use crate::copy::place::Place;
use crate::files::kind;
use crate::interruptible::interruptible;
use crate::signals::{Interrupted, retry};

/// Opens it with `flags`, which have `O_NONBLOCK`. `EAGAIN` means a lease
/// (`__break_lease`, fs/locks.c); only a blocking open waits until it is given
/// up. That open is of the same inode: the name could refer to a FIFO by then.
pub fn open_past_lease(
    at: &Place<'_>,
    flags: OFlags,
) -> Result<Result<OwnedFd, Errno>, Interrupted> {
    let open = |flags| {
        let open = || rustix::fs::openat(at.directory, at.name, flags, Mode::empty());
        retry(open)
    };
    match open(flags) {
        Err(Errno::AGAIN) => {}
        done => return Ok(done),
    }
    let base = OFlags::PATH | OFlags::CLOEXEC | flags & OFlags::NOFOLLOW;
    let looked = open(base).and_then(|fd| Ok((retry(|| rustix::fs::fstat(&fd))?, fd)));
    let base = match looked {
        Ok((stat, fd)) if kind(&stat) == FileType::RegularFile => fd,
        // It has changed: what an open would say of a FIFO that nobody reads.
        Ok(_) => return Ok(Err(Errno::NXIO)),
        Err(errno) => return Ok(Err(errno)),
    };
    let very = format!("/proc/self/fd/{}", base.as_raw_fd());
    let flags = flags - OFlags::NONBLOCK - OFlags::NOFOLLOW;
    let waits = || rustix::fs::open(&very, flags, Mode::empty());
    Ok(match interruptible(waits)? {
        // There is no /proc.
        Err(Errno::NOENT | Errno::NOTDIR) => Err(Errno::AGAIN),
        done => done,
    })
}

/// What was opened with `flags`, which have `O_NONBLOCK`, has turned out to be a
/// regular file, whose calls may wait from now on: `poll(2)` always finds it
/// ready. A server that knows the flag may answer `EAGAIN` as long as it is set.
pub fn clear_nonblock(file: impl AsFd, flags: OFlags) {
    // Refused by a filter, it means nothing to other file systems.
    let _ = fcntl_setfl(file, flags & OFlags::APPEND);
}
