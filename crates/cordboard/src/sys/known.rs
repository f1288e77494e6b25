//! Numbers that are determined once per process.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A number that is determined at its first use, without a lock. Concurrent
/// threads each determine it, so a child of `fork(2)` never waits for a thread
/// that it does not have.
pub(crate) struct Known(AtomicUsize);

impl Known {
    const NOT_YET: usize = usize::MAX;

    /// Makes a number that is not yet known.
    pub(crate) const fn not_yet() -> Known {
        Known(AtomicUsize::new(Known::NOT_YET))
    }

    /// Returns the number. `usize::MAX` is not stored, but determined each
    /// time.
    pub(crate) fn get(&self, find: impl FnOnce() -> usize) -> usize {
        match self.0.load(Ordering::Relaxed) {
            Known::NOT_YET => {
                let found = find();
                self.0.store(found, Ordering::Relaxed);
                found
            }
            known => known,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_determined_once() {
        let number = Known::not_yet();
        assert_eq!([number.get(|| 7), number.get(|| 8)], [7, 7]);
    }

    /// As in a child, which does not have the other thread.
    #[test]
    fn no_thread_waits_for_another_that_determines_it() {
        let number = Known::not_yet();
        assert_eq!(number.get(|| number.get(|| 7)), 7);
    }
}
