//! Waiting that a signal can end.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::problem::Problem;
use crate::signals::interruptible;

/// Waits until the descriptor is ready, or for so long; `false`: it was not.
pub fn wait(
    fd: impl AsFd,
    events: PollFlags,
    time: Option<Duration>,
) -> Result<Result<bool, Errno>, Problem> {
    let time = time.map(timespec);
    let mut fds = [PollFd::new(&fd, events)];
    interruptible(|| poll(&mut fds, time.as_ref()).map(|ready| ready > 0))
}

/// Waits for so long.
pub fn pause(time: Duration) -> Result<(), Problem> {
    let time = timespec(time);
    interruptible(|| poll(&mut [], Some(&time)))?.ok();
    Ok(())
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}
