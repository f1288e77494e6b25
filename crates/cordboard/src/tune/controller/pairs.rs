//! Windows of the best setting before and after one of another setting.

use crate::tune::arms::Arm;
use crate::tune::record::{MEMORY, mean, scaled};
use crate::tune::window::Sample;

/// If the rates of the best setting before and after another one differ by more than this, in
/// 1/1024, the conditions have changed between them, and the other one is not compared.
const UNSTEADY: u64 = 340;
/// The windows with the best setting between two measurements of others are the mean difference of
/// such windows, squared and divided by this. A change of the setting may disturb a peer for some
/// time.
const PER_REST: u64 = 8192;
/// The number of differences from which on their mean is taken as it is.
const SURE: u64 = 2;

/// The window in between is compared with the mean of both. So a change that affects all settings
/// is not mistaken for a difference between them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pairs {
    /// The last window with the best setting, and the one with another setting after it.
    before: Option<Sample>,
    other: Option<(Arm, Sample)>,
    /// How much the rates of two windows of the best setting differ that have a window of another
    /// one between them, in 1/1024: the mean, and the number of such pairs.
    flutter: (u64, u64),
    /// The number of windows with the best setting since another one was measured.
    undisturbed: u64,
}

/// A window of another setting, and the usual rate and cost at that time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Compared {
    pub(super) arm: Arm,
    pub(super) sample: Sample,
    pub(super) rate: u64,
    pub(super) cost: u64,
    /// Both windows of the best setting agree. Otherwise `rate` and `cost` are those of the slower
    /// one.
    pub(super) is_steady: bool,
}

impl Pairs {
    /// Returns what a continued search begins with.
    pub(super) fn continued(&self) -> Pairs {
        Pairs {
            flutter: self.flutter,
            ..Pairs::default()
        }
    }

    /// Discards the windows: another setting is the best one.
    pub(super) fn clear(&mut self) {
        (self.before, self.other) = (None, None);
    }

    /// Returns the last window with the best setting.
    pub(super) fn before(&self) -> Option<Sample> {
        self.before
    }

    pub(super) fn set_before(&mut self, sample: Sample) {
        self.before = Some(sample);
    }

    /// Returns whether a window of another setting waits for one of the best setting.
    pub(super) fn is_open(&self) -> bool {
        self.other.is_some()
    }

    pub(super) fn set_other(&mut self, arm: Arm, sample: Sample) {
        self.other = Some((arm, sample));
    }

    /// Discards the window of another setting unless it `is_possible`.
    pub(super) fn retain(&mut self, is_possible: impl Fn(Arm) -> bool) {
        self.other.take_if(|(arm, _)| !is_possible(*arm));
    }

    /// Records that a window of another setting has ended.
    pub(super) fn disturbed(&mut self) {
        self.undisturbed = 0;
    }

    /// Records a window of the best setting. Returns the window of another one before it, if there
    /// is one.
    pub(super) fn close(&mut self, after: Sample) -> Option<Compared> {
        self.undisturbed += 1;
        let before = self.before.replace(after).unwrap_or(after);
        let (arm, sample) = self.other.take()?;
        let rate = before.rate.midpoint(after.rate);
        let difference = before.rate.abs_diff(after.rate);
        self.note(difference, rate);
        let is_steady = difference <= rate / 1024 * UNSTEADY;
        let (rate, cost) = match is_steady {
            true => (rate, before.cost.midpoint(after.cost)),
            false => (before.rate.min(after.rate), before.cost.max(after.cost)),
        };
        Some(Compared {
            arm,
            sample,
            rate,
            cost,
            is_steady,
        })
    }

    /// Returns the mean difference of a pair, in 1/1024, if there was one.
    pub(super) fn flutter(&self) -> Option<u64> {
        let (flutter, pairs) = self.flutter;
        (pairs > 0).then_some(flutter)
    }

    /// Returns whether too few windows with the best setting have passed since another one was
    /// measured. A mean of few differences counts less.
    pub(super) fn is_disturbed(&self) -> bool {
        let (flutter, pairs) = self.flutter;
        let rest = flutter.pow(2) / PER_REST * pairs.min(SURE) / SURE;
        self.undisturbed <= rest
    }

    fn note(&mut self, difference: u64, rate: u64) {
        let (before, pairs) = self.flutter;
        let pairs = (pairs + 1).min(MEMORY);
        let relative = scaled(difference, 1024, rate.max(1)).min(1024);
        self.flutter = (mean(before, relative, pairs), pairs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rate: u64, cost: u64) -> Sample {
        Sample {
            rate,
            cost,
            bytes: 0,
        }
    }

    #[test]
    fn a_window_is_compared_with_those_around_it() {
        let mut pairs = Pairs::default();
        assert!(pairs.close(of(1024, 10)).is_none());
        pairs.set_other(3, of(2048, 7));
        let steady = pairs.close(of(1280, 20)).unwrap();
        assert_eq!((steady.arm, steady.sample.rate), (3, 2048));
        assert_eq!(
            (steady.rate, steady.cost, steady.is_steady),
            (1152, 15, true)
        );
        assert_eq!(pairs.flutter(), Some(256 * 1024 / 1152));
        pairs.set_other(3, of(2048, 7));
        let unsteady = pairs.close(of(640, 40)).unwrap();
        assert_eq!((unsteady.rate, unsteady.cost), (640, 40));
        assert!(!unsteady.is_steady);
    }

    #[test]
    fn rates_that_vary_need_a_rest_between_measurements() {
        let mut pairs = Pairs::default();
        let mut rests = |after| {
            pairs.disturbed();
            pairs.set_other(3, of(1, 1));
            pairs.close(of(after, 1));
            (0..100)
                .take_while(|_| pairs.is_disturbed() && pairs.close(of(after, 1)).is_none())
                .count()
        };
        assert_eq!(rests(1000), 0);
        assert_eq!(rests(1000), 0);
        assert!(rests(3000) > 8);
    }
}
