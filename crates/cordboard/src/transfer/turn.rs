//! What a step came to, and what the runner of the transfer does next.

use std::time::Duration;

use super::wait::Interest;
use super::{Control, Transfer};
use crate::endpoint::Side;
use crate::errno::Errno;
use crate::report::Ended;

/// A step as the transfer's runner sees it: hand-overs between paths are over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Turn {
    Moved(u64),
    Blocked(Side),
    /// It is paused, and nothing is in flight.
    Paused,
    /// Wait for [`Transfer::completions`].
    Pending,
    /// The next path is for another of the engine's threads: see
    /// [`ThreadKind`](super::Home).
    Elsewhere,
    Done(Ended),
    Failed(Option<Side>, Option<Errno>),
}

/// What the runner is to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    /// Take another step; others may have their turn first.
    Step,
    /// Wait, and come back with [`Stepper::resume`].
    Wait(Wait),
    /// Take another step on another of the engine's threads.
    Elsewhere,
    /// Settle.
    End(Turn),
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitFor {
    /// This side becoming ready.
    Side(Side),
    /// Time: this side has claimed to be ready too often without being so.
    Backoff(Side),
    /// The kernel, which is at work on the transfer's behalf.
    Completions,
    /// Being resumed.
    Resume,
}

/// One wait of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) target: WaitFor,
    /// It goes on then at the latest. `None`: no need to.
    pub(crate) timeout: Option<Duration>,
}

impl Wait {
    /// The kernel, or the threads that work for a transfer.
    pub(crate) fn completions(transfer: &Transfer<'_>) -> Wait {
        Wait {
            target: WaitFor::Completions,
            timeout: transfer.completion_poll_interval(),
        }
    }

    /// The descriptors that go with it.
    pub(crate) fn interest<'a>(&self, transfer: &'a Transfer<'_>) -> Interest<'a> {
        let flow = &transfer.flow;
        let (ready, watch) = match self.target {
            WaitFor::Side(Side::Sink) => (Some((flow.sink.fd(), true)), false),
            // While the source is silent, a sink that dies must not go unnoticed.
            WaitFor::Side(Side::Source) => {
                (Some((flow.source.fd(), false)), flow.sink_is_watched())
            }
            WaitFor::Backoff(_) | WaitFor::Resume => (None, false),
            WaitFor::Completions => (transfer.completions().map(|fd| (fd, false)), false),
        };
        Interest {
            ready,
            watch: watch.then_some(flow.sink.fd()),
            wake: transfer.control.as_ref().and_then(Control::wake_fd),
            edge_triggered: match self.target {
                WaitFor::Side(Side::Sink) => [flow.sink.ready.doubted, false],
                WaitFor::Side(Side::Source) => {
                    [flow.source.ready.doubted, watch && flow.sink.ready.doubted]
                }
                WaitFor::Backoff(_) | WaitFor::Completions | WaitFor::Resume => [false; 2],
            },
        }
    }

    /// The side whose fault it is if the wait itself fails.
    pub(crate) fn side(&self) -> Option<Side> {
        match self.target {
            WaitFor::Side(side) | WaitFor::Backoff(side) => Some(side),
            WaitFor::Completions | WaitFor::Resume => None,
        }
    }
}
