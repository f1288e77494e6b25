//! Work for a few threads, which are started when there is some and leave when
//! there has been none for a while. `crates/model` tries the orders.
//!
//! A piece of work can block in the kernel without limit. While work waits that
//! no thread takes, a monitor thread checks the queue periodically. If nothing
//! was taken since its last check, all threads count as blocked, and one more
//! is started. A thread that returns later leaves, since another has taken its
//! place.

use std::collections::VecDeque;
use std::time::Duration;

use super::sync::{Condvar, Mutex, MutexGuard};

/// Threads beyond the usual number, at most: each is blocked in the kernel, and
/// costs some 20 KB.
const SURPLUS: usize = 4096;
/// The monitor's interval grows to this many times the usual one, if work is
/// slow and not blocked.
const PATIENT: u32 = 16;

/// First in, first out.
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    work: Condvar,
    /// For the monitor.
    waits: Condvar,
}

struct State<T> {
    items: VecDeque<T>,
    /// Threads that wait for work.
    idle: usize,
    /// Threads there are, or that are being started.
    threads: usize,
    most: usize,
    closed: bool,
    monitor: Monitor,
    /// Pieces of work that were taken so far.
    taken: u64,
    /// Threads that were started because all others were blocked.
    growths: u64,
    /// How long nothing may be taken, in multiples of the usual interval.
    patience: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Monitor {
    None,
    Asleep,
    Awake,
}

/// What becomes of work that was pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// A thread will come to it.
    Queued,
    /// Another thread is wanted; it counts as started.
    StartOne,
    /// It waits for the existing threads, and the monitor is wanted, which
    /// counts as started.
    Oversee,
}

/// What a thread knows of the piece of work that it took last: the number of
/// growths at that time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Since(Option<u64>);

impl<T> Queue<T> {
    /// For at most so many threads, not counting blocked ones.
    pub(crate) fn new(most: usize) -> Queue<T> {
        Queue {
            state: Mutex::new(State {
                items: VecDeque::new(),
                idle: 0,
                threads: 0,
                most: most.max(1),
                closed: false,
                monitor: Monitor::None,
                taken: 0,
                growths: 0,
                patience: 1,
            }),
            work: Condvar::new(),
            waits: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Puts work at the end. Gives it back if the queue is closed.
    pub(crate) fn push(&self, item: T) -> Result<Pushed, T> {
        let mut state = self.lock();
        if state.closed {
            return Err(item);
        }
        state.items.push_back(item);
        if state.items.len() > state.idle {
            if state.threads < state.most {
                state.threads += 1;
                return Ok(Pushed::StartOne);
            }
            if state.monitor == Monitor::None {
                state.monitor = Monitor::Awake;
                return Ok(Pushed::Oversee);
            }
            state.wake_monitor(&self.waits);
        }
        drop(state);
        self.work.notify_one();
        Ok(Pushed::Queued)
    }

    /// The thread that was wanted could not be started. Gives back all there is
    /// to do if there is no other. The others may be blocked, and the monitor
    /// asks for one again.
    pub(crate) fn not_started(&self) -> VecDeque<T> {
        let mut state = self.lock();
        state.threads -= 1;
        if state.threads == 0 {
            return std::mem::take(&mut state.items);
        }
        state.wake_monitor(&self.waits);
        drop(state);
        self.work.notify_one();
        VecDeque::new()
    }

    /// The monitor could not be started: the next work that waits asks for it
    /// again.
    pub(crate) fn not_overseen(&self) {
        self.lock().monitor = Monitor::None;
    }

    /// The monitor's loop: true whenever another thread is wanted, which counts
    /// as started; false once the monitor is to leave, because nothing has
    /// waited for `linger` or the queue is closed.
    pub(crate) fn oversee(&self, look: Duration, linger: Duration) -> bool {
        let mut state = self.lock();
        while !state.closed {
            if state.items.is_empty() {
                state.monitor = Monitor::Asleep;
                state.patience = 1;
                let (after, timeout) = (self.waits.wait_timeout(state, linger))
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                state = after;
                if timeout.timed_out() && state.monitor == Monitor::Asleep {
                    break;
                }
                continue;
            }
            state.monitor = Monitor::Awake;
            let (taken, time) = (state.taken, look * state.patience);
            let (after, _) = (self.waits.wait_timeout(state, time))
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            state = after;
            let held_up = state.items.len() > state.idle && state.taken == taken;
            if held_up && !state.closed && state.threads < state.most + SURPLUS {
                state.threads += 1;
                state.growths += 1;
                return true;
            }
        }
        state.monitor = Monitor::None;
        false
    }

    /// The next piece of work, after one that was taken `since`. `None`: the
    /// thread is to leave, because there was none for so long or will be no
    /// more, or because another one has taken its place.
    pub(crate) fn next(&self, patience: Duration, since: &mut Since) -> Option<T> {
        let mut state = self.lock();
        if state.was_replaced(since) {
            state.threads -= 1;
            return None;
        }
        let mut waited = false;
        loop {
            if let Some(item) = state.items.pop_front() {
                state.taken += 1;
                *since = Since(Some(state.growths));
                return Some(item);
            }
            if state.closed || waited {
                state.threads -= 1;
                return None;
            }
            state.idle += 1;
            let (after, timeout) = (self.work.wait_timeout(state, patience))
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            state = after;
            state.idle -= 1;
            waited = timeout.timed_out();
        }
    }

    /// Puts work at the end of the queue, and takes the first; the same work
    /// again, if the queue is empty. `None`: the thread is to leave, because
    /// another one has taken its place, and a thread will come to the work.
    pub(crate) fn trade(&self, item: T, since: &mut Since) -> Option<T> {
        let mut state = self.lock();
        if state.items.is_empty() {
            return Some(item);
        }
        state.items.push_back(item);
        let comes = state.items.len() <= state.idle || state.monitor != Monitor::None;
        if state.was_replaced(since) && comes {
            state.threads -= 1;
            if state.items.len() > state.idle {
                state.wake_monitor(&self.waits);
            }
            drop(state);
            self.work.notify_one();
            return None;
        }
        state.taken += 1;
        *since = Since(Some(state.growths));
        state.items.pop_front()
    }

    #[cfg(test)]
    #[allow(dead_code, reason = "the model has no use for it")]
    pub(super) fn is_overseen_asleep(&self) -> bool {
        self.lock().monitor == Monitor::Asleep
    }

    /// As if one more thread waited, which is slow to wake up.
    #[cfg(test)]
    #[allow(dead_code, reason = "the model has no use for it")]
    pub(super) fn has_a_slow_one(&self) {
        self.lock().idle += 1;
    }

    /// No more work: threads leave once they have done what there is.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.work.notify_all();
        self.waits.notify_all();
    }
}

impl<T> State<T> {
    fn wake_monitor(&mut self, waits: &Condvar) {
        if self.monitor == Monitor::Asleep {
            self.monitor = Monitor::Awake;
            waits.notify_one();
        }
    }

    /// Another thread was started because this one and all others were blocked.
    /// If this one returns after all, its work was slow, not blocked.
    fn was_replaced(&mut self, since: &Since) -> bool {
        let grown = since.0.is_some_and(|since| self.growths > since);
        let replaced = grown && self.threads > self.most;
        if replaced {
            self.patience = (2 * self.patience).min(PATIENT);
        }
        replaced
    }
}
