//! The queue of a pool's work, and the count of its threads. `crates/model`
//! checks its interleavings.
//!
//! A piece of work can block in the kernel without limit. While queued work
//! waits for a thread, a monitor thread checks the queue periodically. If no
//! work was taken since its last check, all threads count as blocked, and one
//! more is started. A thread that returns later exits, since another has taken
//! its place.

use std::collections::VecDeque;
use std::time::Duration;

use super::sync::{Condvar, Mutex, MutexGuard};

/// The maximum number of threads beyond `most`. Each is blocked in the kernel and
/// uses about 20 KB.
const SURPLUS: usize = 4096;
/// The monitor's interval grows to at most this many times the usual one, if
/// work is slow and not blocked.
const MAX_BACKOFF: u32 = 16;

/// A first-in, first-out queue.
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    work: Condvar,
    /// Wakes the monitor.
    waits: Condvar,
}

struct State<T> {
    items: VecDeque<T>,
    /// Threads that wait for work.
    idle: usize,
    /// Threads that run or are being started.
    threads: usize,
    /// Threads that are being started: each of them takes a piece of work.
    starting: usize,
    /// The last thread that was to be started could not be.
    refused: bool,
    /// Threads that wait within their work, for at most a few milliseconds.
    waiting: usize,
    most: usize,
    closed: bool,
    monitor: Monitor,
    /// Pieces of work taken so far.
    taken: u64,
    /// Threads started because all others were blocked.
    growths: u64,
    /// The monitor's interval, in multiples of the usual one.
    backoff: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Monitor {
    None,
    Asleep,
    Awake,
}

/// The next action of the thread that pushed work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// None: a thread will take the work.
    Queued,
    /// Start another thread; it counts as started.
    StartOne,
    /// Start the monitor, which counts as started. The work waits for the
    /// existing threads.
    Oversee,
}

/// The value of `growths` when a thread took its last piece of work.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Since(Option<u64>);

