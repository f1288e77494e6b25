//! A slab of transfers, indexed by transfer number.

use crate::sys::Lock;

/// The lower bits of a number are an index; the upper bits count how often the
/// index was used before. An engine runs fewer than 2^24 transfers at a time.
const INDEX: u32 = 24;

/// Slots that are kept allocated while the slab is empty.
const KEPT: usize = 256;

fn index(number: u64) -> usize {
    (number & ((1 << INDEX) - 1)) as usize
}

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
        // A child of `fork(2)` runs no transfer.
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

/// Values by number.
#[derive(Debug)]
pub(super) struct Slab<T> {
    slots: Vec<Option<(u64, T)>>,
    count: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab {
            slots: Vec::new(),
            count: 0,
        }
    }
}

impl<T> Slab<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Inserts a value. The slot is free: an index belongs to one number at a time.
    pub(super) fn put(&mut self, number: u64, value: T) {
        let index = index(number);
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        debug_assert!(self.slots[index].is_none(), "the slot is occupied");
        self.slots[index] = Some((number, value));
        self.count += 1;
    }

    pub(super) fn take(&mut self, number: u64) -> Option<T> {
        let slot = self.slots.get_mut(index(number))?;
        let taken = slot.take_if(|(other, _)| *other == number);
        self.count -= usize::from(taken.is_some());
        taken.map(|(_, value)| value)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        match self.slots.get_mut(index(number))? {
            Some((other, value)) if *other == number => Some(value),
            _ => None,
        }
    }

    pub(super) fn numbers(&self) -> Vec<u64> {
        (self.slots.iter().flatten())
            .map(|(number, _)| *number)
            .collect()
    }

    pub(super) fn drain(&mut self) -> Vec<T> {
        self.count = 0;
        let slots = std::mem::take(&mut self.slots).into_iter();
        slots.flatten().map(|(_, value)| value).collect()
    }

    /// Frees the slots if the slab is empty and was large.
    pub(super) fn shrink(&mut self) {
        if self.is_empty() && self.slots.len() > KEPT {
            self.slots = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
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
