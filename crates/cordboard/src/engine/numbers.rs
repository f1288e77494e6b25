//! The numbers of transfers.

use super::slab::INDEX;
use crate::sys::Lock;

/// Allocates transfer numbers. No number is reused; indices are, so that they stay
/// small.
#[derive(Debug, Default)]
pub(super) struct Numbers(Lock<Free>);

#[derive(Debug, Default)]
struct Free {
    /// The next number of each free index.
    numbers: Vec<u64>,
    /// Indices that have been allocated so far.
    used: u64,
}

impl Numbers {
    pub(super) fn take(&self) -> u64 {
        // No lock: in a child of `fork(2)`, which runs no transfer.
        let Some(mut free) = self.0.lock() else {
            return 0;
        };
        free.numbers.pop().unwrap_or_else(|| {
            free.used += 1;
            free.used - 1
        })
    }

    /// Frees the index of an ended transfer.
    pub(super) fn give_back(&self, number: u64) {
        if let Some(mut free) = self.0.lock() {
            free.numbers.push(number + (1 << INDEX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::slab::{Slab, index};
    use super::*;

    #[test]
    fn an_index_is_used_again_and_a_number_is_not() {
        let numbers = Numbers::default();
        let (first, second) = (numbers.take(), numbers.take());
        assert_ne!(index(first), index(second));
        numbers.give_back(first);
        let third = numbers.take();
        assert_eq!(index(first), index(third));
        assert_ne!(first, third);
        assert!(
            third.leading_zeros() >= 2,
            "an event's token needs two more bits"
        );
    }

    #[test]
    fn a_former_number_is_not_found() {
        let (numbers, mut slab) = (Numbers::default(), Slab::default());
        let first = numbers.take();
        slab.put(first, "first");
        assert_eq!(slab.take(first), Some("first"));
        numbers.give_back(first);
        let second = numbers.take();
        slab.put(second, "second");
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.take(first), None);
        assert_eq!(slab.numbers(), [second]);
        assert_eq!(slab.get_mut(second), Some(&mut "second"));
        assert!(!slab.is_empty());
        assert_eq!(slab.drain(), ["second"]);
        assert!(slab.is_empty() && slab.take(second).is_none());
        slab.put(second, "again");
        slab.shrink();
        assert_eq!(slab.take(second), Some("again"));
    }
}