impl<T> Queue<T> {
    /// Makes a queue for at most `most` threads, not counting blocked ones.
    pub(crate) fn new(most: usize) -> Queue<T> {
        Queue {
            state: Mutex::new(State {
                items: VecDeque::new(),
                idle: 0,
                threads: 0,
                starting: 0,
                refused: false,
                waiting: 0,
                most: most.max(1),
                closed: false,
                monitor: Monitor::None,
                taken: 0,
                growths: 0,
                backoff: 1,
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

    /// Appends work. Returns it if the queue is closed.
    pub(crate) fn push(&self, item: T) -> Result<Pushed, T> {
        let mut state = self.lock();
        if state.closed {
            return Err(item);
        }
        state.items.push_back(item);
        if state.items.len() > state.idle {
            let overseen = state.monitor != Monitor::None;
            // Other work waits for a thread that may be blocked. A monitor starts
            // as many threads as that needs.
            let others = !overseen && state.untaken() > 1;
            if state.threads < state.most && !others {
                state.starts_one();
                return Ok(Pushed::StartOne);
            }
            if !overseen {
                state.monitor = Monitor::Awake;
                return Ok(Pushed::Oversee);
            }
            state.wake_monitor(&self.waits);
        }
        drop(state);
        self.work.notify_one();
        Ok(Pushed::Queued)
    }

    /// Counts a thread that waits within its work, if no other work waits for a thread, a
    /// free thread would take further work, and less than half of the threads wait.
    pub(crate) fn begin_wait(&self) -> bool {
        let mut state = self.lock();
        let is_free = state.idle > 0 || state.threads < state.most && !state.refused;
        let may_wait = state.items.is_empty() && is_free && state.waiting < state.most / 2;
        state.waiting += usize::from(may_wait);
        may_wait
    }

    /// Ends a wait.
    pub(crate) fn end_wait(&self) {
        self.lock().waiting -= 1;
    }

    /// Appends the rest of a piece that `take_untaken` returned.
    pub(crate) fn put_back(&self, rest: T) {
        let mut state = self.lock();
        state.items.push_back(rest);
        state.wake_monitor(&self.waits);
        drop(state);
        self.work.notify_one();
    }

    /// Reports that the requested thread could not be started. If there is a
    /// monitor, it requests a thread again. The caller then calls `take_untaken`
    /// until that returns `None`.
    pub(crate) fn not_started(&self) {
        let mut state = self.lock();
        state.threads -= 1;
        state.starting -= 1;
        state.refused = true;
        state.wake_monitor(&self.waits);
        drop(state);
        self.work.notify_one();
    }

    /// Reports that the monitor could not be started. The caller then calls
    /// `take_untaken` until that returns `None`.
    pub(crate) fn not_overseen(&self) {
        self.lock().monitor = Monitor::None;
    }

    /// Whether queued work is without any thread, and none could be started. The
    /// monitor then ends, and calls `take_untaken` until that returns `None`.
    pub(crate) fn ends_overseeing(&self) -> bool {
        let mut state = self.lock();
        let ends = state.threads == 0 && !state.items.is_empty();
        if ends {
            state.monitor = Monitor::None;
        }
        ends
    }

    /// Takes a piece of work that no thread will take: the threads that run may be
    /// blocked, and there is no monitor, or no thread exists. The others stay for a
    /// thread that can be started meanwhile.
    pub(crate) fn take_untaken(&self) -> Option<T> {
        let mut state = self.lock();
        if state.threads > 0 && state.monitor != Monitor::None {
            return None;
        }
        let taken = state.idle + state.starting;
        let item = state.items.remove(taken)?;
        state.taken += 1;
        Some(item)
    }

    /// Whether no thread will take the work, and a monitor is to be started, which
    /// counts as started.
    pub(crate) fn needs_monitor(&self) -> bool {
        let mut state = self.lock();
        let needs = !state.closed && !state.has_takers();
        if needs {
            state.monitor = Monitor::Awake;
        }
        needs
    }

    /// The monitor's loop. Returns true if another thread is needed, which counts
    /// as started; false if the monitor is to exit, because no work has waited
    /// for `linger`, or the queue is closed and threads do the queued work.
    pub(crate) fn oversee(&self, look: Duration, linger: Duration) -> bool {
        let mut state = self.lock();
        while !state.has_closed() {
            if state.items.is_empty() {
                state.monitor = Monitor::Asleep;
                state.backoff = 1;
                let (after, timeout) = (self.waits.wait_timeout(state, linger))
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                state = after;
                if timeout.timed_out() && state.monitor == Monitor::Asleep {
                    break;
                }
                continue;
            }
            state.monitor = Monitor::Awake;
            if state.closed {
                state.starts_one();
                return true;
            }
            let (taken, time) = (state.taken, look * state.backoff);
            let (after, _) = (self.waits.wait_timeout(state, time))
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            state = after;
            let held_up = state.items.len() > state.idle && state.taken == taken;
            if held_up && !state.closed && state.threads < state.most + SURPLUS {
                state.starts_one();
                state.growths += 1;
                return true;
            }
        }
        state.monitor = Monitor::None;
        false
    }

    /// Takes the next piece of work. `since`: the growths at the thread's last
    /// piece. `None`: the thread is to exit, because no work came within
    /// `linger`, the queue is closed, or another thread has taken its place and a
    /// thread will take the work. The first call with a new `since` is the first call of a
    /// thread that was started.
    pub(crate) fn next(&self, linger: Duration, since: &mut Since) -> Option<T> {
        let mut state = self.lock();
        if since.0.is_none() {
            state.starting -= 1;
            state.refused = false;
        }
        if state.was_replaced(since) && state.has_takers() {
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
            let (after, timeout) = (self.work.wait_timeout(state, linger))
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            state = after;
            state.idle -= 1;
            waited = timeout.timed_out();
        }
    }

    /// Appends work, and takes the first piece, which is `item` if the queue is
    /// empty. `None`: the thread is to exit, because another has taken its place
    /// and a thread will take the work.
    pub(crate) fn trade(&self, item: T, since: &mut Since) -> Option<T> {
        let mut state = self.lock();
        if state.items.is_empty() {
            return Some(item);
        }
        state.items.push_back(item);
        if state.was_replaced(since) && state.has_takers() {
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

    /// Counts one more idle thread, which is slow to wake up.
    #[cfg(test)]
    #[allow(dead_code, reason = "the model has no use for it")]
    pub(super) fn has_a_slow_one(&self) {
        self.lock().idle += 1;
    }

    /// Closes the queue: threads exit once the queued work is done.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.work.notify_all();
        self.waits.notify_all();
    }
}

impl<T> State<T> {
    fn starts_one(&mut self) {
        self.threads += 1;
        self.starting += 1;
    }

    /// The number of pieces for which there is no idle or new thread.
    fn untaken(&self) -> usize {
        let taken = self.idle + self.starting;
        self.items.len().saturating_sub(taken)
    }

    /// Whether a thread will take each piece.
    fn has_takers(&self) -> bool {
        self.monitor != Monitor::None || self.untaken() == 0
    }

    /// Whether the queue is closed, and no queued work is without any thread.
    fn has_closed(&self) -> bool {
        self.closed && (self.threads > 0 || self.items.is_empty())
    }

    fn wake_monitor(&mut self, waits: &Condvar) {
        if self.monitor == Monitor::Asleep {
            self.monitor = Monitor::Awake;
            waits.notify_one();
        }
    }

    /// Whether another thread was started because all threads, including this
    /// one, counted as blocked. This one has returned: its work was slow, so the
    /// monitor's interval grows.
    fn was_replaced(&mut self, since: &Since) -> bool {
        let grown = since.0.is_some_and(|since| self.growths > since);
        let replaced = grown && self.threads > self.most;
        if replaced {
            self.backoff = (2 * self.backoff).min(MAX_BACKOFF);
        }
        replaced
    }
}
