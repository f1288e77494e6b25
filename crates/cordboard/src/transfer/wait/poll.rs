//! Waits with `poll(2)`; reads the monotonic clock.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use super::edges::Edges;
use super::{BACKOFF, Clock, Interest, Waiter, Wakeup, interrupted};
use crate::errno::Errno;
use crate::sys;

/// The real [`Waiter`].
#[derive(Default)]
pub(crate) struct Poll {
    edges: Option<Edges>,
    is_cancelled: bool,
}

impl Poll {
    pub(crate) fn new() -> Poll {
        Poll::default()
    }

    /// Cancels the transfer, as far as its settlement checks that.
    pub(in crate::transfer) fn cancel(&mut self) {
        self.is_cancelled = true;
    }
}

impl Clock for Poll {
    fn now(&mut self) -> Duration {
        sys::monotonic()
    }

    fn is_cancelled(&self) -> bool {
        self.is_cancelled
    }
}

impl Waiter for Poll {
    fn wait(
        &mut self,
        interest: &Interest<'_>,
        timeout: Option<Duration>,
    ) -> Result<Wakeup, Errno> {
        if interest.always_ready {
            return without_polling(interest);
        }
        if interest.edge_triggered == [false; 2] {
            return poll(interest, timeout);
        }
        let wakeup = poll(interest, Some(Duration::ZERO))?;
        if wakeup != Wakeup::default() || timeout == Some(Duration::ZERO) {
            return Ok(wakeup);
        }
        match self.wait_for_change(interest, timeout) {
            // Polls at intervals if epoll has no descriptor or no room for more
            // watches.
            Err(_) => {
                let wake = Interest {
                    ready: None,
                    watch: None,
                    ..*interest
                };
                poll(&wake, Some(timeout.map_or(BACKOFF, |t| t.min(BACKOFF))))
            }
            done => done,
        }
    }
}

impl Poll {
    fn wait_for_change(
        &mut self,
        interest: &Interest<'_>,
        timeout: Option<Duration>,
    ) -> Result<Wakeup, Errno> {
        let edges = match &mut self.edges {
            Some(edges) => edges,
            none => none.insert(Edges::new()?),
        };
        edges.wait(interest, timeout)
    }
}

/// Polls all descriptors except the one that counts as ready.
fn without_polling(interest: &Interest<'_>) -> Result<Wakeup, Errno> {
    let wakeup = match interest.watch.or(interest.wake) {
        Some(_) => poll(interest, Some(Duration::ZERO))?,
        None => Wakeup::default(),
    };
    Ok(wakeup.with_always_ready(interest))
}

/// `poll(2)`.
fn poll(interest: &Interest<'_>, timeout: Option<Duration>) -> Result<Wakeup, Errno> {
    let ready = interest.polled().map(|(fd, write)| {
        let flags = if write { PollFlags::OUT } else { PollFlags::IN };
        PollFd::from_borrowed_fd(fd, flags)
    });
    // Errors and hang-ups are always reported.
    let watch = interest
        .watch
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::empty()));
    let wake = interest
        .wake
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let (ready_at, watch_at) = (0, usize::from(ready.is_some()));
    let wake_at = watch_at + usize::from(watch.is_some());
    let has = (ready.is_some(), watch.is_some(), wake.is_some());
    let mut fds: Vec<PollFd<'_>> = [ready, watch, wake].into_iter().flatten().collect();
    let timeout = timeout.map(|t| Timespec {
        tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX) as _,
        tv_nsec: t.subsec_nanos() as _,
    });
    match sys::poll_for(&mut fds, timeout.as_ref()) {
        Ok(_) => {}
        Err(rustix::io::Errno::INTR) => return Ok(interrupted()),
        // `EINVAL` also for more descriptors than RLIMIT_NOFILE now permits: sandboxes set it
        // to 0 (`do_sys_poll` in fs/select.c).
        Err(errno) if Errno::from(errno).is_refusal_or_invalid() => {
            return select(interest, timeout.as_ref()).map_err(|_| errno.into());
        }
        Err(errno) => return Err(errno.into()),
    }
    let shows = |there: bool, index: usize, flags: PollFlags| {
        there && fds[index].revents().intersects(flags)
    };
    let open = shows(has.0, ready_at, PollFlags::all() - PollFlags::ERR);
    let [ready_error_persists, watch_error_persists] = interest.edge_triggered;
    Ok(Wakeup {
        ready: open || !ready_error_persists && shows(has.0, ready_at, PollFlags::ERR),
        open,
        unclear: false,
        error: !watch_error_persists && shows(has.1, watch_at, PollFlags::ERR),
        hang_up: shows(has.1, watch_at, PollFlags::HUP | PollFlags::NVAL),
        woken: shows(has.2, wake_at, PollFlags::all()),
    })
}

/// Waits with `select(2)`, which does not distinguish an error from readiness, and
/// cannot watch for an end alone: the next write detects a sink that fails
/// meanwhile.
fn select(interest: &Interest<'_>, timeout: Option<&Timespec>) -> Result<Wakeup, Errno> {
    let wake = interest.wake.map(|fd| (fd, false));
    let polled = interest.polled();
    let fds: Vec<_> = [polled, wake].into_iter().flatten().collect();
    match sys::wait_for(&fds, timeout) {
        Ok(seen) => Ok(Wakeup {
            ready: polled.is_some() && seen[0],
            unclear: polled.is_some() && seen[0],
            woken: wake.is_some() && seen.last() == Some(&true),
            ..Wakeup::default()
        }),
        Err(Errno::EINTR) => Ok(interrupted()),
        Err(errno) => Err(errno),
    }
}
