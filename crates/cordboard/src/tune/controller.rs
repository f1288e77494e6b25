//! Hill climbing between settings, by measurements that vary.

use std::time::Duration;

use super::arms::{Arm, Arms};
use super::record::Record;
use super::window::{Sample, Window};

/// A smaller gain is ignored, also on a device whose rate never varies, in 1/1024.
const MARGIN: u64 = 31;
/// A setting that uses this much less processor time is preferred at the same rate, in
/// 1/1024 …
const CHEAPER: u64 = 154;
/// … which may be this much lower: less than [`MARGIN`], so that two settings are never
/// each better than the other.
const SAME_RATE: u64 = 15;
/// The most samples of a setting that is not the best one, before it is left alone.
const TRIES: u64 = 4;
/// Windows with other settings after which the best one is measured again, so that a
/// rate that drifts is not taken for a difference.
const WITHOUT_BEST: u32 = 2;
/// Windows with the best setting between two probes of another one: at first, and after
/// several probes that found nothing.
const BETWEEN_PROBES: [u32; 4] = [64, 96, 128, 192];
/// A best setting whose rate differs by so much from what it was, in 1/1024, beyond its
/// usual variation, for so many windows in a row, is measured anew, as are all others.
const CHANGED: u64 = 128;
const IN_A_ROW: u32 = 3;

/// The neighbours of a setting that is slower than the best by no more than this, in
/// 1/1024, are worth a try.
const WORTH_A_STEP: u64 = 320;

/// What a setting is chosen for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// The rate first, processor time at equal rates.
    Rate,
    /// Processor time first, the rate at equal times.
    Time,
}

/// Chooses a setting and measures it.
#[derive(Debug)]
pub(crate) struct Controller {
    goal: Goal,
    records: Box<[Record]>,
    /// The best setting so far, and the one being measured.
    best: Arm,
    current: Arm,
    window: Window,
    /// The number of times that windows are twice as long.
    doublings: u32,
    /// Windows since the best setting was measured.
    without_best: u32,
    /// Consecutive windows in which the best setting was much slower, or much faster,
    /// than its record.
    slow: u32,
    fast: u32,
    /// Windows with the best setting since nothing else was worth a try.
    rested: u32,
    /// The number of probes since the best setting has changed.
    probes: usize,
}

impl Controller {
    /// Begins with the setting `start`.
    pub(crate) fn new(arms: &dyn Arms, start: Arm, goal: Goal) -> Controller {
        Controller {
            goal,
            records: vec![Record::default(); arms.len()].into(),
            best: start,
            current: start,
            window: Window::after(arms.in_flight(start)),
            doublings: 0,
            without_best: 0,
            slow: 0,
            fast: 0,
            rested: 0,
            probes: 0,
        }
    }

    /// Returns the setting to use.
    pub(crate) fn current(&self) -> Arm {
        self.current
    }

    /// Returns the best setting known.
    pub(crate) fn best(&self) -> Arm {
        self.best
    }

    /// Returns whether all settings worth a try were tried.
    #[cfg(test)]
    pub(crate) fn is_settled(&self) -> bool {
        self.rested > 0
    }

    /// Records that `bytes` have arrived by `now`. `spent` returns the processor time used
    /// since any fixed moment, or 0 if it is unknown. Returns whether the setting to use has changed.
    pub(crate) fn learn(
        &mut self,
        arms: &dyn Arms,
        now: Duration,
        spent: &mut dyn FnMut() -> Duration,
        bytes: u64,
    ) -> bool {
        let best = &self.records[self.best];
        let known = (best.is_measured() && self.current != self.best).then(|| best.rate());
        let in_flight = arms.in_flight(self.current);
        let sample = (self.window).add(now, spent, bytes, in_flight, known, self.doublings);
        let Some(sample) = sample else {
            return false;
        };
        self.measured(sample);
        let next = self.next(arms);
        self.change_to(arms, next)
    }

    /// Discards the running measurement: the peer was idle, not the setting slow.
    pub(crate) fn interrupt(&mut self) {
        self.window.restart();
    }

    /// Gives up the setting in use, which is not possible after all.
    pub(crate) fn refuse_current(&mut self, arms: &dyn Arms) {
        self.records[self.current] = Record::default();
        if self.best == self.current {
            let others = (0..arms.len()).filter(|arm| arms.is_possible(*arm));
            self.best = others
                .max_by_key(|arm| self.records[*arm].rate())
                .unwrap_or(self.best);
        }
        self.change_to(arms, self.best);
    }

    /// Changes to a setting that nothing speaks for: for tests of the change.
    pub(crate) fn wander(&mut self, arms: &dyn Arms) {
        self.probes = self.probes.wrapping_mul(5).wrapping_add(7);
        let possible = (0..arms.len()).filter(|arm| arms.is_possible(*arm));
        let count = possible.clone().count().max(1);
        let arm = possible.clone().nth((self.probes >> 3) % count);
        self.change_to(arms, arm.unwrap_or(self.current));
    }

    fn measured(&mut self, sample: Sample) {
        if self.current == self.best {
            self.without_best = 0;
            self.measured_best(sample);
            return;
        }
        self.without_best += 1;
        self.records[self.current].add(sample);
        if self.is_better(self.current, self.best) {
            (self.best, self.without_best) = (self.current, 0);
            (self.rested, self.probes) = (0, 0);
            (self.slow, self.fast) = (0, 0);
        }
    }

