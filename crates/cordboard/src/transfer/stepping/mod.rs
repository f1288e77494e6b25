//! A transfer that the caller's event loop drives: no call waits.

mod step_fd;
#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use step_fd::StepFd;

use super::own::Owned;
use super::settle::{Settled, Settlement};
use super::stepper::Stepper;
use super::turn::{Next, Turn, Wait};
use super::wait::{Clock as _, Interest, Poll, Waiter as _, Wakeup};
use super::{Progress, Transfer};
use crate::endpoint::Side;
use crate::errno::Errno;
use crate::guarded::guarded;
use crate::report::{Ended, Failure, Outcome, Refusal, Report};
use crate::request::Backend;
use crate::sys::{Lock, Origin, SignalGuard};
use crate::threads;

/// A transfer that the caller's event loop drives, one step at a time.
///
/// [`Stepping::step`] moves some bytes and returns; it never waits for the other side of
/// a descriptor. The descriptor of [`AsFd`] polls readable (`POLLIN`) when the next call
/// has something to do. The caller must not read from it.
///
/// No thread runs the transfer, with two exceptions. The blocks of direct I/O are moved by a
/// few threads of the library: io_uring would bind the transfer to one thread. And a thread
/// closes a socket that has `SO_LINGER` set, since that waits for the peer. A call on a file waits
/// for its device, as `read(2)` does, and so does `fsync(2)` if the request has
/// [`sync`](crate::Request::sync).
///
/// Dropping it cancels the transfer. Bytes that were read and not written go to the sink as
/// far as it accepts them at once, then back to a source that can seek, and are lost
/// otherwise. A drop waits for blocks of direct I/O that are in flight. It does not sync the sink,
/// also if the transfer has found its end and the sync was to follow.
///
/// An event loop with edge-triggered events must take steps until [`Stepping::is_due`] is
/// false. Neither a child of `fork(2)` nor a thread with another descriptor table
/// (`unshare(2)` with `CLONE_FILES`) may use it; a drop there uses and closes no descriptor of
/// the transfer. In a child a drop frees nothing, so the stages and the observer are not
/// dropped.
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
    progress: Progress,
    step_fd: StepFd,
    origin: Origin,
}

