//! Changes of the conditions: of a peer, or of other work on the machine.

use super::{Controller, PER_LOSS};
use crate::tune::arms::Arm;
use crate::tune::record::{CHANGED, Conditions, MEMORY, Record, scaled};
use crate::tune::window::Sample;

/// After this number of consecutive changes of the best setting, all settings are measured again.
const IN_A_ROW: u32 = 3;
/// The samples of the new level before it is compared with an earlier one.
const OF_NEW_LEVEL: u64 = 3;
/// After a change of the conditions, [`FREE`](super::FREE) bytes may be lost again, if at least this number
/// of bytes was moved since the last time, and as many as before the last time.
const REFILL: [u64; 2] = [512 << 20, 4 << 30];

impl Controller {
    /// Follows the rate of the best setting. If it has changed, all others are to be measured
    /// again.
    pub(super) fn follow(&mut self, sample: Sample) {
        let level = self.level;
        if level.samples() >= 2 {
            let is_other = level.differs(sample.rate);
            let is_slow = is_other && sample.rate < level.rate();
            let is_fast = is_other && sample.rate > level.rate();
            self.slow = if is_slow { self.slow + 1 } else { 0 };
            self.fast = if is_fast { self.fast + 1 } else { 0 };
            if self.slow.max(self.fast) >= IN_A_ROW {
                self.level_has_changed(level.rate());
            } else if is_other {
                return;
            }
        }
        self.level.add(sample);
        self.doublings = self.doublings.max(self.level.doublings());
        if self.level.samples() == MEMORY {
            let rate = self.level.rate();
            let first = *self.first_level.get_or_insert(rate);
            if rate.abs_diff(first) > first / 1024 * CHANGED + 2 * self.level.error() {
                self.level_has_changed(first);
            }
        }
        // The records of other settings are relative to this one, which then no longer changes.
        let measured = self.records.iter().filter(|record| record.is_measured());
        if measured.count() <= 1 {
            self.records[self.best].add(sample);
        }
        if self.level.samples() >= self.first_samples {
            self.return_to_earlier();
        }
    }

    /// Begins a search, because the rate of the best setting has changed. It was `level` before.
    fn level_has_changed(&mut self, level: u64) {
        let measured = self.records.iter().filter(|record| record.is_measured());
        if measured.count() > 1 {
            let before = Conditions {
                records: self.records.clone(),
                best: self.best,
                level,
            };
            self.returning = self.earlier.replace(before);
        }
        self.forget();
        if self.returning.is_some() {
            self.first_samples = OF_NEW_LEVEL;
        }
    }

    /// Restores the records from before the last change, if the rate of the best setting is now as it
    /// was then. One of them is verified at once.
    fn return_to_earlier(&mut self) {
        let Some(earlier) = self.returning.take() else {
            return;
        };
        let (former, best) = (self.best, earlier.best);
        let rate = |arm: Arm| earlier.records[arm].rate();
        let expected = scaled(earlier.level, rate(former), rate(best));
        let enough = expected / 1024 * CHANGED + 2 * self.level.error();
        if self.level.rate().abs_diff(expected) > enough {
            return;
        }
        let others = (0..earlier.records.len()).filter(|arm| *arm != best);
        let verified = match former == best {
            true => others.max_by_key(|arm| rate(*arm)),
            false => Some(former),
        };
        self.records = earlier.records;
        if former != best {
            self.best = best;
            (self.before, self.other) = (None, None);
            self.search();
        }
        let verified = verified.map(|arm| (arm, self.records[arm]));
        self.doubted = verified.filter(|(_, record)| record.is_measured());
    }

    /// Discards the records of all settings but the best one. The length of windows stays.
    pub(super) fn forget(&mut self) {
        let best = self.records[self.best];
        self.records.fill(Record::default());
        self.records[self.best] = best;
        if self.moved - self.refilled >= self.refilled.clamp(REFILL[0], REFILL[1]) {
            self.refilled = self.moved;
            self.lost = self.lost.min(self.moved / PER_LOSS);
        }
        self.search();
    }

    /// Begins a search for a better setting, and a new level of the best one.
    pub(super) fn search(&mut self) {
        (self.level, self.first_samples, self.first_level) = (Record::default(), 2, None);
        (self.rested, self.probes) = (0, 0);
        (self.slow, self.fast, self.doubted) = (0, 0, None);
    }
}
