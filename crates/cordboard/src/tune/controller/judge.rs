//! Which of two settings is better, by their measurements.

use super::Controller;
use crate::tune::arms::{Arm, Arms};
use crate::tune::record::CHEAPER;
use crate::tune::window::Sample;

/// A smaller gain of the rate is ignored, even without variation, in 1/1024.
const MARGIN: u64 = 31;
/// A rate that is lower by at most this counts as the same, in 1/1024. It is less than
/// [`MARGIN`], so that two settings are never each better than the other.
const SAME_RATE: u64 = 15;
/// The maximum number of samples of a setting that is not the best one. Further ones are
/// taken only in probes.
const TRIES: u64 = 4;
/// A setting is faster if the difference exceeds this number of half standard errors.
const ERRORS: u64 = 3;
/// The neighbours of a setting are measured if it is slower than the best one by at most
/// this, in 1/1024.
const WORTH_A_STEP: u64 = 320;
/// One window shows that a setting is better if its rate is higher by more than this, in 1/1024, and
/// by twice the difference of two windows of the best one.
const CLEARLY: u64 = 102;
/// The difference of two windows of the first setting, if it has one only.
const FIRST_FLUTTER: u64 = 51;

impl Controller {
    /// Returns whether a setting is better than the best one, by more than both vary.
    pub(super) fn is_better(&self, arms: &dyn Arms, arm: Arm) -> bool {
        let (a, b) = (&self.records[arm], &self.records[self.best]);
        if arm == self.best || !a.is_measured() || !b.is_measured() {
            return false;
        }
        let (noise, cost_noise) = (self.noise(a.rate()), self.noise(a.cost()));
        let errors = a.error().max(a.error_of(noise)) / 2 * ERRORS;
        let margin = self.gain(arms, arm).max(errors);
        // One sample may be lucky, so it does not justify more processor time.
        let is_certain = a.price(b) == 0 || a.samples() >= 2;
        let is_faster = is_certain && a.rate() > b.rate().saturating_add(margin);
        let has_cost = a.samples() >= 2 && a.cost() > 0;
        let limit = b.cost() / 1024 * (1024 - CHEAPER);
        let cost_error = a.cost_error().max(a.error_of(cost_noise));
        let is_cheaper = has_cost && a.cost().saturating_add(cost_error) < limit;
        let slack = (b.rate() / 1024 * SAME_RATE).max(a.error() / 2);
        is_faster || (is_cheaper && a.rate().saturating_add(slack) >= b.rate())
    }

    /// Returns whether this sample of the current setting shows that it is better than the best
    /// one, without another window of that one.
    pub(super) fn is_clearly_better(&self, arms: &dyn Arms, sample: Sample) -> bool {
        let is_suspected = self.suspected == Some(self.current);
        let of_first = is_suspected.then_some(FIRST_FLUTTER);
        let flutter = self.pairs.flutter().or(of_first);
        let (Some(flutter), Some(before)) = (flutter, self.pairs.before()) else {
            return false;
        };
        let usual = before.rate.max(self.level.rate());
        let more = CLEARLY + arms.reserve(self.best, self.current) + 2 * flutter;
        let enough = usual.saturating_add((usual / 1024).saturating_mul(more));
        sample.rate > enough && sample.cost <= before.cost / 1024 * (1024 + CHEAPER)
    }

    /// Returns by how much the rate of a setting must exceed that of the best one.
    fn gain(&self, arms: &dyn Arms, arm: Arm) -> u64 {
        let best = &self.records[self.best];
        let more = MARGIN + self.records[arm].price(best) + arms.reserve(self.best, arm);
        (best.rate() / 1024).saturating_mul(more)
    }

    /// Returns the mean distance of a sample of this value that follows from the windows of the best
    /// setting. A setting with few samples may have similar ones by luck.
    fn noise(&self, value: u64) -> u64 {
        // Two samples of a normal distribution differ by 1.13 deviations, and their mean by 0.7
        // from its mean. So a sample that is divided by it has a deviation of 1.1 differences, and
        // a mean distance of 0.87.
        value / 1024 * self.pairs.flutter().unwrap_or(0) / 8 * 7
    }

    /// Returns whether another sample could show that a setting is better than the best.
    pub(super) fn is_promising(&self, arms: &dyn Arms, arm: Arm) -> bool {
        let (record, best) = (&self.records[arm], &self.records[self.best]);
        if record.samples() >= TRIES {
            return false;
        }
        // The processor time counts from the second sample on.
        let may_be_cheaper = record.cost() < best.cost() / 1024 * (1024 - CHEAPER);
        let base = best.rate() / 1024;
        let goal = match may_be_cheaper {
            true => base * (1024 - SAME_RATE),
            false => (base * 1024).saturating_add(self.gain(arms, arm)),
        };
        let is_fast_enough = self.at_best(arm) > goal;
        !record.is_measured() || is_fast_enough
    }

    /// Returns whether a setting is better than the best one by its few samples.
    pub(super) fn seems_better(&self, arms: &dyn Arms, arm: Arm) -> bool {
        let (record, best) = (&self.records[arm], &self.records[self.best]);
        let enough = best.rate().saturating_add(self.gain(arms, arm));
        (1..TRIES).contains(&record.samples()) && record.rate() > enough
    }

    /// Returns the rate of the fastest setting that is one change away, if it is not much slower
    /// than the best one. The setting may be better than both.
    pub(super) fn rate_nearby(&self, arms: &dyn Arms, arm: Arm) -> Option<u64> {
        let enough = self.records[self.best].rate() / 1024 * (1024 - WORTH_A_STEP);
        (0..arms.len())
            .filter(|from| arms.is_neighbour(*from, arm))
            .map(|from| self.records[from].rate())
            .filter(|rate| *rate >= enough.max(1))
            .max()
    }

    /// Returns an upper bound of the rate of a setting, by its measurements.
    pub(super) fn at_best(&self, arm: Arm) -> u64 {
        let record = &self.records[arm];
        record.rate().saturating_add(record.error() * 2)
    }
}
