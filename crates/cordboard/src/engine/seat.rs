//! Holds a thread's state while the thread is in a step that may block, or
//! sleeps on descriptors, so that another thread, the watch, can take the state
//! over. `crates/model` tries the interleavings.

use std::time::Duration;

use super::sync::{Condvar, Mutex, MutexGuard};

/// The state of one thread, which a second thread watches.
pub(crate) struct Seat<T> {
    state: Mutex<State<T>>,
    watch: Condvar,
}

struct State<T> {
    /// The state, here for the length of a step or of a sleep.
    left: Option<T>,
    /// It is a sleep.
    rests: bool,
    /// Steps and sleeps that have begun.
    steps: u64,
    /// Another thread has noticed that the sleeping thread's descriptors are
    /// gone.
    doubted: bool,
    /// No step has begun since the watch's last check, and it sleeps: the next
    /// step wakes it.
    asleep: bool,
    closed: bool,
}

/// What the watch takes over.
pub(crate) enum Left<T> {
    /// Of a thread that is blocked in a step.
    HeldUp(T),
    /// Of a thread that sleeps, and that nothing wakes any more.
    Gone(T),
}

/// One step, or sleep, of the thread that owned the state when it began.
#[derive(Debug)]
pub(crate) struct Step(u64);

impl<T> State<T> {
    fn begin(&mut self, charge: T, rests: bool) -> Step {
        self.left = Some(charge);
        self.rests = rests;
        self.steps = self.steps.wrapping_add(1);
        Step(self.steps)
    }
}

impl<T> Seat<T> {
    pub(crate) fn new() -> Seat<T> {
        Seat {
            state: Mutex::new(State {
                left: None,
                rests: false,
                steps: 0,
                doubted: false,
                asleep: false,
                closed: false,
            }),
            watch: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Puts the state here and begins a step, which does not need it.
    pub(crate) fn leave(&self, charge: T) -> Step {
        let mut state = self.lock();
        let step = state.begin(charge, false);
        let wakes = std::mem::take(&mut state.asleep);
        drop(state);
        if wakes {
            self.watch.notify_one();
        }
        step
    }

    /// Puts the state here for a sleep, which may last.
    pub(crate) fn rest(&self, charge: T) -> Step {
        self.lock().begin(charge, true)
    }

    /// Has the watch look whether the sleeping thread can be woken yet.
    pub(crate) fn doubt(&self) {
        let mut state = self.lock();
        (state.doubted, state.asleep) = (true, false);
        drop(state);
        self.watch.notify_one();
    }

    /// Ends the step, or the sleep. `None`: another thread has taken the state
    /// over, and may have put it here for a step of its own.
    pub(crate) fn come_back(&self, step: Step) -> Option<T> {
        let mut state = self.lock();
        match state.steps == step.0 {
            true => state.left.take(),
            false => None,
        }
    }

    /// The watch's loop: checks every `look` while steps begin. Returns the
    /// state of a step that lasts longer than that and is `held_up`, or of a
    /// thread whose sleep has become endless, which is `gone`; `None` once the
    /// seat is closed.
    pub(crate) fn watch(
        &self,
        look: Duration,
        held_up: impl Fn() -> bool,
        gone: impl Fn() -> bool,
    ) -> Option<Left<T>> {
        let mut seen = None;
        let mut state = self.lock();
        while !state.closed {
            if std::mem::take(&mut state.doubted) {
                drop(state);
                let gone = gone();
                state = self.lock();
                if gone
                    && state.rests
                    && let Some(left) = state.left.take()
                {
                    return Some(Left::Gone(left));
                }
                continue;
            }
            let nothing_new = seen.replace(state.steps) == Some(state.steps);
            if nothing_new && (state.left.is_none() || state.rests) {
                state.asleep = true;
                while state.asleep && !state.closed {
                    state =
                        (self.watch.wait(state)).unwrap_or_else(std::sync::PoisonError::into_inner);
                }
                continue;
            }
            if nothing_new {
                let step = state.steps;
                drop(state);
                let held_up = held_up();
                state = self.lock();
                if held_up
                    && state.steps == step
                    && let Some(left) = state.left.take()
                {
                    return Some(Left::HeldUp(left));
                }
            }
            if state.closed {
                break;
            }
            (state, _) = (self.watch.wait_timeout(state, look))
                .unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        None
    }

    /// Ends the watch.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.watch.notify_all();
    }
}
