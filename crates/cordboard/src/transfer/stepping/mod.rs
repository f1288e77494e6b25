//! A transfer that the caller's event loop drives: no call waits.

mod alarm;

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use alarm::Alarm;

use super::poll::Poll;
use super::settle::{Settled, Settlement};
use super::stepper::Stepper;
use super::turn::{Next, Turn, Wait};
use super::wait::{Clock as _, Waiter as _, Wakeup};
use super::{Progress, Transfer};
use crate::report::{Ended, Failure, Outcome, Refusal};
use crate::request::Backend;
use crate::sys::SignalGuard;

/// A transfer that the caller's event loop drives, one step at a time.
///
/// [`Stepping::step`] moves some bytes and returns; it never waits for the other side of
/// a descriptor. The descriptor of [`AsFd`] polls readable (`POLLIN`) when the next call
/// has something to do. The caller must not read from it.
///
/// No thread runs the transfer, except for direct I/O, whose blocks a few threads of the
/// library move: io_uring would bind the transfer to one thread. A call on a file waits
/// for its device, as `read(2)` does, and so does `fsync(2)` if the request has
/// [`sync`](crate::Request::sync).
///
/// Dropping it cancels the transfer: bytes that were read and not written go back to a
/// source that can seek, and are lost otherwise.
///
/// A child of `fork(2)` must not use it.
///
/// ```
/// use std::os::fd::AsFd;
/// use cordboard::{Request, Transfer};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (source, mut feed) = std::io::pipe()?;
/// # let (_drain, sink) = std::io::pipe()?;
/// # std::io::Write::write_all(&mut feed, b"abc")?;
/// # drop(feed);
/// let transfer = Transfer::new(source.as_fd(), sink.as_fd(), Request::default())?;
/// let mut stepping = transfer.stepping()?;
/// let outcome = loop {
///     // An event loop waits for other descriptors too.
///     let mut fds = [rustix::event::PollFd::new(&stepping, rustix::event::PollFlags::IN)];
///     rustix::event::poll(&mut fds, None)?;
///     if let Some(outcome) = stepping.step() {
///         break outcome;
///     }
/// };
/// assert_eq!(outcome.report.written, 3);
/// # Ok(())
/// # }
/// ```
pub struct Stepping<'a> {
    stage: Stage<'a>,
    stepper: Stepper,
    poll: Poll,
    /// The present wait, and when it times out.
    wait: Option<(Wait, Option<Duration>)>,
    /// A wait has found the source ready.
    source_polled: bool,
    is_cancelled: bool,
    progress: Progress,
    alarm: Alarm,
}

enum Stage<'a> {
    Runs(Box<Transfer<'a>>),
    Settles(Box<Settlement<'a>>),
    Ended,
}

impl<'a> Transfer<'a> {
    /// Prepares the transfer for the caller's event loop, which drives it. Nothing
    /// moves yet.
    ///
    /// # Errors
    ///
    /// [`Refusal::NoDescriptor`]: `epoll_create1(2)` or `timerfd_create(2)` fails.
    pub fn stepping(mut self) -> Result<Stepping<'a>, Failure> {
        let refused = |errno| Failure::refused(Refusal::NoDescriptor { errno });
        let mut alarm = Alarm::new().map_err(refused)?;
        self.set_up(Backend::Epoll);
        self.listen();
        // The first step is due.
        alarm.ring();
        let mut poll = Poll::new();
        Ok(Stepping {
            stepper: Stepper::begin(poll.now()),
            progress: self.progress(Duration::ZERO),
            stage: Stage::Runs(Box::new(self)),
            poll,
            wait: None,
            source_polled: false,
            is_cancelled: false,
            alarm,
        })
    }
}

