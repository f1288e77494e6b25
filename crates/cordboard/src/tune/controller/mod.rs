//! Hill climbing between settings, by measurements that vary.

mod conditions;
mod judge;
mod suspect;

use std::time::Duration;

use super::Goal;
use super::arms::{Arm, Arms, is_soon_done};
use super::record::{Conditions, MEMORY, Record, excess, mean, scaled};
use super::window::{BYTES, Extent, Sample, Window, per_mebibyte};

/// If the rates of the best setting before and after another one differ by more than this, in
/// 1/1024, the conditions have changed between them, and the other one is not compared.
const UNSTEADY: u64 = 340;
/// The number of windows with the best setting between two probes of another one. It grows
/// after each 8 probes that have not found a better one.
const BETWEEN_PROBES: [u32; 4] = [64, 96, 128, 192];

/// The number of windows, and of their bytes, before another setting is measured, unless the
/// transfer is known to be [`LONG`]. A transfer that ends before would not gain from a
/// measurement.
const FIRST_WINDOWS: u32 = 6;
const FIRST_BYTES: u64 = 48 << 20;
/// The number of bytes left of a transfer that begins to measure at once.
const LONG: u64 = 512 << 20;

/// The windows with the best setting between two measurements of others are the mean difference of
/// such windows, squared and divided by this. A change of the setting may disturb a peer for some
/// time.
const PER_REST: u64 = 8192;
/// The number of differences from which on their mean is taken as it is.
const SURE: u64 = 2;

/// The loss through measurements that is accepted at any time, in bytes.
const FREE: u64 = 64 << 20;
/// The loss that is accepted in addition, as a divisor of the bytes moved.
const PER_LOSS: u64 = 128;
/// The loss by a measurement that the end of the transfer has cut off.
const CUT: u64 = 4 << 20;

