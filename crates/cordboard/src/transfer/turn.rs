//! The result of a step, and the next action of the transfer's runner.

use std::time::Duration;

use super::wait::{Interest, Waiter, Wakeup};
use super::{Control, Transfer};
use crate::endpoint::Side;
use crate::errno::Errno;
use crate::report::Ended;

/// A failure of the sink may go unnoticed for this time.
pub(super) const SHORT: Duration = Duration::from_millis(20);

/// The result of a step, for the transfer's runner. The step has already
/// performed any hand-over between paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Turn {
    Moved(u64),
    Blocked(Side),
    /// Nothing may be taken now, and nothing is in flight: the transfer is paused, or
    /// its schedule grants nothing yet.
    HeldBack,
    /// Wait for [`Transfer::completions`].
    Pending,
    /// The next path runs on another of the engine's threads: see
    /// [`ThreadKind`](super::ThreadKind).
    Elsewhere,
    Done(Ended),
    Failed(Option<Side>, Option<Errno>),
}

impl Turn {
    /// Returns whether the transfer ends.
    pub(super) fn is_end(&self) -> bool {
        matches!(self, Turn::Done(_) | Turn::Failed(..))
    }
}

/// The next action of the runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    /// Take another step; other transfers may have their turn first.
    Step,
    /// Wait, then call `Stepper::resume`.
    Wait(Wait),
    /// Take another step on another of the engine's threads.
    Elsewhere,
    /// Settle.
    End(Turn),
}

/// The event that a wait is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitFor {
    /// Readiness of this side.
    Side(Side),
    /// The end of a pause: this side was falsely reported ready too often.
    Backoff(Side),
    /// Completions of operations in flight.
    Completions,
    /// The end of a pause.
    Resume,
    /// The next grant of the schedule.
    Grant,
}

/// One wait of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) target: WaitFor,
    /// The longest wait. `None`: no limit.
    pub(crate) timeout: Option<Duration>,
}

impl Wait {
    /// A wait for completions, of the kernel or of threads that work for a
    /// transfer.
    pub(crate) fn completions(transfer: &Transfer<'_>) -> Wait {
        Wait {
            target: WaitFor::Completions,
            timeout: transfer.completion_poll_interval(),
        }
    }

    /// Returns the descriptors to wait for.
    pub(crate) fn interest<'a>(&self, transfer: &'a Transfer<'_>) -> Interest<'a> {
        let flow = &transfer.flow;
        let (ready, watch) = match self.target {
            WaitFor::Side(Side::Sink) => (Some((flow.sink.fd(), true)), false),
            // While the source is silent, a failure of the sink must not go
            // unnoticed.
            WaitFor::Side(Side::Source) => {
                (Some((flow.source.fd(), false)), flow.sink_is_watched())
            }
            // A failure of the sink must not go unnoticed here either.
            WaitFor::Resume | WaitFor::Grant => (None, flow.sink_is_watched()),
            WaitFor::Backoff(_) => (None, false),
            WaitFor::Completions => (transfer.completions().map(|fd| (fd, false)), false),
        };
        let always_ready = match self.target {
            WaitFor::Side(side) => flow.end(side).facts().polling_waits(),
            _ => false,
        };
        Interest {
            ready,
            always_ready,
            watch: watch.then_some(flow.sink.fd()),
            wake: transfer.control.as_ref().and_then(Control::wake_fd),
            edge_triggered: match self.target {
                WaitFor::Side(Side::Sink) => [flow.sink.ready.error_persists, false],
                WaitFor::Side(Side::Source) => [
                    flow.source.ready.error_persists,
                    watch && flow.sink.ready.error_persists,
                ],
                WaitFor::Resume | WaitFor::Grant => {
                    [false, watch && flow.sink.ready.error_persists]
                }
                WaitFor::Backoff(_) | WaitFor::Completions => [false; 2],
            },
        }
    }

    /// Waits for at most the timeout.
    ///
    /// While a grant is due soon, a pipe as the sink is polled only at the end. A reader that
    /// splices wakes all threads that poll the pipe, whatever they wait for
    /// (`wakeup_pipe_writers`, fs/splice.c), which would double the wakeups of a rate.
    pub(crate) fn take(
        &self,
        transfer: &Transfer<'_>,
        waiter: &mut dyn Waiter,
    ) -> Result<Wakeup, Errno> {
        let interest = self.interest(transfer);
        let is_due = self.timeout.is_some_and(|timeout| timeout <= SHORT);
        let is_pipe = interest.watch.is_some() && transfer.flow.sink.kind().is_pipe();
        let is_known = interest.edge_triggered != [false; 2];
        if self.target != WaitFor::Grant || !is_due || !is_pipe || is_known {
            return waiter.wait(&interest, self.timeout);
        }
        let grant = Interest {
            watch: None,
            ..interest
        };
        match waiter.wait(&grant, self.timeout)? {
            wakeup if wakeup == Wakeup::default() => waiter.wait(&interest, Some(Duration::ZERO)),
            wakeup => Ok(wakeup),
        }
    }

    /// Returns whether the wait has found the source ready, so that the next step need not poll
    /// it first (`Stepper::poll_source_first`).
    pub(crate) fn found_source(&self, wakeup: Wakeup) -> bool {
        wakeup.ready && self.target == WaitFor::Side(Side::Source)
    }

    /// Returns the side that counts as failed if the wait itself fails.
    pub(crate) fn side(&self) -> Option<Side> {
        match self.target {
            WaitFor::Side(side) | WaitFor::Backoff(side) => Some(side),
            WaitFor::Completions | WaitFor::Resume | WaitFor::Grant => None,
        }
    }
}
