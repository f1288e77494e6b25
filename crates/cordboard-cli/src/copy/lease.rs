//! Opening a file that somebody may have a lease on (`fcntl(2)`), without
//! waiting for anything else that may have come to its name.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::{Errno, retry_on_intr};

use crate::problem::Problem;
use crate::signals::stop;

/// How often it is looked whether the lease was given up.
const EVERY: Duration = Duration::from_millis(5);

/// Calls `open`, which has `O_NONBLOCK`, until no lease is in its way. An open
/// that may not wait fails with `EAGAIN`, and breaks the lease all the same
/// (`__break_lease`, fs/locks.c): its holder is told, and the kernel takes it
/// away in the end. An open that may wait would do so for a FIFO's other side
/// too.
pub fn patiently(
    open: impl Fn() -> Result<OwnedFd, Errno>,
) -> Result<Result<OwnedFd, Errno>, Problem> {
    loop {
        match retry_on_intr(&open) {
            Err(Errno::AGAIN) if stop().is_some() => return Err(Problem::interrupted()),
            Err(Errno::AGAIN) => std::thread::sleep(EVERY),
            done => return Ok(done),
        }
    }
}
