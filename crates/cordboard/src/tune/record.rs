//! The record of one setting: the mean of its samples, and their variation.

use super::arms::Arm;
use super::window::Sample;

/// The number of samples after which older ones count less and less.
pub(super) const MEMORY: u64 = 8;
/// The assumed variation of a setting with one sample, in 1/1024 of its rate.
const ASSUMED: u64 = 70;

/// At the same rate, a setting that uses this much less processor time is better, in 1/1024.
pub(super) const CHEAPER: u64 = 154;
/// The processor time beyond [`CHEAPER`], divided by this, is the additional rate that a
/// setting needs.
const PER_COST: u64 = 4;
/// A rate that differs from the mean of its setting by more than this, in 1/1024, in addition
/// to twice the usual distance, is a change.
pub(super) const CHANGED: u64 = 128;

/// The mean of the samples of one setting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// The number of samples, up to [`MEMORY`].
    samples: u64,
    /// Bytes per second.
    rate: u64,
    /// The mean distance of a sample from the mean, in bytes per second.
    distance: u64,
    /// Nanoseconds of processor time per mebibyte.
    cost: u64,
    /// The mean distance of a processor time from the mean.
    cost_distance: u64,
}

impl Record {
    pub(super) fn add(&mut self, sample: Sample) {
        self.samples = (self.samples + 1).min(MEMORY);
        let weight = self.samples;
        self.distance = distance(self.distance, self.rate, sample.rate, weight);
        self.cost_distance = distance(self.cost_distance, self.cost, sample.cost, weight);
        self.rate = mean(self.rate, sample.rate, weight);
        self.cost = mean(self.cost, sample.cost, weight);
    }

    pub(super) fn is_measured(&self) -> bool {
        self.samples > 0
    }

    pub(super) fn samples(&self) -> u64 {
        self.samples
    }

    /// Returns the mean rate in bytes per second; 0 if the setting was not measured.
    pub(super) fn rate(&self) -> u64 {
        self.rate
    }

    pub(super) fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns the standard error of the mean, in bytes per second. It falls with the number
    /// of samples.
    pub(super) fn error(&self) -> u64 {
        self.error_of(self.distance)
    }

    /// Returns the standard error of the mean processor time.
    pub(super) fn cost_error(&self) -> u64 {
        self.error_of(self.cost_distance)
    }

    /// Returns the standard error of the mean if each sample has this mean distance.
    pub(super) fn error_of(&self, distance: u64) -> u64 {
        /// 256 divided by the square root of the number of samples.
        const ROOTS: [u64; MEMORY as usize + 1] = [256, 256, 181, 148, 128, 114, 105, 97, 91];
        // The mean distance of a normal distribution is 0.8 of its deviation.
        distance.saturating_mul(ROOTS[self.samples as usize]) / 205
    }

    /// Returns whether a rate differs from the mean by more than usual.
    pub(super) fn differs(&self, rate: u64) -> bool {
        let usual = self.rate / 1024 * CHANGED + self.distance.saturating_mul(2);
        rate.abs_diff(self.rate) > usual
    }

    /// Returns how much faster than `other` this setting must be because it uses more processor
    /// time, in 1/1024.
    pub(super) fn price(&self, other: &Record) -> u64 {
        let (cost, least) = (u128::from(self.cost), u128::from(other.cost));
        if least == 0 {
            return 0;
        }
        let more = (cost * 1024 / least).saturating_sub(u128::from(1024 + CHEAPER));
        u64::try_from(more / u128::from(PER_COST))
            .unwrap_or(u64::MAX)
            .min(1024)
    }

    /// Reduces the weight of the mean to that of one sample.
    pub(super) fn doubt(&mut self) {
        self.samples = self.samples.min(1);
    }

    /// Returns how often the length of a window should be doubled, so that its rate varies
    /// less.
    pub(super) fn doublings(&self) -> u32 {
        let varies = |part: u64| self.samples >= 2 && self.distance > self.rate / part;
        [10, 6, 4].into_iter().filter(|part| varies(*part)).count() as u32
    }
}

/// Returns the mean distance after one more sample, where `average` is the mean of those before.
fn distance(distance: u64, average: u64, sample: u64, weight: u64) -> u64 {
    let off = sample.abs_diff(average);
    match weight {
        1 => sample / 1024 * ASSUMED,
        // The second sample replaces the assumption.
        2 => off / 2 + distance / 4,
        _ => mean(distance, off, weight),
    }
}

/// Returns the mean with one more sample, whose weight is `1 / weight`.
pub(super) fn mean(mean: u64, sample: u64, weight: u64) -> u64 {
    let sum = u128::from(mean) * u128::from(weight - 1) + u128::from(sample);
    (sum / u128::from(weight)) as u64
}

/// Returns `value * by / of`; `value` if `of` is 0.
pub(super) fn scaled(value: u64, by: u64, of: u64) -> u64 {
    if of == 0 {
        return value;
    }
    let scaled = u128::from(value) * u128::from(by) / u128::from(of);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// Returns by how much `more` exceeds `least`, in 1/1024 of it.
pub(super) fn excess(more: u64, least: u64) -> u128 {
    match least {
        0 => 0,
        _ => u128::from(more.saturating_sub(least)) * 1024 / u128::from(least),
    }
}

/// What was measured before a change. The conditions may return: another transfer ends, or a peer
/// is no longer slow.
#[derive(Debug, Clone)]
pub(super) struct Conditions {
    pub(super) records: Box<[Record]>,
    pub(super) best: Arm,
    /// The rate of the best setting.
    pub(super) level: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rates: &[u64]) -> Record {
        let mut record = Record::default();
        for rate in rates {
            record.add(Sample {
                rate: *rate,
                cost: 0,
                bytes: 0,
            });
        }
        record
    }

    #[test]
    fn the_mean_is_exact_and_then_follows() {
        assert_eq!(of(&[100, 200, 300]).rate(), 200);
        let moved = of(&[[1000; 8], [2000; 8]].concat());
        assert!((1600..1700).contains(&moved.rate()), "{moved:?}");
    }

    #[test]
    fn more_samples_leave_a_smaller_error() {
        let (few, many) = (of(&[900, 1100]), of(&[900, 1100, 900, 1100, 900, 1100]));
        assert!(few.error() > many.error(), "{few:?} {many:?}");
        assert!(many.error() > 20 && many.error() < 100, "{many:?}");
    }

    #[test]
    fn the_largest_rates_do_not_overflow() {
        let record = of(&[u64::MAX, u64::MAX, 1]);
        assert!(record.rate() > u64::MAX / 2);
        assert!(record.error() > 0);
    }
}