enum Stage<'a> {
    Runs(Box<Transfer<'a>>),
    Settles(Box<Settlement<'a>>),
    /// A thread closes the descriptors, since the close of a socket may wait for its peer
    /// (`SO_LINGER`).
    Closes(Box<Outcome>, Closed),
    Ended,
}

/// The result of the close, once it is known.
type Closed = Arc<Lock<Option<Result<(), (Side, Errno)>>>>;

impl<'a> Transfer<'a> {
    /// Prepares the transfer for the caller's event loop, which drives it. Nothing
    /// moves yet.
    ///
    /// # Errors
    ///
    /// [`Refusal::NoStepping`]: no descriptor or memory is available, the limit of epoll
    /// registrations is reached, or a filter refuses a call.
    pub fn stepping(self) -> Result<Stepping<'a>, Failure> {
        self.stepping_in(Origin::here())
    }

    /// As [`Transfer::stepping`], in a call that has begun here. `ECHILD`: a signal handler has
    /// forked since, and the call continues in the parent.
    ///
    /// Public for the C library only; not part of the API.
    ///
    /// # Errors
    ///
    /// As [`Transfer::stepping`].
    #[doc(hidden)]
    pub fn stepping_in(mut self, origin: Origin) -> Result<Stepping<'a>, Failure> {
        let refused = |errno| Failure::refused(Refusal::NoStepping { errno });
        let mut step_fd = StepFd::new(origin).map_err(refused)?;
        self.set_up(Backend::Epoll);
        self.listen();
        // The first step is due.
        step_fd.set_due();
        let mut poll = Poll::new();
        let stepping = Stepping {
            stepper: Stepper::begin(poll.now()),
            progress: self.progress(Duration::ZERO),
            stage: Stage::Runs(Box::new(self)),
            poll,
            wait: None,
            source_polled: false,
            step_fd,
            origin,
        };
        match origin.is_this_process() {
            true => Ok(stepping),
            false => Err(refused(Errno::ECHILD)),
        }
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
            Stage::Closes(outcome, closed) => self.take_closed(outcome, closed),
            Stage::Ended => None,
        }
    }

    /// Returns the outcome while a thread still closes the descriptors. Their close then goes on.
    ///
    /// Public for the C library only; not part of the API.
    #[doc(hidden)]
    pub fn without_close(&mut self) -> Option<Outcome> {
        match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Closes(outcome, _) => Some(self.ended(*outcome)),
            stage => {
                self.stage = stage;
                None
            }
        }
    }

    /// Cancels the transfer: the next step begins to settle it, and the outcome follows
    /// after a few more. A transfer that has already found its end keeps that result, unless its
    /// `fsync(2)` is interrupted (`EINTR`).
    pub fn cancel(&mut self) {
        self.poll.cancel();
        // No other stage needs a step for it: a settlement continues, and a step cannot end the
        // wait for a thread.
        if matches!(self.stage, Stage::Runs(_)) {
            self.step_fd.set_due();
        }
    }

    /// Returns whether a step is possible at once, without an event: after a step that
    /// has moved bytes, and after the end.
    pub fn is_due(&self) -> bool {
        self.step_fd.is_due()
    }

    /// Returns the counts as of the last step.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    fn run(&mut self, mut transfer: Box<Transfer<'a>>) -> Stage<'a> {
        let guard = transfer.needs_guard().then(SignalGuard::start);
        // A panic of an observer or a stage ends the transfer, as on an engine.
        let next = guarded(|| self.advance(&mut transfer))
            .unwrap_or(Some(Next::End(Turn::Failed(None, Some(Errno::ECANCELED)))));
        drop(guard);
        let elapsed = self.poll.now().saturating_sub(self.stepper.start);
        self.progress = transfer.progress(elapsed);
        match next {
            None => {
                if let Some((wait, end)) = &self.wait {
                    let left = end.map(|end| end.saturating_sub(self.poll.now()));
                    self.step_fd.wait(&wait.interest(&transfer), left);
                }
            }
            Some(Next::Wait(wait)) => {
                let now = self.poll.now();
                let end = wait.timeout.and_then(|timeout| now.checked_add(timeout));
                let interest = wait.interest(&transfer);
                self.step_fd.wait(&interest, wait.timeout);
                // The last step may not have taken all that an edge has announced.
                if interest.edge_triggered != [false; 2]
                    && let Ok(found) = self.poll.wait(&interest, Some(Duration::ZERO))
                    && found != Wakeup::default()
                {
                    self.step_fd.set_due();
                }
                self.wait = Some((wait, end));
            }
            Some(Next::Step | Next::Elsewhere) => self.step_fd.set_due(),
            Some(Next::End(turn)) => {
                self.step_fd.set_due();
                let settlement = Settlement::new(*transfer, &turn, self.stepper.start);
                return Stage::Settles(Box::new(settlement));
            }
        }
        Stage::Runs(transfer)
    }

    /// Continues after a wait, and takes one step. `None`: the wait is not over.
    fn advance(&mut self, transfer: &mut Transfer<'_>) -> Option<Next> {
        if self.poll.is_cancelled() {
            return Some(Next::End(Turn::Done(Ended::Cancelled)));
        }
        if let Some((wait, end)) = self.wait.take() {
            let wakeup = match self.found(transfer, &wait) {
                Ok(wakeup) => wakeup,
                // A call of the path then returns `EAGAIN` if it is too early. The kernel
                // returns `EINVAL` only if the descriptor is no epoll instance, or without
                // room for an event (`do_epoll_wait`, fs/eventpoll.c).
                Err(errno)
                    if errno.is_refusal_or_invalid() && transfer.step_checked_readiness(&wait) =>
                {
                    Wakeup {
                        ready: true,
                        open: true,
                        ..Wakeup::default()
                    }
                }
                Err(errno) if errno.is_refusal_or_invalid() => {
                    return Some(Next::End(transfer.cannot_wait(errno)));
                }
                Err(errno) => return Some(Next::End(Turn::Failed(wait.side(), Some(errno)))),
            };
            let is_over =
                self.step_fd.lacks_events() || end.is_some_and(|end| self.poll.now() >= end);
            if wakeup == Wakeup::default() && !is_over {
                self.wait = Some((wait, end));
                return None;
            }
            self.source_polled = wait.found_source(wakeup);
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

    /// Returns what the wait has found. `poll(2)` takes the place of events that the epoll
    /// instance cannot report: a blocking descriptor is not used before it was found ready.
    fn found(&mut self, transfer: &Transfer<'_>, wait: &Wait) -> Result<Wakeup, Errno> {
        let interest = wait.interest(transfer);
        // An edge-triggered event that is not taken keeps the instance readable.
        let is_level = interest.edge_triggered == [false; 2];
        match self.step_fd.events(&interest) {
            Ok(wakeup) if wakeup == Wakeup::default() && self.step_fd.lacks_events() => {
                self.poll.wait(&interest, Some(Duration::ZERO))
            }
            // Bytes that an earlier edge has announced. If poll(2) is refused, there are only edges.
            Ok(wakeup) if wakeup == Wakeup::default() && !is_level => {
                Ok((self.poll.wait(&interest, Some(Duration::ZERO))).unwrap_or_default())
            }
            Err(errno) if errno.is_refusal_or_invalid() && is_level => {
                (self.poll.wait(&interest, Some(Duration::ZERO))).map_err(|_| errno)
            }
            found => found,
        }
    }

    /// Takes one turn of the settlement. A panic of a stage ends the transfer, as on an engine.
    fn settle(&mut self, mut settlement: Box<Settlement<'a>>) -> Option<Outcome> {
        let guard = settlement.transfer().needs_guard().then(SignalGuard::start);
        let settled = guarded(|| settlement.advance(&mut self.poll, false));
        drop(guard);
        match settled {
            Some(Settled::Again) => self.step_fd.set_due(),
            Some(Settled::Wait(wait)) => {
                // The settlement takes no notice of the control any more.
                let interest = Interest {
                    wake: None,
                    ..wait.interest(settlement.transfer())
                };
                self.step_fd.wait(&interest, wait.timeout);
            }
            Some(Settled::Done) => return self.finish(*settlement),
            None => {
                self.leave(&settlement);
                guarded(|| drop(settlement));
                return Some(self.lost());
            }
        }
        self.stage = Stage::Settles(settlement);
        None
    }

    fn finish(&mut self, settlement: Settlement<'a>) -> Option<Outcome> {
        self.leave(&settlement);
        let finished = guarded(|| {
            let (outcome, open) = settlement.finish(&mut self.poll);
            (outcome, open.close_may_linger(), open.release(false))
        });
        let outcome = match finished {
            Some((outcome, true, Some(owned))) => return self.close(outcome, owned),
            Some((mut outcome, _, owned)) => {
                outcome.report.closed(owned.map_or(Ok(()), Owned::close));
                outcome
            }
            None => self.lost(),
        };
        Some(self.ended(outcome))
    }

    /// Closes the descriptors on another thread. If none is available, on this one.
    fn close(&mut self, outcome: Outcome, owned: Owned) -> Option<Outcome> {
        let closed = Closed::default();
        let (due, result) = (self.step_fd.wait_for_thread(), Arc::clone(&closed));
        threads::call(move || {
            let done = owned.close();
            if let Some(mut result) = result.lock() {
                *result = Some(done);
            }
            if let Some(due) = due {
                due.signal();
            }
        });
        self.take_closed(Box::new(outcome), closed)
    }

    /// Returns the outcome if the descriptors are closed.
    fn take_closed(&mut self, mut outcome: Box<Outcome>, closed: Closed) -> Option<Outcome> {
        let done = closed.lock().and_then(|mut result| result.take());
        let Some(done) = done else {
            self.stage = Stage::Closes(outcome, closed);
            return None;
        };
        outcome.report.closed(done);
        Some(self.ended(*outcome))
    }

    fn ended(&mut self, outcome: Outcome) -> Outcome {
        self.step_fd.set_due();
        let report = &outcome.report;
        self.progress = Progress {
            read: report.read,
            written: report.written,
            dropped: report.dropped,
            elapsed: report.elapsed,
            ..self.progress
        };
        outcome
    }

    /// Removes the descriptors of the transfer, which may be closed then, and notes the last
    /// counts.
    fn leave(&mut self, settlement: &Settlement<'a>) {
        self.step_fd.forget();
        self.step_fd.set_due();
        let elapsed = self.poll.now().saturating_sub(self.stepper.start);
        self.progress = Progress {
            pending_reads: 0,
            pending_writes: 0,
            ..settlement.transfer().progress(elapsed)
        };
    }

    /// Returns the outcome of a transfer that a panic has dropped, with the last counts.
    fn lost(&self) -> Outcome {
        let progress = &self.progress;
        let report = Report {
            read: progress.read,
            written: progress.written,
            dropped: progress.dropped,
            stranded: progress.in_transit(),
            elapsed: progress.elapsed,
            ..Report::nothing(None, Some(Errno::ECANCELED))
        };
        Outcome {
            report,
            stranded: None,
        }
    }
}

impl AsFd for Stepping<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.step_fd.as_fd()
    }
}

