//! Idle pipes or socket pairs, kept for the next transfer.

use std::sync::MutexGuard;

use super::channel::Channel;
use crate::sys::{Lock, Thread};

/// The maximum number of idle pipes, and of idle socket pairs.
pub(super) const KEPT: usize = 8;

/// Idle channels, each with the thread that returned it.
pub(super) struct Shelf<T>(Lock<Vec<(T, Thread)>>);

impl<T> Default for Shelf<T> {
    fn default() -> Shelf<T> {
        Shelf(Lock::default())
    }
}

impl<T: Channel> Shelf<T> {
    /// Locks the list if no other thread holds the lock: a lock inherited by
    /// fork may never be released, and a new pipe is cheap.
    pub(super) fn lock(&self) -> Option<MutexGuard<'_, Vec<(T, Thread)>>> {
        self.0.try_lock()
    }

    /// Takes an idle channel whose numbers still refer to it, preferably one
    /// that satisfies `best`.
    pub(super) fn take(&self, best: impl Fn(&T) -> bool) -> Option<T> {
        let mut idle = self.lock()?;
        loop {
            let best =
                (idle.iter().position(|(one, _)| best(one))).or_else(|| idle.len().checked_sub(1));
            let (one, thread) = idle.swap_remove(best?);
            if one.is_here() {
                return Some(one);
            }
            if !had_these_descriptors(thread) {
                // It belongs to another thread's table: here its numbers refer
                // to other files.
                idle.insert(0, (one, thread));
                return None;
            }
            // The host has closed descriptors that it did not open
            // (`close_range(2)`).
            one.forget();
        }
    }

    pub(super) fn put(&self, one: T) {
        match self.lock() {
            Some(mut idle) if idle.len() < KEPT => idle.push((one, Thread::this())),
            _ => one.close(),
        }
    }

    /// Closes all idle channels.
    pub(super) fn clear(&self) {
        let all = self.lock().map(|mut idle| std::mem::take(&mut *idle));
        all.into_iter().flatten().for_each(|(one, _)| one.close());
    }
}

/// Whether that thread has, or had, the calling thread's descriptor table. If
/// that thread has exited, true if the calling thread shares the process's
/// table.
fn had_these_descriptors(thread: Thread) -> bool {
    let same = thread.shares_descriptors();
    same.unwrap_or_else(|| Thread::first().shares_descriptors() == Some(true))
}
