//! Waits for several descriptors at once, behind a trait so that tests control time.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, Timespec};

use crate::errno::Errno;
use crate::sys;

/// Waits for descriptors, and reads the clock.
pub(crate) trait Waiter {
    /// Returns the time since a fixed moment.
    fn now(&mut self) -> Duration;

    /// Waits until one descriptor is ready, for at most `timeout`. Returns without
    /// readiness after `EINTR`.
    fn wait(&mut self, fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> Result<(), Errno>;
}

/// The real [`Waiter`]: `poll(2)` and the monotonic clock.
pub(crate) struct Poll(Instant);

impl Poll {
    pub(crate) fn new() -> Poll {
        Poll(Instant::now())
    }
}

impl Waiter for Poll {
    fn now(&mut self) -> Duration {
        self.0.elapsed()
    }

    fn wait(&mut self, fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> Result<(), Errno> {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match sys::poll_for(fds, timeout.as_ref()) {
            Ok(_) => Ok(()),
            Err(rustix::io::Errno::INTR) => {
                fds.iter_mut().for_each(PollFd::clear_revents);
                Ok(())
            }
            Err(errno) => Err(errno.into()),
        }
    }
}
