//! Waiting and the time, behind a trait so that tests can make time pass.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::errno::Errno;

/// How often something is asked that cannot be waited for.
pub(super) const BACKOFF: Duration = Duration::from_millis(5);

/// What to wait for.
pub(crate) struct Interest<'a> {
    /// This becoming readable, or writable where `true`.
    pub(crate) ready: Option<(BorrowedFd<'a>, bool)>,
    /// Watch this one for its end meanwhile.
    pub(crate) watch: Option<BorrowedFd<'a>>,
    /// Woken through this one.
    pub(crate) wake: Option<BorrowedFd<'a>>,
    /// Whether an error of the first two is known, and stays: what counts is a
    /// change.
    pub(crate) edge_triggered: [bool; 2],
}

/// What came of it. Several can be true at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Wakeup {
    /// A call may have something to tell.
    pub(crate) ready: bool,
    /// A call does not wait: it is not only an error that shows.
    pub(crate) open: bool,
    /// Which of the two it is, is unknown.
    pub(crate) unclear: bool,
    /// The watched descriptor shows an error.
    pub(crate) error: bool,
    /// The watched descriptor shows a hang-up.
    pub(crate) hang_up: bool,
    pub(crate) woken: bool,
}

/// The time.
pub(crate) trait Clock {
    /// Time since some fixed moment.
    fn now(&mut self) -> Duration;

    /// The transfer was cancelled by other means than its
    /// [`Control`](super::Control).
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// The outside world, as far as waiting goes.
pub(crate) trait Waiter: Clock {
    /// Looks again and again without going to sleep, for at most `spell`.
    fn spin(&mut self, interest: &Interest<'_>, limit: Duration) -> Result<Wakeup, Errno> {
        let end = self.now() + limit;
        loop {
            let wakeup = self.wait(interest, Some(Duration::ZERO))?;
            if wakeup != Wakeup::default() || self.now() >= end {
                return Ok(wakeup);
            }
        }
    }

    /// Waits, at most for `timeout`. `EINTR` counts as being woken.
    fn wait(&mut self, interest: &Interest<'_>, timeout: Option<Duration>)
    -> Result<Wakeup, Errno>;
}

/// A signal has ended the wait.
pub(super) fn interrupted() -> Wakeup {
    Wakeup {
        woken: true,
        ..Wakeup::default()
    }
}
