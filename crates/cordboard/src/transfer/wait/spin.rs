//! Waits for a fast peer on the thread that took the last step.
//!
//! A reader that empties a pipe of 1 MiB needs some 20 µs for it. Going to sleep
//! and being woken takes as long, and then the reader waits in turn: the two
//! alternate instead of working concurrently. So the thread polls a full pipe for a
//! short while before it sleeps, as long as that pays.

use std::time::Duration;

use crate::path::Flow;
use crate::sys::Known;

/// How long it polls: a little longer than a reader takes for a pipe full of pages
/// that it does not copy.
pub(crate) const SPIN_TIME: Duration = Duration::from_micros(40);
/// Consecutive failures after which a peer counts as slow …
const FAILURES: u32 = 4;
/// … and the number of waits between two trials with a slow peer.
const TRY_AGAIN: u32 = 64;

/// Whether waiting for a short time has paid so far.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Trials {
    failures: u32,
    waits: u32,
}

impl Trials {
    /// Returns whether this wait is a trial.
    pub(crate) fn is_due(&mut self) -> bool {
        self.waits = self.waits.wrapping_add(1);
        self.failures < FAILURES || self.waits.is_multiple_of(TRY_AGAIN)
    }

    /// Records whether the peer became ready.
    pub(crate) fn record(&mut self, ready: bool) {
        self.failures = if ready {
            0
        } else {
            self.failures.saturating_add(1)
        };
    }
}

/// Whether spinning has paid so far.
#[derive(Debug, Default)]
pub(crate) struct Spin(Trials);

impl Spin {
    /// Returns whether to spin: from a file, which is always ready, to a pipe,
    /// whose reader runs on another processor.
    pub(crate) fn should_spin(&mut self, flow: &Flow<'_>) -> bool {
        let pays = flow.sink.kind().is_pipe() && flow.source.kind().is_cached();
        pays && several_processors() && self.0.is_due()
    }

    /// Records whether the sink became ready.
    pub(crate) fn record(&mut self, ready: bool) {
        self.0.record(ready);
    }
}

fn several_processors() -> bool {
    static PROCESSORS: Known = Known::not_yet();
    PROCESSORS.get(|| std::thread::available_parallelism().map_or(1, usize::from)) > 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Request, Size, Transfer};
    use std::os::fd::AsFd;

    #[test]
    fn spinning_stops_for_a_slow_reader_and_is_tried_again() {
        let source = tempfile::tempfile().unwrap();
        let (_reader, sink) = std::io::pipe().unwrap();
        let request = Request {
            size: Size::Bytes(1),
            ..Request::default()
        };
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        let mut spin = Spin::default();
        if !spin.should_spin(&transfer.flow) {
            assert!(!several_processors());
            return;
        }
        for _ in 0..FAILURES {
            spin.record(false);
        }
        let tries = (0..TRY_AGAIN).filter(|_| spin.should_spin(&transfer.flow));
        assert_eq!(tries.count(), 1);
        spin.record(true);
        assert!(spin.should_spin(&transfer.flow));
    }
}
