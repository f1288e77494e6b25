//! Waiting and time, behind traits so that tests can control time.

mod edges;
mod poll;
mod readiness;
mod spin;
mod threshold;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::PollFlags;

use crate::endpoint::Endpoint;
use crate::errno::Errno;
use crate::sys::shows_now;
pub(crate) use edges::fetch;
pub(super) use edges::{direction, wakeup_of};
pub(crate) use poll::Poll;
pub(super) use readiness::{hides_shutdown, sink_error};
pub(crate) use spin::{SPIN_TIME, Spin, Trials};
pub(super) use threshold::Threshold;

/// The interval at which something is polled that cannot be waited for.
pub(super) const BACKOFF: Duration = Duration::from_millis(5);

/// The descriptors to wait for.
pub(crate) struct Interest<'a> {
    /// Readiness of this one for reading, or for writing if `true`.
    pub(crate) ready: Option<(BorrowedFd<'a>, bool)>,
    /// Whether `ready` is not polled, and counts as ready: see [`Interest::polled`].
    pub(crate) always_ready: bool,
    /// Errors and hang-ups of this one.
    pub(crate) watch: Option<BorrowedFd<'a>>,
    /// The wakeup of the transfer's control.
    pub(crate) wake: Option<BorrowedFd<'a>>,
    /// Whether an error of `ready`, or of `watch`, is known and persists: only
    /// a change of that descriptor ends the wait.
    pub(crate) edge_triggered: [bool; 2],
}

impl<'a> Interest<'a> {
    /// Only the readiness of this end, for reading or for writing.
    pub(crate) fn of(end: &Endpoint<'a>, write: bool) -> Interest<'a> {
        Interest {
            ready: Some((end.fd(), write)),
            always_ready: end.facts().polling_waits(),
            watch: None,
            wake: None,
            edge_triggered: [false; 2],
        }
    }

    /// Returns the descriptor whose readiness is to be polled, and whether for writing.
    pub(crate) fn polled(&self) -> Option<(BorrowedFd<'a>, bool)> {
        self.ready.filter(|_| !self.always_ready)
    }

    /// Returns whether the descriptor in `ready` is ready now. Called after `epoll_ctl(2)` has
    /// returned `EPERM`: a file without poll is always ready, and for any other descriptor a
    /// filter has returned that errno.
    pub(crate) fn is_ready_now(&self) -> bool {
        self.polled().is_none_or(|(fd, write)| {
            shows_now(fd, if write { PollFlags::OUT } else { PollFlags::IN })
        })
    }
}

/// The result of a wait; the default if it has timed out. Several can be true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Wakeup {
    /// A call would return bytes, an end or an error.
    pub(crate) ready: bool,
    /// A call would not block: more than an error shows.
    pub(crate) open: bool,
    /// Whether `open` should be set is unknown: `select(2)` does not
    /// distinguish an error from readiness.
    pub(crate) unclear: bool,
    /// The watched descriptor shows an error.
    pub(crate) error: bool,
    /// The watched descriptor shows a hang-up.
    pub(crate) hang_up: bool,
    pub(crate) woken: bool,
}

impl Wakeup {
    /// Adds that the descriptor which is not polled is ready.
    pub(crate) fn with_always_ready(self, interest: &Interest<'_>) -> Wakeup {
        Wakeup {
            ready: self.ready || interest.always_ready,
            open: self.open || interest.always_ready,
            ..self
        }
    }
}

/// A clock.
pub(crate) trait Clock {
    /// Returns the time since a fixed moment, the same for all clocks.
    fn now(&mut self) -> Duration;

    /// Returns whether the transfer was cancelled by other means than its
    /// [`Control`](crate::Control).
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// Waits for descriptors.
pub(crate) trait Waiter: Clock {
    /// Polls repeatedly without sleeping, for at most `limit`.
    fn spin(&mut self, interest: &Interest<'_>, limit: Duration) -> Result<Wakeup, Errno> {
        let end = self.now() + limit;
        loop {
            let wakeup = self.wait(interest, Some(Duration::ZERO))?;
            if wakeup != Wakeup::default() || self.now() >= end {
                return Ok(wakeup);
            }
        }
    }

    /// Waits for at most `timeout`. `EINTR` counts as being woken.
    fn wait(&mut self, interest: &Interest<'_>, timeout: Option<Duration>)
    -> Result<Wakeup, Errno>;
}

/// Returns the result of a wait that a signal has ended.
pub(super) fn interrupted() -> Wakeup {
    Wakeup {
        woken: true,
        ..Wakeup::default()
    }
}