/// Chooses a setting and measures it.
#[derive(Debug, Clone)]
pub(crate) struct Controller {
    goal: Goal,
    /// The measurements of each setting, relative to those of the best one: a rate is
    /// multiplied by the best setting's rate here, and divided by its rate at that time.
    records: Box<[Record]>,
    /// The best setting so far, and the one being measured.
    best: Arm,
    current: Arm,
    window: Window,
    /// How often the length of a window is doubled.
    doublings: u32,
    /// The present rate of the best setting.
    level: Record,
    /// The samples of it before another setting is measured. Its variation follows from at least
    /// two, perhaps of an earlier transfer.
    first_samples: u64,
    /// The first mean of [`MEMORY`] samples of the level.
    first_level: Option<u64>,
    /// The last window with the best setting, and the one with another setting after it.
    before: Option<Sample>,
    other: Option<(Arm, Sample)>,
    /// How much the rates of two windows of the best setting differ that have a window of another
    /// one between them, in 1/1024: the mean, and the number of such pairs.
    flutter: (u64, u64),
    /// The number of windows with the best setting since another one was measured.
    undisturbed: u64,
    /// The numbers of consecutive windows in which the best setting was much slower, or much
    /// faster, than its mean.
    slow: u32,
    fast: u32,
    /// The setting whose last sample differed much from its mean, and its record before. It is
    /// measured again.
    doubted: Option<(Arm, Record)>,
    /// What was measured before the last change of the level, and what is perhaps valid again, once
    /// the new level is known.
    earlier: Option<Conditions>,
    returning: Option<Conditions>,
    /// The number of windows discarded since the last complete one.
    interruptions: u32,
    /// The number of windows with the best setting since no other setting was promising.
    rested: u32,
    /// The number of probes since the best setting has changed.
    probes: usize,
    /// The number of measurements of other settings in this transfer.
    comparisons: u64,
    /// Another setting was measured, in this transfer or in one that it continues.
    has_measured: bool,
    /// The setting that is measured before there is a second sample of the first one.
    suspected: Option<Arm>,
    /// The number of windows, and the bytes moved in them.
    windows: u32,
    moved: u64,
    /// The bytes that the best setting would have moved, in addition, in the time or the
    /// processor time of the measurements of other settings.
    lost: u64,
    /// The bytes moved when `lost` was last reduced.
    refilled: u64,
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
            level: Record::default(),
            first_samples: 2,
            first_level: None,
            before: None,
            other: None,
            flutter: (0, 0),
            undisturbed: 0,
            slow: 0,
            fast: 0,
            doubted: None,
            earlier: None,
            returning: None,
            interruptions: 0,
            rested: 0,
            probes: 0,
            comparisons: 0,
            has_measured: false,
            suspected: None,
            windows: 0,
            moved: 0,
            lost: 0,
            refilled: 0,
        }
    }

    /// Returns the state with which another transfer between the same kinds of ends begins: with
    /// the best setting, whose rate may be different there.
    pub(crate) fn continued(&self, arms: &dyn Arms) -> Controller {
        // A measurement that has not ended may have cost as much as one that has.
        let is_cut = self.current != self.best || self.other.is_some();
        Controller {
            records: self.records.clone(),
            doublings: self.doublings,
            flutter: self.flutter,
            rested: self.rested,
            probes: self.probes,
            has_measured: self.has_measured,
            windows: self.windows,
            moved: self.moved,
            lost: self.lost.saturating_add(u64::from(is_cut) * CUT),
            refilled: self.refilled,
            first_samples: 2 - u64::from(self.records[self.best].samples() >= 2),
            ..Controller::new(arms, self.best, self.goal)
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
    pub(crate) fn is_settled(&self) -> bool {
        self.rested > 0
    }

    /// Returns whether later transfers are to begin with the best setting: other paths were measured,
    /// each at least once, or no more is measured for now. On a busy machine, a search may never end.
    pub(crate) fn has_result(&self, arms: &dyn Arms) -> bool {
        let is_known = |of: Arm| {
            let of = arms.path_index(of);
            (0..arms.len()).any(|arm| arms.path_index(arm) == of && self.records[arm].is_measured())
        };
        let is_complete = || (0..arms.len()).all(|arm| !arms.is_possible(arm) || is_known(arm));
        let is_over = self.is_settled() || self.lost > self.limit();
        self.has_measured() && (is_over || is_complete())
    }

    /// Returns the loss that is accepted.
    fn limit(&self) -> u64 {
        FREE + self.moved / PER_LOSS
    }

    /// Returns how many measurements of other settings were compared with the best one in this
    /// transfer.
    pub(crate) fn comparisons(&self) -> u64 {
        self.comparisons
    }

    /// Returns whether another setting was measured, in this transfer or in an earlier one whose
    /// search it continues.
    pub(crate) fn has_measured(&self) -> bool {
        self.has_measured
    }

    /// Returns a sample as the goal counts it.
    fn aimed(&self, sample: Sample) -> Sample {
        match self.goal {
            Goal::Rate => sample,
            Goal::Time => sample.inverted(),
        }
    }

    /// Records that `bytes` have arrived by `now`, and that at most `left` follow, or an unknown
    /// number (`u64::MAX`). `spent` returns the processor time since a fixed moment, or 0 if it
    /// is unknown. Returns whether the setting to use has changed.
    pub(crate) fn learn(
        &mut self,
        arms: &dyn Arms,
        now: Duration,
        spent: &mut dyn FnMut() -> Duration,
        bytes: u64,
        left: u64,
    ) -> bool {
        let is_other = self.current != self.best;
        let extent = Extent {
            least: arms.least(self.current),
            known: self.known_rate().filter(|_| is_other),
            doublings: self.doublings,
        };
        let Some(sample) = self.window.add(now, spent, bytes, extent) else {
            return false;
        };
        self.interruptions = 0;
        self.windows = self.windows.saturating_add(1);
        self.moved = self.moved.saturating_add(sample.bytes);
        let sample = self.aimed(sample);
        if is_other {
            self.undisturbed = 0;
            match self.is_clearly_better(arms, sample) {
                true => self.adopt(sample),
                false => self.other = Some((self.current, sample)),
            }
        } else {
            self.undisturbed += 1;
            self.compare(sample);
            self.follow(sample);
            let others = (0..self.records.len()).filter(|arm| self.is_better(arms, *arm));
            if let Some(arm) = others.max_by_key(|arm| self.records[*arm].rate()) {
                self.make_best(arm);
            }
        }
        let next = self.next(arms, left);
        self.change_to(arms, next)
    }

    /// Discards the running window, in which the peer was idle or a schedule limited the rate.
    /// If this happens again before a window is complete, the best setting is used: otherwise a
    /// slow one could stay. Returns whether the setting to use has changed.
    pub(crate) fn interrupt(&mut self, arms: &dyn Arms) -> bool {
        // The buffers behind the transfer may be empty now, as after a change.
        self.window = Window::after(arms.in_flight(self.current));
        self.interruptions = self.interruptions.saturating_add(1);
        self.interruptions > 1 && self.change_to(arms, self.best)
    }

    /// Returns the rate of the best setting, if it was measured.
    fn known_rate(&self) -> Option<u64> {
        let level = self.level.is_measured().then_some(self.level)?;
        Some(match self.goal {
            Goal::Rate => level.rate(),
            Goal::Time => per_mebibyte(level.cost()),
        })
    }

    /// Changes to the best possible setting, because the current one is not possible, and
    /// others may not be possible any more.
    pub(crate) fn refuse_current(&mut self, arms: &dyn Arms) {
        let refused = self.current;
        let is_possible = |arm: Arm| arm != refused && arms.is_possible(arm);
        // Their records would be compared with those of the new best setting, and chosen.
        for arm in (0..arms.len()).filter(|arm| !is_possible(*arm)) {
            self.records[arm] = Record::default();
        }
        self.other.take_if(|(arm, _)| !is_possible(*arm));
        (self.earlier, self.returning) = (None, None);
        if !is_possible(self.best) {
            let others = (0..arms.len()).filter(|arm| is_possible(*arm));
            if let Some(arm) = others.max_by_key(|arm| self.records[*arm].rate()) {
                self.make_best(arm);
            }
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

    /// Compares the setting that was measured between the last window of the best one and this
    /// one, `after`, with the mean of both. So a change that affects all settings is not
    /// mistaken for a difference between them.
    fn compare(&mut self, after: Sample) {
        let before = self.before.replace(after).unwrap_or(after);
        let Some((arm, sample)) = self.other.take() else {
            return;
        };
        let rate = before.rate.midpoint(after.rate);
        let cost = before.cost.midpoint(after.cost);
        let is_steady = before.rate.abs_diff(after.rate) <= rate / 1024 * UNSTEADY;
        let (usual, price) = match is_steady {
            true => (rate, cost),
            false => (before.rate.min(after.rate), before.cost.max(after.cost)),
        };
        self.flutter = flutter(self.flutter, before.rate.abs_diff(after.rate), rate);
        self.has_measured = true;
        let more = excess(usual, sample.rate) + excess(sample.cost, price);
        let lost = u128::from(sample.bytes) * more / 1024;
        self.lost = (self.lost).saturating_add(u64::try_from(lost).unwrap_or(u64::MAX));
        let doubted = self.doubted.take().filter(|(doubted, _)| *doubted == arm);
        if !is_steady {
            return;
        }
        self.comparisons += 1;
        let relative = self.relative(sample, rate, cost);
        let record = self.records[arm];
        let usual = doubted.map_or(record, |(_, record)| record);
        if usual.is_measured() && usual.differs(relative.rate) {
            // A disturbance makes one window slower, but not the next one of the same setting.
            let is_first = usual == record && relative.rate < record.rate();
            match is_first {
                true => self.doubted = Some((arm, record)),
                false => self.forget(),
            }
            self.records[arm].doubt();
        }
        self.records[arm].add(relative);
    }

    /// Returns a sample as the records have it, if windows of the best setting have this rate and
    /// processor time.
    fn relative(&self, sample: Sample, rate: u64, cost: u64) -> Sample {
        let best = &self.records[self.best];
        Sample {
            rate: scaled(sample.rate, best.rate(), rate),
            cost: scaled(sample.cost, best.cost(), cost),
            ..sample
        }
    }

    /// Makes the current setting the best one after one window. The former best one is not used
    /// for another window, in which it would lose time.
    fn adopt(&mut self, sample: Sample) {
        let before = self.before.unwrap_or(sample);
        self.comparisons += 1;
        self.has_measured = true;
        let relative = self.relative(sample, before.rate, before.cost);
        self.records[self.current].add(relative);
        self.make_best(self.current);
    }

    fn make_best(&mut self, arm: Arm) {
        // The samples of the new setting may have been lucky: the former one is measured again.
        self.records[self.best] = Record::default();
        self.best = arm;
        (self.before, self.other) = (None, None);
        self.search();
    }

    /// Returns the setting to measure next.
    fn next(&mut self, arms: &dyn Arms, left: u64) -> Arm {
        if self.level.samples() < self.first_samples {
            return self.best;
        }
        let speed = self.known_rate().unwrap_or(0);
        while !is_soon_done(arms, self.best, speed) {
            let smaller = arms.shrink(self.best);
            if !self.records[smaller].is_measured() {
                self.records[smaller] = self.records[self.best];
            }
            self.best = smaller;
            (self.before, self.other) = (None, None);
        }
        // A measurement needs a window of the other setting, and one of the best after it.
        let window = self.before.map_or(BYTES, |sample| sample.bytes);
        let is_late = left < 2 * (arms.in_flight(self.best) + window);
        let is_short = self.windows < FIRST_WINDOWS || self.moved < FIRST_BYTES;
        let is_early = is_short && !(LONG..u64::MAX).contains(&left);
        let is_disturbed = self.undisturbed <= self.rest();
        if self.other.is_some() || is_early || is_late || is_disturbed {
            return self.best;
        }
        let is_candidate = |arm: &Arm| {
            *arm != self.best && arms.is_possible(*arm) && is_soon_done(arms, *arm, speed)
        };
        let all: Vec<Arm> = (0..arms.len()).filter(is_candidate).collect();
        let limit = self.limit();
        // Most such samples cost nothing, but those that are discarded do.
        if self.lost <= 2 * limit
            && let Some(arm) = self.unconfirmed(arms, &all)
        {
            return arm;
        }
        if self.lost > limit {
            return self.best;
        }
        let round = (self.probes / 8).min(BETWEEN_PROBES.len() - 1);
        let is_time = self.rested >= BETWEEN_PROBES[round];
        if self.rested > 0 && !is_time {
            self.rested += 1;
            return self.best;
        }
        let candidates: Vec<(Arm, u64)> = (all.into_iter())
            .filter_map(|arm| Some((arm, self.rate_nearby(arms, arm)?)))
            .collect();
        let promising = candidates
            .iter()
            .filter(|(arm, _)| self.is_promising(arms, *arm));
        let promising = promising.max_by_key(|(arm, nearby)| self.order(arms, *arm, *nearby));
        if let Some((arm, _)) = promising {
            self.rested = 0;
            return *arm;
        }
        if !is_time || candidates.is_empty() {
            self.rested = 1;
            return self.best;
        }
        self.rested = 0;
        let (arm, _) = candidates[self.probes % candidates.len()];
        self.probes += 1;
        self.records[arm].doubt();
        arm
    }

    /// Returns the number of windows with the best setting between two measurements of others. A mean
    /// of few differences counts less.
    fn rest(&self) -> u64 {
        let (flutter, pairs) = self.flutter;
        flutter.pow(2) / PER_REST * pairs.min(SURE) / SURE
    }

    /// Returns the order in which settings are measured; the greatest comes first. Another path may be
    /// several times as fast, which other calls of the same path rarely are.
    fn order(&self, arms: &dyn Arms, arm: Arm, nearby: u64) -> (u8, u64, usize) {
        let path = arms.path_index(arm);
        let is_known =
            |other: Arm| self.records[other].is_measured() && arms.path_index(other) == path;
        let ascending = usize::MAX - arm;
        match self.records[arm].is_measured() {
            true => (0, self.at_best(arm), ascending),
            false if (0..arms.len()).any(is_known) => (1, nearby, ascending),
            // Its last setting has the largest calls.
            false => (2, nearby, arm),
        }
    }

    /// Returns a measured setting of which another sample is needed: one that was much slower than
    /// before, or that seems to be better than the best one.
    fn unconfirmed(&mut self, arms: &dyn Arms, candidates: &[Arm]) -> Option<Arm> {
        let doubted = self.doubted.map(|(arm, _)| arm);
        if let Some(arm) = doubted.filter(|arm| candidates.contains(arm)) {
            return Some(arm);
        }
        let better = candidates
            .iter()
            .filter(|arm| self.seems_better(arms, **arm));
        let fastest = *better.max_by_key(|arm| self.records[**arm].rate())?;
        self.rested = 0;
        Some(fastest)
    }

    fn change_to(&mut self, arms: &dyn Arms, arm: Arm) -> bool {
        if arm == self.current {
            return false;
        }
        // The blocks submitted before do not count for the new setting.
        let skip = arms.in_flight(self.current);
        self.window = Window::after(skip);
        self.current = arm;
        true
    }
}

/// Returns the mean relative difference after one more, and the number of differences.
fn flutter((before, pairs): (u64, u64), difference: u64, rate: u64) -> (u64, u64) {
    let pairs = (pairs + 1).min(MEMORY);
    let relative = scaled(difference, 1024, rate.max(1)).min(1024);
    (mean(before, relative, pairs), pairs)
}
