//! Holds a thread's state while the thread is in a step that may block, or
//! sleeps on descriptors, so that a watchdog thread can take the state over.
//! `crates/model` tries the interleavings.

use std::time::Duration;

use super::sync::{Condvar, Mutex, MutexGuard};

/// The state of one thread, which a watchdog monitors.
pub(crate) struct Takeover<T> {
    state: Mutex<State<T>>,
    watchdog: Condvar,
}

struct State<T> {
    /// The thread's state, present for the length of a step or of a sleep.
    held: Option<T>,
    /// The thread sleeps.
    sleeping: bool,
    /// Steps and sleeps that have begun.
    steps: u64,
    /// Another thread has noticed that the sleeping thread's descriptors are
    /// closed.
    recheck: bool,
    /// No step has begun since the watchdog's last check, and it sleeps: the
    /// next step wakes it.
    watchdog_asleep: bool,
    closed: bool,
}

/// The state that the watchdog takes over.
pub(crate) enum TakenOver<T> {
    /// Of a thread that is blocked in a step.
    Blocked(T),
    /// Of a thread that sleeps and can no longer be woken.
    Unwakeable(T),
}

/// One step, or sleep, of the thread that owned the state when it began.
struct Step(u64);

impl<T> State<T> {
    fn begin(&mut self, value: T, sleeping: bool) -> Step {
        self.held = Some(value);
        self.sleeping = sleeping;
        self.steps = self.steps.wrapping_add(1);
        Step(self.steps)
    }
}

impl<T> Takeover<T> {
    pub(crate) fn new() -> Takeover<T> {
        Takeover {
            state: Mutex::new(State {
                held: None,
                sleeping: false,
                steps: 0,
                recheck: false,
                watchdog_asleep: false,
                closed: false,
            }),
            watchdog: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Stores the state while `f` runs, which may block this thread. `Err`: another
    /// thread has taken the state over.
    pub(crate) fn step<R>(&self, value: T, f: impl FnOnce() -> R) -> Result<(T, R), R> {
        let step = self.begin_step(value);
        let result = f();
        match self.reclaim(step) {
            Some(value) => Ok((value, result)),
            None => Err(result),
        }
    }

    /// Stores the state while `f` sleeps, for any length of time. `None`: another
    /// thread has taken the state over.
    pub(crate) fn sleep<R>(&self, value: T, f: impl FnOnce() -> R) -> Option<(T, R)> {
        let step = self.lock().begin(value, true);
        let result = f();
        Some((self.reclaim(step)?, result))
    }

    fn begin_step(&self, value: T) -> Step {
        let mut state = self.lock();
        let step = state.begin(value, false);
        let wakes = std::mem::take(&mut state.watchdog_asleep);
        drop(state);
        if wakes {
            self.watchdog.notify_one();
        }
        step
    }

    /// Ends a step, or a sleep. `None`: another thread has taken the state over, and
    /// may have stored it for a step of its own.
    fn reclaim(&self, step: Step) -> Option<T> {
        let mut state = self.lock();
        match state.steps == step.0 {
            true => state.held.take(),
            false => None,
        }
    }

    /// Makes the watchdog check whether the sleeping thread can still be woken.
    pub(crate) fn recheck(&self) {
        let mut state = self.lock();
        (state.recheck, state.watchdog_asleep) = (true, false);
        drop(state);
        self.watchdog.notify_one();
    }

    /// The watchdog's loop: checks every `interval` while steps begin. Returns
    /// the state of a step that lasts longer than that and `is_blocked`, or of a
    /// sleeping thread that nothing can wake (`cannot_wake`); `None` after
    /// [`Takeover::close`].
    pub(crate) fn watch(
        &self,
        interval: Duration,
        is_blocked: impl Fn() -> bool,
        cannot_wake: impl Fn() -> bool,
    ) -> Option<TakenOver<T>> {
        let mut seen = None;
        let mut state = self.lock();
        while !state.closed {
            if std::mem::take(&mut state.recheck) {
                drop(state);
                let cannot_wake = cannot_wake();
                state = self.lock();
                if cannot_wake
                    && state.sleeping
                    && let Some(held) = state.held.take()
                {
                    return Some(TakenOver::Unwakeable(held));
                }
                continue;
            }
            let no_new_step = seen.replace(state.steps) == Some(state.steps);
            if no_new_step && (state.held.is_none() || state.sleeping) {
                state.watchdog_asleep = true;
                while state.watchdog_asleep && !state.closed {
                    state = (self.watchdog.wait(state))
                        .unwrap_or_else(std::sync::PoisonError::into_inner);
                }
                continue;
            }
            if no_new_step {
                let step = state.steps;
                drop(state);
                let is_blocked = is_blocked();
                state = self.lock();
                if is_blocked
                    && state.steps == step
                    && let Some(held) = state.held.take()
                {
                    return Some(TakenOver::Blocked(held));
                }
            }
            if state.closed {
                break;
            }
            (state, _) = (self.watchdog.wait_timeout(state, interval))
                .unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        None
    }

    /// Ends the watchdog's loop.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.watchdog.notify_all();
    }
}