    fn measured_best(&mut self, sample: Sample) {
        let record = &mut self.records[self.best];
        if record.samples() >= 2 {
            let limit = record.rate() / 1024 * CHANGED + record.distance().saturating_mul(2);
            let is_slow = sample.rate < record.rate().saturating_sub(limit);
            let is_fast = sample.rate > record.rate().saturating_add(limit);
            self.slow = if is_slow { self.slow + 1 } else { 0 };
            self.fast = if is_fast { self.fast + 1 } else { 0 };
            if self.slow.max(self.fast) >= IN_A_ROW {
                self.forget();
            } else if is_slow || is_fast {
                return;
            }
        }
        self.records[self.best].add(sample);
        self.doublings = self.doublings.max(self.records[self.best].doublings());
    }

    /// Forgets everything but which setting was the best, and how much rates vary.
    fn forget(&mut self) {
        self.records.fill(Record::default());
        (self.without_best, self.rested, self.probes) = (0, 0, 0);
        (self.slow, self.fast) = (0, 0);
    }

    /// Returns whether one setting is better than another, by more than both vary.
    fn is_better(&self, one: Arm, other: Arm) -> bool {
        let (a, b) = (&self.records[one], &self.records[other]);
        if !a.is_measured() || !b.is_measured() {
            return false;
        }
        let errors = a.error().max(b.error()) + a.error().min(b.error()) / 2;
        let margin = (b.rate() / 1024 * MARGIN).max(errors);
        let is_faster = a.rate() > b.rate().saturating_add(margin);
        let has_cost = a.samples() >= 2 && b.samples() >= 2 && a.cost() > 0;
        let is_cheaper = has_cost && a.cost() < b.cost() / 1024 * (1024 - CHEAPER);
        match self.goal {
            Goal::Rate => {
                let slack = (b.rate() / 1024 * SAME_RATE).max(errors / 2);
                let same = a.rate().saturating_add(slack) >= b.rate();
                is_faster || (is_cheaper && same)
            }
            Goal::Time => {
                let same = a.cost() <= b.cost() / 1024 * (1024 + CHEAPER / 2);
                is_cheaper || (is_faster && same)
            }
        }
    }

    /// Returns whether another sample could show that a setting is better than the best.
    fn is_promising(&self, arm: Arm) -> bool {
        let (record, best) = (&self.records[arm], &self.records[self.best]);
        if record.samples() >= TRIES {
            return false;
        }
        // The processor time is believed only of a setting that was measured twice.
        let may_be_cheaper = record.cost() < best.cost() / 1024 * (1024 - CHEAPER);
        let goal = best.rate() / 1024
            * match may_be_cheaper {
                true => 1024 - SAME_RATE,
                false => 1024 + MARGIN,
            };
        let is_fast_enough = self.at_best(arm) > goal;
        !record.is_measured()
            || is_fast_enough
            || (self.goal == Goal::Time && may_be_cheaper && record.samples() < 2)
    }

    /// Returns whether a setting is one change away from one that is not much slower than
    /// the best: from there, another change may lead to a better one.
    fn is_near_a_good_one(&self, arms: &dyn Arms, arm: Arm) -> bool {
        let enough = self.records[self.best].rate() / 1024 * (1024 - WORTH_A_STEP);
        (0..arms.len())
            .any(|from| self.records[from].rate() >= enough && arms.is_neighbour(from, arm))
    }

    /// Returns the highest rate that a setting may have, as far as was measured.
    fn at_best(&self, arm: Arm) -> u64 {
        let record = &self.records[arm];
        record.rate().saturating_add(record.error() * 2)
    }

    /// Returns the setting to measure next.
    fn next(&mut self, arms: &dyn Arms) -> Arm {
        let record = &self.records[self.best];
        if record.samples() < 2 {
            // Only two show the variation.
            return self.best;
        }
        let rate = record.rate();
        while !is_soon_done(arms, self.best, rate) {
            let smaller = arms.shrink(self.best);
            if !self.records[smaller].is_measured() {
                self.records[smaller] = self.records[self.best];
            }
            self.best = smaller;
        }
        if self.current != self.best && self.without_best >= WITHOUT_BEST {
            return self.best;
        }
        let round = (self.probes / 8).min(BETWEEN_PROBES.len() - 1);
        let is_time = self.rested >= BETWEEN_PROBES[round];
        if self.rested > 0 && !is_time {
            self.rested += 1;
            return self.best;
        }
        let candidates: Vec<Arm> = (0..arms.len())
            .filter(|arm| *arm != self.best && arms.is_possible(*arm))
            .filter(|arm| is_soon_done(arms, *arm, rate))
            .filter(|arm| self.is_near_a_good_one(arms, *arm))
            .collect();
        let promising = candidates.iter().filter(|arm| self.is_promising(**arm));
        let promising = promising.max_by_key(|arm| match self.records[**arm].is_measured() {
            true => (0, self.at_best(**arm), arms.len() - **arm),
            false => (1, 0, arms.len() - **arm),
        });
        if let Some(arm) = promising {
            self.rested = 0;
            return *arm;
        }
        if !is_time || candidates.is_empty() {
            self.rested = 1;
            return self.best;
        }
        self.rested = 0;
        let arm = candidates[self.probes % candidates.len()];
        self.probes += 1;
        self.records[arm].doubt();
        arm
    }

    fn change_to(&mut self, arms: &dyn Arms, arm: Arm) -> bool {
        if arm == self.current {
            return false;
        }
        // Blocks submitted before must not count for the new setting, nor the time in
        // which the device adjusts to it.
        let skip = arms.in_flight(self.current).max(arms.in_flight(arm));
        self.window = Window::after(skip);
        self.current = arm;
        true
    }
}

/// Whether a device of this rate completes the bytes in flight within a second, which
/// bounds the time of a cancellation.
fn is_soon_done(arms: &dyn Arms, arm: Arm, rate: u64) -> bool {
    arms.in_flight(arm) <= rate || arms.shrink(arm) == arm
}
