//! Opening a file on which another process may hold a lease (`fcntl(2)`),
//! without blocking on anything else that its name may refer to by then.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, fcntl_setfl};
use rustix::io::Errno;

use crate::copy::place::Place;
use crate::files::kind;
use crate::interruptible::interruptible;
use crate::signals::{Interrupted, retry};

/// Opens a file with `flags`, which contain `O_NONBLOCK`. `EAGAIN` means a
/// lease (`__break_lease`, fs/locks.c). Only a blocking open waits until it is
/// released. That open is by the inode: the name could refer to a FIFO by then.
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
    let looked = open(base).and_then(|fd| Ok((retry(|| cordboard::fstat(&fd))?, fd)));
    let base = match looked {
        Ok((stat, fd)) if kind(&stat) == FileType::RegularFile => fd,
        // The name has changed. `ENXIO` is the error of a FIFO without a
        // reader.
        Ok(_) => return Ok(Err(Errno::NXIO)),
        Err(errno) => return Ok(Err(errno)),
    };
    let very = format!("/proc/self/fd/{}", base.as_raw_fd());
    let flags = flags - OFlags::NONBLOCK - OFlags::NOFOLLOW;
    let waits = || rustix::fs::open(&very, flags, Mode::empty());
    Ok(match interruptible(waits)? {
        // There is no procfs.
        Err(Errno::NOENT | Errno::NOTDIR) => Err(Errno::AGAIN),
        done => done,
    })
}

/// Clears `O_NONBLOCK` of a regular file, which was opened with `flags`. Its
/// calls may wait: `poll(2)` always reports it as ready. A server that knows
/// the flag may return `EAGAIN` as long as it is set.
pub fn clear_nonblock(file: impl AsFd, flags: OFlags) {
    // An error is ignored: only some servers know the flag.
    let _ = fcntl_setfl(file, flags & OFlags::APPEND);
}
