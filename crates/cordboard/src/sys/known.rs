//! Numbers that are determined once a process.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A number that is determined at its first use, without a lock: threads that
/// come at the same time each determine it, and a child of `fork(2)` never
/// waits for a thread that it does not have.
pub(crate) struct Known(AtomicUsize);

impl Known {
    const NOT_YET: usize = usize::MAX;

    /// Not yet known.
    pub(crate) const fn not_yet() -> Known {
        Known(AtomicUsize::new(Known::NOT_YET))
    }

    /// The number. The largest one there is, is found out each time.
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
    fn it_is_found_out_once() {
        let number = Known::not_yet();
        assert_eq!([number.get(|| 7), number.get(|| 8)], [7, 7]);
    }

    /// As it may be in a child, which has no such thread.
    #[test]
    fn nobody_waits_for_somebody_who_finds_it_out() {
        let number = Known::not_yet();
        assert_eq!(number.get(|| number.get(|| 7)), 7);
    }
}
