//! Hill climbing between settings, by measurements that vary.

use std::time::Duration;

use super::arms::{Arm, Arms};
use super::record::Record;
use super::window::{Sample, Window};

/// A smaller gain of the rate is ignored, even without variation, in 1/1024.
const MARGIN: u64 = 31;
/// At the same rate, a setting that uses this much less processor time is better, in 1/1024.
const CHEAPER: u64 = 154;
/// The processor time beyond [`CHEAPER`], divided by this, is the additional rate that a
/// setting needs.
const PER_COST: u64 = 4;
/// A rate that is lower by at most this counts as the same, in 1/1024. It is less than
/// [`MARGIN`], so that two settings are never each better than the other.
const SAME_RATE: u64 = 15;
/// The maximum number of samples of a setting that is not the best one. Further ones are
/// taken only in probes.
const TRIES: u64 = 4;
/// The number of windows with other settings after which the best one is measured again.
/// Otherwise a drift of the rate could appear as a difference between settings.
const WITHOUT_BEST: u32 = 2;
/// The number of windows with the best setting between two probes of another one. It grows
/// after each 8 probes that have not found a better one.
const BETWEEN_PROBES: [u32; 4] = [64, 96, 128, 192];
/// A rate of the best setting that differs from its mean by more than this, in 1/1024, in
/// addition to twice its usual distance, is a change.
const CHANGED: u64 = 128;
/// After this number of consecutive changes, all settings are measured again.
const IN_A_ROW: u32 = 3;

/// The neighbours of a setting are measured if it is slower than the best one by at most
/// this, in 1/1024.
const WORTH_A_STEP: u64 = 320;

/// The loss through measurements that is accepted at any time, in bytes.
const FREE: u64 = 64 << 20;
/// The loss that is accepted in addition, as a divisor of the bytes moved.
const PER_LOSS: u64 = 48;