impl<'a> Stepping<'a> {
    /// Takes one step, if one is possible. Returns the outcome at the end, once; `None`
    /// before and afterwards.
    pub fn step(&mut self) -> Option<Outcome> {
        match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Runs(transfer) => {
                self.stage = self.run(transfer);
                None
            }
            Stage::Settles(settlement) => self.settle(settlement),
            Stage::Ended => None,
        }
    }

    /// Ends the transfer with the next step, with exact counts.
    pub fn cancel(&mut self) {
        self.is_cancelled = true;
        self.alarm.ring();
    }

    /// Returns the counts as of the last step.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    fn run(&mut self, mut transfer: Box<Transfer<'a>>) -> Stage<'a> {
        // The caller's handlers see no signal that the library raises.
        let guard = transfer.needs_guard().then(SignalGuard::start);
        let next = self.advance(&mut transfer);
        drop(guard);
        let elapsed = self.poll.now().saturating_sub(self.stepper.start);
        self.progress = transfer.progress(elapsed);
        match next {
            None => {}
            Some(Next::Wait(wait)) => {
                let end = wait.timeout.map(|timeout| self.poll.now() + timeout);
                self.alarm.wait(&wait.interest(&transfer), wait.timeout);
                self.wait = Some((wait, end));
            }
            Some(Next::Step | Next::Elsewhere) => self.alarm.ring(),
            Some(Next::End(turn)) => {
                self.alarm.ring();
                let settlement = Settlement::new(*transfer, &turn, self.stepper.start);
                return Stage::Settles(Box::new(settlement));
            }
        }
        Stage::Runs(transfer)
    }

    /// Continues after a wait, and takes one step. `None`: the wait is not over.
    fn advance(&mut self, transfer: &mut Transfer<'_>) -> Option<Next> {
        if self.is_cancelled {
            return Some(Next::End(Turn::Done(Ended::Cancelled)));
        }
        if let Some((wait, end)) = self.wait.take() {
            let interest = wait.interest(transfer);
            let wakeup = match self.poll.wait(&interest, Some(Duration::ZERO)) {
                Ok(wakeup) => wakeup,
                // A call of the path then returns `EAGAIN` if it is too early.
                Err(errno) if errno.is_refusal() && transfer.step_checked_readiness(&wait) => {
                    Wakeup {
                        ready: true,
                        open: true,
                        ..Wakeup::default()
                    }
                }
                Err(errno) if errno.is_refusal() => {
                    return Some(Next::End(transfer.cannot_wait(errno)));
                }
                Err(errno) => return Some(Next::End(Turn::Failed(wait.side(), Some(errno)))),
            };
            let is_over = end.is_some_and(|end| self.poll.now() >= end);
            if wakeup == Wakeup::default() && !is_over {
                self.wait = Some((wait, end));
                return None;
            }
            self.source_polled = wakeup.ready;
            let next = (self.stepper).resume(transfer, wait, wakeup, &mut self.poll);
            if !matches!(next, Next::Step | Next::Elsewhere) {
                return Some(next);
            }
        }
        let polled = std::mem::take(&mut self.source_polled);
        let first = match polled {
            true => None,
            false => (self.stepper).poll_source_first(transfer, &mut self.poll),
        };
        Some(first.unwrap_or_else(|| self.stepper.step(transfer, false, &mut self.poll)))
    }

    fn settle(&mut self, mut settlement: Box<Settlement<'a>>) -> Option<Outcome> {
        match settlement.turn(&mut self.poll, false) {
            Settled::Again => self.alarm.ring(),
            Settled::Wait(wait) => {
                let interest = wait.interest(settlement.transfer());
                self.alarm.wait(&interest, wait.timeout);
            }
            Settled::Done => {
                let (outcome, open) = settlement.finish(&mut self.poll);
                self.alarm.end();
                open.close(false);
                let report = &outcome.report;
                self.progress = Progress {
                    read: report.read,
                    written: report.written,
                    pending_reads: 0,
                    pending_writes: 0,
                    elapsed: report.elapsed,
                    ..self.progress
                };
                return Some(outcome);
            }
        }
        self.stage = Stage::Settles(settlement);
        None
    }
}

impl AsFd for Stepping<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.alarm.as_fd()
    }
}

impl Drop for Stepping<'_> {
    fn drop(&mut self) {
        let cancelled = Turn::Done(Ended::Cancelled);
        match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Runs(transfer) => {
                drop(transfer.settle(&cancelled, &mut self.poll, self.stepper.start));
            }
            Stage::Settles(settlement) => settlement.finish(&mut self.poll).1.close(false),
            Stage::Ended => {}
        }
    }
}

impl std::fmt::Debug for Stepping<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stepping")
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}