impl Drop for Stepping<'_> {
    fn drop(&mut self) {
        let cancelled = Turn::Done(Ended::Cancelled);
        let stage = std::mem::replace(&mut self.stage, Stage::Ended);
        if !self.origin.is_this_process() {
            // In a child of fork(2) the transfer belongs to the parent. A thread of the parent
            // may have held a lock of a direct copy, and a stage may wait for its own threads.
            // The child may have closed its copies and opened files with the same numbers.
            self.step_fd.drop_without_close();
            return std::mem::forget(stage);
        }
        // The caller's handlers see no signal that the library raises.
        let _guard = SignalGuard::start();
        let is_here = self.origin.has_descriptors();
        match is_here {
            // Before the descriptors are closed: a registration stays while a child of fork(2) has
            // copies.
            true => self.step_fd.forget(),
            false => self.step_fd.drop_without_close(),
        }
        // A stage may panic. While the caller's thread unwinds, a second panic would abort the
        // process.
        guarded(|| match stage {
            Stage::Runs(transfer) if !is_here => transfer.drop_without_close(),
            Stage::Settles(settlement) if !is_here => settlement.drop_without_close(),
            // The bytes to hand back may be in a pipe.
            Stage::Closes(outcome, _) if !is_here => std::mem::forget(outcome.stranded),
            Stage::Runs(transfer) => {
                let start = self.stepper.start;
                let settlement = Settlement::new(*transfer, &cancelled, start);
                drop_closing(settlement.finish(&mut self.poll).1);
            }
            Stage::Settles(mut settlement) => {
                settlement.omit_sync();
                drop_closing(settlement.finish(&mut self.poll).1);
            }
            // A thread closes the descriptors.
            Stage::Closes(..) | Stage::Ended => {}
        });
    }
}

/// Closes the descriptors of a transfer that is settled, on another thread if that may wait for
/// a peer.
fn drop_closing(open: Transfer<'_>) {
    let lingers = open.close_may_linger();
    let Some(owned) = open.release(false) else {
        return;
    };
    let close = move || _ = owned.close();
    match lingers {
        true => threads::call(close),
        false => close(),
    }
}

impl std::fmt::Debug for Stepping<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stepping")
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}
