//! The thread that serves the callers of a service. They must share its descriptor table.

use super::{Event, Lock, Stamp, Thread};

/// A thread that has been started, and is known once it has begun.
#[derive(Debug)]
pub(crate) struct ServedBy {
    thread: Lock<Option<Thread>>,
    begun: Event,
    process: Stamp,
}

impl ServedBy {
    pub(crate) fn new() -> ServedBy {
        ServedBy {
            thread: Lock::default(),
            begun: Event::new(),
            process: Stamp::here(),
        }
    }

    /// Registers the calling thread. The first call of that thread.
    pub(crate) fn begin(&self) {
        if let Some(mut known) = self.thread.lock() {
            *known = Some(Thread::this());
        }
        self.begun.happen();
    }

    /// Waits until the thread, which has been started, has registered itself, and returns
    /// it. `None` in a child of `fork(2)`, which does not have that thread.
    pub(crate) fn thread(&self) -> Option<Thread> {
        let begun = self.begun.has_happened() || self.begun.wait_in(self.process);
        begun.then(|| *self.thread.lock()?).flatten()
    }

    /// Returns the thread if it is known. Does not wait.
    pub(crate) fn known(&self) -> Option<Thread> {
        self.thread.try_lock().and_then(|known| *known)
    }

    /// Returns whether the calling thread has its own descriptor table (`unshare(2)`): its
    /// numbers refer to other files in the serving thread.
    pub(crate) fn has_other_descriptors(&self) -> bool {
        let other = |thread: Thread| thread.shares_descriptors() == Some(false);
        self.thread().is_some_and(other)
    }
}
