//! Waiting that a signal can end.

use std::os::fd::AsFd;
use std::time::Duration;

use cordboard::poll_for;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::thread::nanosleep;

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
    interruptible(|| poll_for(&mut fds, time.as_ref()).map(|ready| ready > 0))
}

/// Waits for so long.
pub fn pause(time: Duration) -> Result<(), Problem> {
    let time = timespec(time);
    // A filter may refuse it.
    if interruptible(|| poll_for(&mut [], Some(&time)))?.is_err() {
        let _ = nanosleep(&time);
    }
    Ok(())
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}
