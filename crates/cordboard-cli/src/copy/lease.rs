//! Opening a file that somebody may have a lease on (`fcntl(2)`), without
//! waiting for anything else that may have come to its name.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use super::kind;
use super::place::Place;
use crate::problem::Problem;
use crate::signals::interruptible;

/// Opens it with `flags`, which have `O_NONBLOCK`. `EAGAIN` is a lease
/// (`__break_lease`, fs/locks.c), which only an open that may wait sees given
/// up. That one is of the very file: by its name it could be a FIFO's by then.
pub fn patiently(at: &Place<'_>, flags: OFlags) -> Result<Result<OwnedFd, Errno>, Problem> {
    let open = |flags| {
        let open = || rustix::fs::openat(at.directory, at.name, flags, Mode::empty());
        retry_on_intr(open)
    };
    match open(flags) {
        Err(Errno::AGAIN) => {}
        done => return Ok(done),
    }
    let base = OFlags::PATH | OFlags::CLOEXEC | flags & OFlags::NOFOLLOW;
    let looked = open(base).and_then(|fd| Ok((rustix::fs::fstat(&fd)?, fd)));
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
