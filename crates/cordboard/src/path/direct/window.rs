//! The blocks in flight, ordered by offset, and how far the sink is complete.

use std::collections::VecDeque;

use super::block_engine::Outcome;
use crate::sys::SLOTS;

/// The largest number of entries. It includes blocks that have completed
/// behind one that has not, which do not count on a cancellation.
const AHEAD: usize = 4 * SLOTS;

/// One block in flight.
#[derive(Debug, Clone, Copy)]
struct Entry {
    slot: usize,
    length: u64,
    /// `None` while it is being read.
    outcome: Option<Outcome>,
}

/// Blocks complete in any order; the contiguous prefix in the sink counts.
#[derive(Debug, Default)]
pub(super) struct Window {
    entries: VecDeque<Entry>,
    /// A bit for each slot in use.
    slots: u32,
}

impl Window {
    /// Opens a slot for another block of this length, after all others.
    pub(super) fn open(&mut self, length: u64) -> Option<usize> {
        let slot = self.slots.trailing_ones() as usize;
        if slot >= SLOTS || self.entries.len() >= AHEAD {
            return None;
        }
        self.slots |= 1 << slot;
        self.entries.push_back(Entry {
            slot,
            length,
            outcome: None,
        });
        Some(slot)
    }

    /// Removes the block that was opened last: it was not submitted.
    pub(super) fn withdraw(&mut self) {
        if let Some(entry) = self.entries.pop_back() {
            self.slots &= !(1 << entry.slot);
        }
    }

    /// Records a block's outcome. Returns its bytes, if it is written.
    pub(super) fn learn(&mut self, slot: usize, outcome: Outcome) -> u64 {
        let in_flight = |entry: &&mut Entry| {
            entry.slot == slot && !entry.outcome.is_some_and(Outcome::is_final)
        };
        let Some(entry) = self.entries.iter_mut().find(in_flight) else {
            debug_assert!(false, "slot {slot} is not in flight");
            return 0;
        };
        entry.outcome = Some(outcome);
        if outcome.is_final() {
            self.slots &= !(1 << slot);
        }
        if outcome == Outcome::Written {
            entry.length
        } else {
            0
        }
    }

    /// Removes the written blocks at the front, and the written part of the
    /// first that is not; returns their bytes.
    pub(super) fn advance(&mut self) -> u64 {
        let mut bytes = 0;
        while let Some(front) = self.entries.front()
            && front.outcome == Some(Outcome::Written)
        {
            bytes += front.length;
            self.entries.pop_front();
        }
        if let Some(front) = self.entries.front_mut()
            && let Some(Outcome::ShortWrite(written)) = &mut front.outcome
        {
            let written = std::mem::take(written) as u64;
            front.length -= written;
            bytes += written;
        }
        bytes
    }

    /// Returns the first block that failed, and what is left of its length,
    /// once nothing is in flight. Those behind it are dropped.
    pub(super) fn give_up(&mut self) -> Option<(Outcome, u64)> {
        debug_assert!(self.is_idle(), "given up with blocks in flight");
        let first = self.entries.front().map(|e| (e.outcome, e.length));
        self.entries.clear();
        match first {
            Some((Some(outcome), length)) => Some((outcome, length)),
            _ => None,
        }
    }

    /// Whether a block has failed: no others are begun.
    pub(super) fn is_broken(&self) -> bool {
        let broken = |e: &Entry| {
            e.outcome
                .is_some_and(|f| f.is_final() && f != Outcome::Written)
        };
        self.entries.iter().any(broken)
    }

    /// Whether nothing is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.slots == 0
    }

    /// The numbers of blocks being read and being written.
    pub(super) fn pending(&self) -> (u32, u32) {
        let count = |outcome| self.entries.iter().filter(|e| e.outcome == outcome).count() as u32;
        (count(None), count(Some(Outcome::Read)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errno::Errno;

    #[test]
    fn only_the_contiguous_prefix_counts() {
        let mut window = Window::default();
        let slots: Vec<usize> = (1..=4).map(|n| window.open(n).unwrap()).collect();
        assert_eq!(window.pending(), (4, 0));
        window.learn(slots[1], Outcome::Read);
        assert_eq!(window.pending(), (3, 1));
        assert_eq!(window.learn(slots[1], Outcome::Written), 2);
        assert_eq!(window.advance(), 0);
        window.learn(slots[0], Outcome::Written);
        assert_eq!(window.advance(), 3);
        window.learn(slots[3], Outcome::Written);
        assert!(!window.is_broken() && !window.is_idle());
        window.learn(slots[2], Outcome::WriteFailed(Errno::ENOSPC));
        assert!(window.is_broken() && window.is_idle());
        assert_eq!(window.advance(), 0);
        let first = window.give_up();
        assert_eq!(first, Some((Outcome::WriteFailed(Errno::ENOSPC), 3)));
        assert_eq!(window.give_up(), None);
    }

    /// A short write counts once all before it is written, and only once.
    #[test]
    fn what_is_written_of_a_block_counts() {
        let mut window = Window::default();
        let slots: Vec<usize> = (0..3).map(|_| window.open(10).unwrap()).collect();
        window.learn(slots[1], Outcome::ShortWrite(7));
        assert_eq!(window.advance(), 0);
        window.learn(slots[0], Outcome::Written);
        assert_eq!((window.advance(), window.advance()), (17, 0));
        assert!(window.is_broken());
        window.learn(slots[2], Outcome::Written);
        assert_eq!(window.advance(), 0);
        assert_eq!(window.give_up(), Some((Outcome::ShortWrite(0), 3)));
    }

    /// A free slot may be reused while the block that had it still waits for
    /// one before it.
    #[test]
    fn slots_are_used_again_in_any_order() {
        let mut window = Window::default();
        let slow = window.open(1).unwrap();
        for _ in 1..AHEAD {
            let fast = window.open(1).unwrap();
            assert_ne!(slow, fast);
            window.learn(fast, Outcome::Read);
            assert_eq!(window.learn(fast, Outcome::Written), 1);
        }
        assert_eq!((window.advance(), window.open(1)), (0, None));
        window.learn(slow, Outcome::Written);
        assert_eq!(window.advance(), AHEAD as u64);
        let all: Vec<usize> = std::iter::from_fn(|| window.open(1)).collect();
        assert_eq!(all.len(), SLOTS);
        window.withdraw();
        assert!(window.open(1).is_some());
    }
}
