//! Hill climbing between settings, by measurements that vary.

mod budget;
mod conditions;
mod judge;
mod level;
mod pairs;
mod suspect;

use std::time::Duration;

use super::Goal;
use super::arms::{Arm, Arms, is_soon_done};
use super::record::{Conditions, Record, excess, scaled};
use super::window::{BYTES, Extent, Sample, Window, per_mebibyte};
use budget::Budget;
use level::{Level, USUAL};
use pairs::Pairs;

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
    level: Level,
    pairs: Pairs,
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
    /// The number of windows.
    windows: u32,
    budget: Budget,
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
            level: Level::of(USUAL),
            pairs: Pairs::default(),
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
            budget: Budget::default(),
        }
    }

    /// Returns the state with which another transfer between the same kinds of ends begins: with
    /// the best setting, whose rate may be different there.
    pub(crate) fn continued(&self, arms: &dyn Arms) -> Controller {
        let mut budget = self.budget;
        if self.current != self.best || self.pairs.is_open() {
            budget.lose_cut();
        }
        // The variation of the level is known from this transfer.
        let wanted = USUAL - u64::from(self.records[self.best].samples() >= USUAL);
        Controller {
            records: self.records.clone(),
            doublings: self.doublings,
            level: Level::of(wanted),
            pairs: self.pairs.continued(),
            rested: self.rested,
            probes: self.probes,
            has_measured: self.has_measured,
            windows: self.windows,
            budget,
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
        let is_over = self.is_settled() || self.budget.is_spent();
        self.has_measured() && (is_over || is_complete())
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
        self.budget.add(sample.bytes);
        let sample = self.aimed(sample);
        if is_other {
            self.pairs.disturbed();
            match self.is_clearly_better(arms, sample) {
                true => self.adopt(sample),
                false => self.pairs.set_other(self.current, sample),
            }
        } else {
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
        let level = Some(self.level.record()).filter(|level| level.is_measured())?;
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
        self.pairs.retain(is_possible);
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
    /// one, `after`.
    fn compare(&mut self, after: Sample) {
        let Some(compared) = self.pairs.close(after) else {
            return;
        };
        let (arm, sample) = (compared.arm, compared.sample);
        self.has_measured = true;
        let more = excess(compared.rate, sample.rate) + excess(sample.cost, compared.cost);
        let lost = u128::from(sample.bytes) * more / 1024;
        self.budget.lose(u64::try_from(lost).unwrap_or(u64::MAX));
        let doubted = self.doubted.take().filter(|(doubted, _)| *doubted == arm);
        if !compared.is_steady {
            return;
        }
        self.comparisons += 1;
        let relative = self.relative(sample, compared.rate, compared.cost);
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
        let before = self.pairs.before().unwrap_or(sample);
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
        self.pairs.clear();
        self.search();
    }

    /// Returns the setting to measure next.
    fn next(&mut self, arms: &dyn Arms, left: u64) -> Arm {
        if !self.level.is_known() {
            return self.best;
        }
        let speed = self.known_rate().unwrap_or(0);
        while !is_soon_done(arms, self.best, speed) {
            let smaller = arms.shrink(self.best);
            if !self.records[smaller].is_measured() {
                self.records[smaller] = self.records[self.best];
            }
            self.best = smaller;
            self.pairs.clear();
        }
        // A measurement needs a window of the other setting, and one of the best after it.
        let window = self.pairs.before().map_or(BYTES, |sample| sample.bytes);
        let is_late = left < 2 * (arms.in_flight(self.best) + window);
        let is_short = self.windows < FIRST_WINDOWS || self.budget.moved() < FIRST_BYTES;
        let is_early = is_short && !(LONG..u64::MAX).contains(&left);
        if self.pairs.is_open() || is_early || is_late || self.pairs.is_disturbed() {
            return self.best;
        }
        let is_candidate = |arm: &Arm| {
            *arm != self.best && arms.is_possible(*arm) && is_soon_done(arms, *arm, speed)
        };
        let all: Vec<Arm> = (0..arms.len()).filter(is_candidate).collect();
        // Most such samples cost nothing, but those that are discarded do.
        if !self.budget.is_spent_twice()
            && let Some(arm) = self.unconfirmed(arms, &all)
        {
            return arm;
        }
        if self.budget.is_spent() {
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
