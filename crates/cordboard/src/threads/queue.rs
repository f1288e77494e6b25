//! Work for a few threads, which are started when there is some and leave when
//! there has been none for a while. `crates/model` tries the orders.

use std::collections::VecDeque;
use std::time::Duration;

use super::sync::{Condvar, Mutex, MutexGuard};

/// First in, first out.
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    work: Condvar,
}

struct State<T> {
    items: VecDeque<T>,
    /// Threads that wait for work.
    idle: usize,
    /// Threads there are, or that are being started.
    threads: usize,
    most: usize,
    closed: bool,
}

/// What becomes of work that was pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// A thread will come to it.
    Queued,
    /// Another thread is wanted; it counts as started.
    StartOne,
}

impl<T> Queue<T> {
    /// For at most so many threads.
    pub(crate) fn new(most: usize) -> Queue<T> {
        Queue {
            state: Mutex::new(State {
                items: VecDeque::new(),
                idle: 0,
                threads: 0,
                most: most.max(1),
                closed: false,
            }),
            work: Condvar::new(),
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
        if state.items.len() > state.idle && state.threads < state.most {
            state.threads += 1;
            return Ok(Pushed::StartOne);
        }
        drop(state);
        self.work.notify_one();
        Ok(Pushed::Queued)
    }

    /// The thread that was wanted could not be started. Gives back all there is
    /// to do if there is no other.
    pub(crate) fn not_started(&self) -> VecDeque<T> {
        let mut state = self.lock();
        state.threads -= 1;
        if state.threads == 0 {
            return std::mem::take(&mut state.items);
        }
        drop(state);
        self.work.notify_one();
        VecDeque::new()
    }

    /// The next piece of work. `None`: the thread is to leave, because there
    /// was none for so long or will be no more.
    pub(crate) fn next(&self, patience: Duration) -> Option<T> {
        let mut state = self.lock();
        let mut waited = false;
        loop {
            if let Some(item) = state.items.pop_front() {
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
    /// the same again, if nobody waits.
    pub(crate) fn trade(&self, item: T) -> T {
        let mut state = self.lock();
        match state.items.pop_front() {
            Some(other) => {
                state.items.push_back(item);
                other
            }
            None => item,
        }
    }

    /// No more work: threads leave once they have done what there is.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.work.notify_all();
    }
}
