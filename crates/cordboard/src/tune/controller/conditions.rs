//! Changes of the conditions: of a peer, or of other work on the machine.

use super::Controller;
use super::level::{Change, Level, USUAL};
use crate::tune::arms::Arm;
use crate::tune::record::{CHANGED, Conditions, Record, scaled};
use crate::tune::window::Sample;

/// The samples of the new level before it is compared with an earlier one.
const OF_NEW_LEVEL: u64 = 3;

impl Controller {
    /// Follows the rate of the best setting. If it has changed, all others are to be measured
    /// again.
    pub(super) fn follow(&mut self, sample: Sample) {
        match self.level.compare(sample) {
            Change::No => {}
            Change::Perhaps => return,
            Change::From(level) => self.level_has_changed(level),
        }
        let change = self.level.add(sample);
        self.doublings = self.doublings.max(self.level.record().doublings());
        if let Change::From(level) = change {
            self.level_has_changed(level);
        }
        // The records of other settings are relative to this one, which then no longer changes.
        let measured = self.records.iter().filter(|record| record.is_measured());
        if measured.count() <= 1 {
            self.records[self.best].add(sample);
        }
        if self.level.is_known() {
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
            self.level.want(OF_NEW_LEVEL);
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
        let enough = expected / 1024 * CHANGED + 2 * self.level.record().error();
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
            self.pairs.clear();
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
        self.budget.refill();
        self.search();
    }

    /// Begins a search for a better setting, and a new level of the best one.
    pub(super) fn search(&mut self) {
        self.level = Level::of(USUAL);
        (self.rested, self.probes) = (0, 0);
        self.doubted = None;
    }
}
