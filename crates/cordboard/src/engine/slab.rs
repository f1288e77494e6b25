//! A slab of transfers, indexed by transfer number.

/// The lower bits of a number are an index; the upper bits count how often the
/// index was used before. An engine runs fewer than 2^24 transfers at a time.
pub(crate) const INDEX: u32 = 24;

/// Slots that are kept allocated while the slab is empty.
const KEPT: usize = 256;

pub(crate) fn index(number: u64) -> usize {
    (number & ((1 << INDEX) - 1)) as usize
}

/// Values by number.
#[derive(Debug)]
pub(crate) struct Slab<T> {
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
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Inserts a value. The slot is free: an index belongs to one number at a time.
    pub(crate) fn put(&mut self, number: u64, value: T) {
        let index = index(number);
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        debug_assert!(self.slots[index].is_none(), "the slot is occupied");
        self.slots[index] = Some((number, value));
        self.count += 1;
    }

    pub(crate) fn take(&mut self, number: u64) -> Option<T> {
        let slot = self.slots.get_mut(index(number))?;
        let taken = slot.take_if(|(other, _)| *other == number);
        self.count -= usize::from(taken.is_some());
        taken.map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        match self.slots.get_mut(index(number))? {
            Some((other, value)) if *other == number => Some(value),
            _ => None,
        }
    }

    pub(crate) fn numbers(&self) -> Vec<u64> {
        (self.slots.iter().flatten())
            .map(|(number, _)| *number)
            .collect()
    }

    pub(crate) fn drain(&mut self) -> Vec<T> {
        self.count = 0;
        let slots = std::mem::take(&mut self.slots).into_iter();
        slots.flatten().map(|(_, value)| value).collect()
    }

    /// Frees the slots if the slab is empty and was large.
    pub(crate) fn shrink(&mut self) {
        if self.is_empty() && self.slots.len() > KEPT {
            self.slots = Vec::new();
        }
    }
}
