//! The end of one transfer, reported exactly once: to waiting threads, a future's
//! waker, callbacks and a wake descriptor.
//!
//! One lock protects the state. It is never held while callbacks or wakers run, so every
//! order of an end and a registration has the same result. `crates/model` tries the
//! interleavings.

use std::sync::OnceLock;
use std::task::Waker;
use std::time::Duration;

use super::sync::{AtomicBool, Errno, Event, Mutex, MutexGuard, Ordering, WakeFd, guard_callers};

/// An outcome with a report, which stays available after the outcome is taken.
pub(crate) trait Ending {
    type Report: Clone;

    fn report(&self) -> &Self::Report;
}

type Callback<R> = Box<dyn FnOnce(&R) + Send>;

/// The completion state of one transfer.
pub(crate) struct Completion<O: Ending> {
    state: Mutex<State<O>>,
    ended: Event,
    /// Created on first use.
    wake_fd: OnceLock<WakeFd>,
    cancelled: AtomicBool,
}

struct State<O: Ending> {
    phase: Phase<O>,
    waker: Option<Waker>,
    callbacks: Vec<Callback<O::Report>>,
}

/// The outcome is boxed: there may be thousands of idle transfers.
enum Phase<O: Ending> {
    Running,
    Ended(Box<O>),
    /// The outcome has been taken; the report is kept.
    Taken(Box<O::Report>),
}

/// The result of taking an end.
pub(crate) enum Taken<O: Ending> {
    Whole(O),
    /// The outcome has already been taken.
    Again(O::Report),
}

impl<O: Ending> Completion<O> {
    pub(crate) fn new() -> Completion<O> {
        Completion {
            state: Mutex::new(State {
                phase: Phase::Running,
                waker: None,
                callbacks: Vec::new(),
            }),
            ended: Event::new(),
            wake_fd: OnceLock::new(),
            cancelled: AtomicBool::new(false),
        }
    }

    /// No callback runs under this lock, so none can poison it.
    fn lock(&self) -> MutexGuard<'_, State<O>> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Requests cancellation. Returns true for the first request.
    pub(crate) fn cancel(&self) -> bool {
        !self.cancelled.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Stores the outcome, runs the callbacks and wakes all waiters. Called once,
    /// by the thread that ran the transfer.
    pub(crate) fn end(&self, outcome: O) {
        let outcome = Box::new(outcome);
        let mut state = self.lock();
        // Callbacks first: afterwards another thread may take the outcome. A
        // callback that is added meanwhile also runs.
        while !state.callbacks.is_empty() {
            let callbacks = std::mem::take(&mut state.callbacks);
            drop(state);
            for callback in callbacks {
                let _ = guard_callers(|| callback(outcome.report()));
            }
            state = self.lock();
        }
        state.phase = Phase::Ended(outcome);
        let waker = state.waker.take();
        if let Some(wake_fd) = self.wake_fd.get() {
            wake_fd.signal();
        }
        drop(state);
        // Not under the lock: the woken thread may lock it next.
        self.ended.happen();
        if let Some(waker) = waker {
            let _ = guard_callers(|| waker.wake());
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        !matches!(self.lock().phase, Phase::Running)
    }

    /// Returns the outcome if the transfer has ended and the outcome has not been
    /// taken.
    pub(crate) fn try_take(&self) -> Option<O> {
        match take(&mut self.lock()) {
            Some(Taken::Whole(outcome)) => Some(outcome),
            _ => None,
        }
    }

    /// Takes the outcome, or returns the report if the outcome was taken before.
    /// `None` while the transfer runs.
    pub(crate) fn taken(&self) -> Option<Taken<O>> {
        take(&mut self.lock())
    }

    /// Waits for the end without taking the outcome. Calls `most` before each sleep
    /// for the longest time to sleep, also after a signal handler has ended a
    /// sleep. Returns `false` if `most` returns `None`. Takes no lock.
    pub(crate) fn wait_for_end(&self, mut most: impl FnMut() -> Option<Duration>) -> bool {
        loop {
            // Read before both checks, so that the end, or a fork, after a check
            // ends the sleep.
            let mark = self.ended.mark();
            if self.ended.has_happened() {
                return true;
            }
            let Some(most) = most() else { return false };
            self.ended.sleep(mark, most);
        }
    }

    /// As [`Completion::taken`]; registers the waker if the transfer still runs.
    /// Clones and drops wakers without the lock: both run code of the executor,
    /// which may call `status`.
    pub(crate) fn poll(&self, waker: &Waker) -> Option<Taken<O>> {
        let mut state = self.lock();
        if let Some(taken) = take(&mut state) {
            return Some(taken);
        }
        // Compares two addresses and calls nothing.
        if state.waker.as_ref().is_some_and(|w| w.will_wake(waker)) {
            return None;
        }
        drop(state);
        let mut fresh = Some(waker.clone());
        let mut state = self.lock();
        // The transfer may have ended meanwhile. `end` then calls no waker.
        let taken = take(&mut state);
        if taken.is_none() {
            // The previous waker may belong to a task that has lost interest.
            std::mem::swap(&mut state.waker, &mut fresh);
        }
        drop(state);
        drop(fresh);
        taken
    }

    /// Calls `callback` at the end, on the thread that ended the transfer and
    /// before any other notification; immediately on this thread if it has already
    /// ended.
    pub(crate) fn on_end(&self, callback: Callback<O::Report>) {
        let mut state = self.lock();
        let report = match &state.phase {
            Phase::Running => {
                state.callbacks.push(callback);
                return;
            }
            Phase::Ended(outcome) => outcome.report().clone(),
            Phase::Taken(report) => O::Report::clone(report),
        };
        drop(state);
        callback(&report);
    }

    /// Returns a descriptor that is readable once the transfer has ended. `may`
    /// fails if the engine's threads could not signal a descriptor that this thread
    /// creates.
    pub(crate) fn wake_fd(
        &self,
        may: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<&WakeFd, Errno> {
        let state = self.lock();
        if let Some(wake_fd) = self.wake_fd.get() {
            return Ok(wake_fd);
        }
        may()?;
        // The host learns this number and may close and reuse it: the file must be
        // distinguishable from any other.
        let wake_fd = WakeFd::distinct()?;
        if !matches!(state.phase, Phase::Running) {
            wake_fd.signal();
        }
        // Set under the lock only, so never twice.
        Ok(self.wake_fd.get_or_init(|| wake_fd))
    }
}

/// Takes the outcome out, and keeps the report.
fn take<O: Ending>(state: &mut State<O>) -> Option<Taken<O>> {
    let kept = match &state.phase {
        Phase::Running => return None,
        Phase::Ended(outcome) => Box::new(outcome.report().clone()),
        Phase::Taken(report) => return Some(Taken::Again(O::Report::clone(report))),
    };
    match std::mem::replace(&mut state.phase, Phase::Taken(kept)) {
        Phase::Ended(outcome) => Some(Taken::Whole(*outcome)),
        _ => None,
    }
}
