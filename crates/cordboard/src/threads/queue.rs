//! Work for a few threads, which are started when there is some and leave when
//! there has been none for a while. `crates/model` tries the orders.
//!
//! A piece of work can wait in the kernel for ever. While work waits that no
//! thread comes to, an overseer looks at the queue every so often; where nothing
//! was taken since its last look, all threads are held up, and another one is
//! started beside them. One that comes back later leaves, since another has
//! taken its place.

use std::collections::VecDeque;
use std::time::Duration;

use super::sync::{Condvar, Mutex, MutexGuard};

/// Threads beyond the usual number, at most: each is held up in the kernel, and
/// costs some 20 KB.
const SURPLUS: usize = 4096;
/// The overseer waits for this many times its usual time at most, where work is
/// slow and does not hang.
const PATIENT: u32 = 16;

/// First in, first out.
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    work: Condvar,
    /// For the overseer.
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
    overseer: Overseer,
    /// Pieces of work that were taken so far.
    taken: u64,
    /// Threads that were started because all others were held up.
    growths: u64,
    /// How long nothing may be taken, in times the usual.
    patience: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Overseer {
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
    /// It waits for those that there are, and the overseer is wanted; it counts
    /// as started.
    Oversee,
}

/// What a thread knows of the piece of work that it took last: the number of
/// growths at that time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Since(Option<u64>);

impl<T> Queue<T> {
    /// For at most so many threads, beside those that are held up.
    pub(crate) fn new(most: usize) -> Queue<T> {
        Queue {
            state: Mutex::new(State {
                items: VecDeque::new(),
                idle: 0,
                threads: 0,
                most: most.max(1),
                closed: false,
                overseer: Overseer::None,
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
            if state.overseer == Overseer::None {
                state.overseer = Overseer::Awake;
                return Ok(Pushed::Oversee);
            }
            state.wake_overseer(&self.waits);
        }
        drop(state);
        self.work.notify_one();
        Ok(Pushed::Queued)
    }

    /// The thread that was wanted could not be started. Gives back all there is
    /// to do if there is no other. The others may be held up, and the overseer
    /// wants one again.
    pub(crate) fn not_started(&self) -> VecDeque<T> {
        let mut state = self.lock();
        state.threads -= 1;
        if state.threads == 0 {
            return std::mem::take(&mut state.items);
        }
        state.wake_overseer(&self.waits);
        drop(state);
        self.work.notify_one();
        VecDeque::new()
    }

    /// The overseer that was wanted could not be started: the next that waits
    /// asks for it again.
    pub(crate) fn not_overseen(&self) {
        self.lock().overseer = Overseer::None;
    }

    /// The overseer's life: true whenever another thread is wanted, which counts
    /// as started; false once it is to leave, because nothing has waited for so
    /// long or will any more.
    pub(crate) fn oversee(&self, look: Duration, linger: Duration) -> bool {
        let mut state = self.lock();
        while !state.closed {
            if state.items.is_empty() {
                state.overseer = Overseer::Asleep;
                state.patience = 1;
                let (after, timeout) = (self.waits.wait_timeout(state, linger))
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                state = after;
                if timeout.timed_out() && state.overseer == Overseer::Asleep {
                    break;
                }
                continue;
            }
            state.overseer = Overseer::Awake;
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
        state.overseer = Overseer::None;
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

    /// Puts work back behind what others wait for, and takes the first of that;
    /// the same again, if nobody waits. `None`: the thread is to leave, because
    /// another one has taken its place.
    pub(crate) fn trade(&self, item: T, since: &mut Since) -> Option<T> {
        let mut state = self.lock();
        if state.items.is_empty() {
            return Some(item);
        }
        state.items.push_back(item);
        if state.was_replaced(since) {
            state.threads -= 1;
            return None;
        }
        state.taken += 1;
        *since = Since(Some(state.growths));
        state.items.pop_front()
    }

    #[cfg(test)]
    #[allow(dead_code, reason = "the model has no use for it")]
    pub(super) fn is_overseen_asleep(&self) -> bool {
        self.lock().overseer == Overseer::Asleep
    }

    /// No more work: threads leave once they have done what there is.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.work.notify_all();
        self.waits.notify_all();
    }
}

impl<T> State<T> {
    fn wake_overseer(&mut self, waits: &Condvar) {
        if self.overseer == Overseer::Asleep {
            self.overseer = Overseer::Awake;
            waits.notify_one();
        }
    }

    /// Another thread was started because this one and all others were held up.
    /// Where that is over after all, the work was slow, and did not hang.
    fn was_replaced(&mut self, since: &Since) -> bool {
        let grown = since.0.is_some_and(|since| self.growths > since);
        let replaced = grown && self.threads > self.most;
        if replaced {
            self.patience = (2 * self.patience).min(PATIENT);
        }
        replaced
    }
}
