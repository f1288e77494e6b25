//! The present rate of the best setting, and whether it has changed.

use crate::tune::record::{CHANGED, MEMORY, Record};
use crate::tune::window::Sample;

/// After this number of consecutive samples that differ from the level, it has changed.
const IN_A_ROW: u32 = 3;
/// The samples of a level before another setting is measured. Its variation follows from at least
/// two.
pub(super) const USUAL: u64 = 2;

/// The windows with the best setting.
#[derive(Debug, Clone, Copy)]
pub(super) struct Level {
    record: Record,
    /// The samples of it before another setting is measured.
    wanted: u64,
    /// The first mean of [`MEMORY`] samples.
    first: Option<u64>,
    /// The numbers of consecutive samples that were much slower, or much faster, than the mean.
    slow: u32,
    fast: u32,
}

/// A change of the level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    No,
    /// One sample differs, which does not count.
    Perhaps,
    /// It was this rate before.
    From(u64),
}

impl Level {
    /// Returns a level without samples.
    pub(super) fn of(wanted: u64) -> Level {
        Level {
            record: Record::default(),
            wanted,
            first: None,
            slow: 0,
            fast: 0,
        }
    }

    pub(super) fn record(&self) -> &Record {
        &self.record
    }

    pub(super) fn rate(&self) -> u64 {
        self.record.rate()
    }

    /// Sets the number of samples before another setting is measured.
    pub(super) fn want(&mut self, samples: u64) {
        self.wanted = samples;
    }

    /// Returns whether it has enough samples.
    pub(super) fn is_known(&self) -> bool {
        self.record.samples() >= self.wanted
    }

    /// Compares a sample with the mean, before it is added.
    pub(super) fn compare(&mut self, sample: Sample) -> Change {
        if self.record.samples() < 2 {
            return Change::No;
        }
        let is_other = self.record.differs(sample.rate);
        let is_slow = is_other && sample.rate < self.rate();
        let is_fast = is_other && sample.rate > self.rate();
        self.slow = if is_slow { self.slow + 1 } else { 0 };
        self.fast = if is_fast { self.fast + 1 } else { 0 };
        match is_other {
            _ if self.slow.max(self.fast) >= IN_A_ROW => Change::From(self.rate()),
            true => Change::Perhaps,
            false => Change::No,
        }
    }

    /// Adds a sample. Many small changes are a change, too.
    pub(super) fn add(&mut self, sample: Sample) -> Change {
        self.record.add(sample);
        if self.record.samples() < MEMORY {
            return Change::No;
        }
        let rate = self.rate();
        let first = *self.first.get_or_insert(rate);
        let usual = first / 1024 * CHANGED + 2 * self.record.error();
        match rate.abs_diff(first) > usual {
            true => Change::From(first),
            false => Change::No,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rate: u64) -> Sample {
        Sample {
            rate,
            cost: 0,
            bytes: 0,
        }
    }

    #[test]
    fn three_differing_samples_in_a_row_are_a_change() {
        let mut level = Level::of(USUAL);
        for _ in 0..USUAL {
            assert!(!level.is_known());
            assert_eq!(level.compare(of(1 << 30)), Change::No);
            assert_eq!(level.add(of(1 << 30)), Change::No);
        }
        assert!(level.is_known());
        assert_eq!(level.compare(of(1 << 29)), Change::Perhaps);
        assert_eq!(level.compare(of(1 << 29)), Change::Perhaps);
        assert_eq!(level.compare(of(1 << 30)), Change::No);
        assert_eq!(level.compare(of(1 << 31)), Change::Perhaps);
        assert_eq!(level.compare(of(1 << 29)), Change::Perhaps);
        assert_eq!(level.compare(of(1 << 29)), Change::Perhaps);
        assert_eq!(level.compare(of(1 << 29)), Change::From(1 << 30));
    }

    #[test]
    fn a_slow_drift_is_a_change() {
        let mut level = Level::of(USUAL);
        for _ in 0..MEMORY {
            assert_eq!(level.add(of(1 << 30)), Change::No);
        }
        let mut rate = 1 << 30;
        let changes = (0..40).find(|_| {
            rate -= rate / 100;
            level.compare(of(rate));
            level.add(of(rate)) == Change::From(1 << 30)
        });
        assert!(changes.is_some_and(|steps| steps > 8), "{changes:?}");
    }
}