/// The criterion by which a setting is chosen.
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
    /// How often the length of a window is doubled.
    doublings: u32,
    /// The number of windows since the best setting was measured.
    without_best: u32,
    /// The numbers of consecutive windows in which the best setting was much slower, or much
    /// faster, than its mean.
    slow: u32,
    fast: u32,
    /// The number of windows with the best setting since no other setting was promising.
    rested: u32,
    /// The number of probes since the best setting has changed.
    probes: usize,
    /// The bytes moved in all windows.
    moved: u64,
    /// The bytes that the best setting would have moved, in addition, in the time or the
    /// processor time of the measurements of other settings.
    lost: u64,
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
            moved: 0,
            lost: 0,
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

    /// Returns whether no other setting is to be measured for now.
    #[cfg(test)]
    pub(crate) fn is_settled(&self) -> bool {
        self.rested > 0
    }

    /// Records that `bytes` have arrived by `now`. `spent` returns the processor time since a
    /// fixed moment, or 0 if it is unknown. Returns whether the setting to use has changed.
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
        self.moved = self.moved.saturating_add(sample.bytes);
        self.lost = (self.lost).saturating_add(self.loss(sample, in_flight));
        self.measured(sample);
        let next = self.next(arms);
        self.change_to(arms, next)
    }

    /// Discards the running window, in which the peer was idle.
    pub(crate) fn interrupt(&mut self) {
        self.window.restart();
    }

    /// Changes to the best possible setting, because the current one is not possible.
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

    /// Changes to a pseudo-random setting. For tests of the change.
    pub(crate) fn change_at_random(&mut self, arms: &dyn Arms) {
        self.probes = self.probes.wrapping_mul(5).wrapping_add(7);
        let possible = (0..arms.len()).filter(|arm| arms.is_possible(*arm));
        let count = possible.clone().count().max(1);
        let arm = possible.clone().nth((self.probes >> 3) % count);
        self.change_to(arms, arm.unwrap_or(self.current));
    }

    /// Returns what a measurement of another setting has cost, in bytes of the best one.
    fn loss(&self, sample: Sample, in_flight: u64) -> u64 {
        let best = &self.records[self.best];
        if self.current == self.best || !best.is_measured() {
            return 0;
        }
        let excess = |more: u64, least: u64| match least {
            0 => 0,
            _ => u128::from(more.saturating_sub(least)) * 1024 / u128::from(least),
        };
        let of_time = excess(best.rate(), sample.rate);
        let of_processor = excess(sample.cost, best.cost());
        let bytes = u128::from(sample.bytes.saturating_add(in_flight));
        u64::try_from(bytes * of_time.max(of_processor) / 1024).unwrap_or(u64::MAX)
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
            self.make_best(self.current);
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
        // The first samples of the best setting may have been lucky.
        let others = (0..self.records.len()).filter(|arm| self.is_better(*arm, self.best));
        if let Some(other) = others.max_by_key(|arm| self.records[*arm].rate()) {
            self.make_best(other);
        }
    }

    fn make_best(&mut self, arm: Arm) {
        self.best = arm;
        (self.without_best, self.rested, self.probes) = (0, 0, 0);
        (self.slow, self.fast) = (0, 0);
    }

    /// Discards all records. The best setting and the length of windows stay.
    fn forget(&mut self) {
        self.records.fill(Record::default());
        (self.without_best, self.rested, self.probes) = (0, 0, 0);
        self.lost = 0;
        (self.slow, self.fast) = (0, 0);
    }

    /// Returns whether one setting is better than another, by more than both vary.
    fn is_better(&self, one: Arm, other: Arm) -> bool {
        let (a, b) = (&self.records[one], &self.records[other]);
        if !a.is_measured() || !b.is_measured() {
            return false;
        }
        let errors = a.error().max(b.error()) + a.error().min(b.error()) / 2;
        let price = price(a, b);
        let gain = (b.rate() / 1024).saturating_mul(MARGIN + price);
        let margin = gain.max(errors);
        // One sample may be lucky, so it does not justify more processor time.
        let is_certain = price == 0 || a.samples() >= 2;
        let is_faster = is_certain && a.rate() > b.rate().saturating_add(margin);
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
        // The processor time counts from the second sample on.
        let may_be_cheaper = record.cost() < best.cost() / 1024 * (1024 - CHEAPER);
        let goal = (best.rate() / 1024).saturating_mul(match may_be_cheaper {
            true => 1024 - SAME_RATE,
            false => 1024 + MARGIN + price(record, best),
        });
        let is_fast_enough = self.at_best(arm) > goal;
        !record.is_measured()
            || is_fast_enough
            || (self.goal == Goal::Time && may_be_cheaper && record.samples() < 2)
    }

    /// Returns whether a setting is one change away from one that is not much slower than
    /// the best one. It may be better than both.
    fn is_near_a_good_one(&self, arms: &dyn Arms, arm: Arm) -> bool {
        let enough = self.records[self.best].rate() / 1024 * (1024 - WORTH_A_STEP);
        (0..arms.len())
            .any(|from| self.records[from].rate() >= enough && arms.is_neighbour(from, arm))
    }

    /// Returns an upper bound of the rate of a setting, by its measurements.
    fn at_best(&self, arm: Arm) -> u64 {
        let record = &self.records[arm];
        record.rate().saturating_add(record.error() * 2)
    }

    /// Returns the setting to measure next.
    fn next(&mut self, arms: &dyn Arms) -> Arm {
        let record = &self.records[self.best];
        if record.samples() < 2 {
            // The variation follows from at least two samples.
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
        if self.lost > FREE + self.moved / PER_LOSS {
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
        // Neither the blocks submitted before nor the time in which the device adjusts count
        // for the new setting.
        let skip = arms.in_flight(self.current).max(arms.in_flight(arm));
        self.window = Window::after(skip);
        self.current = arm;
        true
    }
}

/// Returns how much faster than `other` a setting must be because it uses more processor
/// time, in 1/1024.
fn price(one: &Record, other: &Record) -> u64 {
    let (cost, least) = (u128::from(one.cost()), u128::from(other.cost()));
    if least == 0 {
        return 0;
    }
    let more = (cost * 1024 / least).saturating_sub(u128::from(1024 + CHEAPER));
    u64::try_from(more / u128::from(PER_COST))
        .unwrap_or(u64::MAX)
        .min(1024)
}

/// Returns whether a device of this rate completes the bytes in flight within a second,
/// which bounds the time of a cancellation.
fn is_soon_done(arms: &dyn Arms, arm: Arm, rate: u64) -> bool {
    arms.in_flight(arm) <= rate || arms.shrink(arm) == arm
}
