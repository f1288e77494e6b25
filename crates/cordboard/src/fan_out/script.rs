//! An injected clock, and waits that a test decides.

use std::time::Duration;

use rustix::event::PollFd;

use crate::compose::{Poll, Waiter};
use crate::errno::Errno;

pub(super) const HOUR: Duration = Duration::from_secs(3600);

/// A [`Waiter`] that calls a function for each wait, with the number of the wait. A wait with
/// a timeout of zero is a `poll(2)`, and has no number.
pub(super) struct Script<F> {
    pub(super) now: Duration,
    pub(super) waits: u32,
    wait: F,
}

impl<F> Script<F> {
    pub(super) fn new(wait: F) -> Script<F> {
        Script {
            now: Duration::ZERO,
            waits: 0,
            wait,
        }
    }
}

/// Waits without a limit.
pub(super) fn real(fds: &mut [PollFd<'_>]) {
    Poll::new().wait(fds, None).unwrap();
}

/// Polls without waiting.
pub(super) fn poll(fds: &mut [PollFd<'_>]) {
    Poll::new().wait(fds, Some(Duration::ZERO)).unwrap();
}

impl<F> Waiter for Script<F>
where
    F: FnMut(u32, &mut Duration, &mut [PollFd<'_>], Option<Duration>),
{
    fn now(&mut self) -> Duration {
        self.now
    }

    fn wait(&mut self, fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> Result<(), Errno> {
        if timeout == Some(Duration::ZERO) {
            return Poll::new().wait(fds, timeout);
        }
        self.waits += 1;
        (self.wait)(self.waits, &mut self.now, fds, timeout);
        Ok(())
    }
}
