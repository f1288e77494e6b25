//! The end of one transfer, told in every way that somebody may have asked
//! for, once: to a thread that waits, a future's waker, callbacks, a
//! descriptor.
//!
//! Everything is under one lock that is held for a few instructions and never
//! while somebody else's code runs, so that each order of "it ends" and "I want
//! to know" comes to the same. `crates/model` tries the orders.

use std::sync::OnceLock;
use std::task::Waker;
use std::time::Duration;

use super::sync::{AtomicBool, Errno, Event, EventFd, Mutex, MutexGuard, Ordering, guarded};

/// What an end has to tell again and again, after it was taken once.
pub(crate) trait Ending {
    type Report: Clone;

    fn report(&self) -> &Self::Report;
}

type Callback<R> = Box<dyn FnOnce(&R) + Send>;

/// The end of one transfer, which may yet be to come.
pub(crate) struct Completion<O: Ending> {
    state: Mutex<State<O>>,
    ended: Event,
    /// Made when somebody first asks for it.
    eventfd: OnceLock<EventFd>,
    cancelled: AtomicBool,
}

struct State<O: Ending> {
    phase: Phase<O>,
    waker: Option<Waker>,
    callbacks: Vec<Callback<O::Report>>,
}

/// What there is only at the end is not kept room for before it: there may be
/// thousands that are idle.
enum Phase<O: Ending> {
    Running,
    Ended(Box<O>),
    /// Somebody has it; this much is kept.
    Taken(Box<O::Report>),
}

/// What is there of an end.
pub(crate) enum Taken<O: Ending> {
    Whole(O),
    /// It was taken before.
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
            eventfd: OnceLock::new(),
            cancelled: AtomicBool::new(false),
        }
    }

    /// A panic of somebody's callback does not happen under this lock.
    fn lock(&self) -> MutexGuard<'_, State<O>> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Asks whoever runs it to end it. True for the first to ask.
    pub(crate) fn cancel(&self) -> bool {
        !self.cancelled.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// It has ended, like this. Called once, by whoever ran it.
    pub(crate) fn end(&self, outcome: O) {
        let outcome = Box::new(outcome);
        let mut state = self.lock();
        // Callbacks first: after them somebody else has the outcome. One that
        // is added meanwhile has its turn too.
        while !state.callbacks.is_empty() {
            let callbacks = std::mem::take(&mut state.callbacks);
            drop(state);
            for callback in callbacks {
                let _ = guarded(|| callback(outcome.report()));
            }
            state = self.lock();
        }
        state.phase = Phase::Ended(outcome);
        let waker = state.waker.take();
        if let Some(eventfd) = self.eventfd.get() {
            eventfd.signal();
        }
        drop(state);
        // Not under the lock: a thread that wakes up may want it next.
        self.ended.happen();
        if let Some(waker) = waker {
            let _ = guarded(|| waker.wake());
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        !matches!(self.lock().phase, Phase::Running)
    }

    /// The end, if it has come and nobody has taken it.
    pub(crate) fn try_take(&self) -> Option<O> {
        match take(&mut self.lock()) {
            Some(Taken::Whole(outcome)) => Some(outcome),
            _ => None,
        }
    }

    /// The end, if it has come.
    pub(crate) fn taken(&self) -> Option<Taken<O>> {
        take(&mut self.lock())
    }

    /// Waits for the end, and leaves it to be taken. `most` says before
    /// each sleep how long that may be; it is asked again after a signal's
    /// handler. `false`: it has said `None`. No lock is taken.
    pub(crate) fn wait_for_end(&self, mut most: impl FnMut() -> Option<Duration>) -> bool {
        loop {
            // Before both looks: what happens after them, a fork too, is not
            // slept through.
            let mark = self.ended.mark();
            if self.ended.has_happened() {
                return true;
            }
            let Some(most) = most() else { return false };
            self.ended.sleep(mark, most);
        }
    }

    /// The end, or a promise to wake this task when it comes. The waker is
    /// cloned and dropped without the lock: both are the executor's code, which
    /// may ask for the status.
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
        // It may have ended since, and then no waker is called any more.
        let taken = take(&mut state);
        if taken.is_none() {
            // The one before may be a task that is no longer interested.
            std::mem::swap(&mut state.waker, &mut fresh);
        }
        drop(state);
        drop(fresh);
        taken
    }

    /// Calls this at the end: on the thread that ended it, before anybody else
    /// is told; at once and here, where it has ended.
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

    /// What is readable once it has ended. `may` says whether the calling thread
    /// can make it so that the engine's threads can ring it.
    pub(crate) fn eventfd(
        &self,
        may: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<&EventFd, Errno> {
        let state = self.lock();
        if let Some(eventfd) = self.eventfd.get() {
            return Ok(eventfd);
        }
        may()?;
        // The program has its number, and may close it with all others.
        let eventfd = EventFd::distinct()?;
        if !matches!(state.phase, Phase::Running) {
            eventfd.signal();
        }
        // Set under the lock only, so never twice.
        Ok(self.eventfd.get_or_init(|| eventfd))
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
