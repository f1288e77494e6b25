//! The rate, and the time left. All arithmetic is on integers. The caller passes the times,
//! which are counted in microseconds.

use std::time::Duration;

/// The approximate time over which the rate is averaged.
const MEMORY: u128 = 2_000_000;
/// The approximate time over which the time left follows the rate.
const STEADY: u128 = 6_000_000;
/// An estimate that is longer than four times the direct one, and by more than this, is
/// discarded.
const FAR: u128 = 10_000_000;
/// Parts of a byte, so that a slow rate is not rounded to 0.
const PARTS: u128 = 1 << 16;
const SECOND: u128 = 1_000_000;

/// Returns the average of two values over a window of time. The second value has this span of
/// it.
fn blend(old: u128, new: u128, span: u128, window: u128) -> u128 {
    let window = window.max(span).max(1);
    (old.saturating_mul(window - span)).saturating_add(new.saturating_mul(span)) / window
}

/// Bytes per second, smoothed.
#[derive(Debug, Default)]
pub struct Rate {
    last: Option<(Duration, u64)>,
    /// In parts of a byte.
    value: u128,
    seen: u128,
}

impl Rate {
    /// Records that `bytes` were moved by `now`. Returns the rate.
    pub fn update(&mut self, now: Duration, bytes: u64) -> u64 {
        let (then, before) = self.last.unwrap_or((Duration::ZERO, 0));
        let span = now.saturating_sub(then).as_micros();
        let moved = u128::from(bytes.saturating_sub(before)) * PARTS;
        if let Some(recent) = moved.saturating_mul(SECOND).checked_div(span) {
            self.seen = self.seen.saturating_add(span);
            // At first the average over the whole time, later over MEMORY.
            self.value = blend(self.value, recent, span, self.seen.min(MEMORY));
            self.last = Some((now, bytes));
        }
        u64::try_from(self.value / PARTS).unwrap_or(u64::MAX)
    }
}

/// The time left. It counts down, and follows changes of the rate slowly.
#[derive(Debug, Default)]
pub struct Left {
    /// The time of the last estimate, and the estimate.
    last: Option<(Duration, u128)>,
    seen: u128,
}

impl Left {
    /// Estimates the time for the `remaining` bytes at this rate. `None`: no bytes move.
    /// Earlier estimates are then discarded.
    pub fn update(&mut self, now: Duration, remaining: u64, rate: u64) -> Option<Duration> {
        if rate == 0 && remaining > 0 {
            *self = Left::default();
            return None;
        }
        let direct = u128::from(remaining) * SECOND / u128::from(rate.max(1));
        let estimate = match self.last {
            // At the end, the time left is known.
            _ if remaining == 0 => 0,
            None => direct,
            Some((then, left)) => {
                let span = now.saturating_sub(then).as_micros();
                self.seen = self.seen.saturating_add(span);
                let expected = left.saturating_sub(span);
                // Estimates of different times are not blended: the bytes before had
                // another rate, such as that of many small files.
                match expected > direct.saturating_mul(4).saturating_add(FAR) {
                    true => direct,
                    false => blend(expected, direct, span, self.seen.min(STEADY)),
                }
            }
        };
        self.last = Some((now, estimate));
        let seconds = estimate.div_ceil(SECOND);
        Some(Duration::from_secs(
            u64::try_from(seconds).unwrap_or(u64::MAX),
        ))
    }

    /// Discards the estimates, because the number of remaining bytes has changed.
    pub fn reset(&mut self) {
        *self = Left::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_from_a_slow_start_is_discarded() {
        let at = Duration::from_secs;
        let mut left = Left::default();
        // 60 MB at 200 bytes a second, then at 10 MB a second.
        for second in 1..5 {
            left.update(at(second), 60_000_000, 200);
        }
        let soon = left.update(at(6), 50_000_000, 10_000_000).unwrap();
        assert!(soon <= at(6), "{soon:?}");
    }

    const S: Duration = Duration::from_secs(1);
    const TENTH: Duration = Duration::from_millis(100);

    #[test]
    fn the_rate_is_steady_and_forgets() {
        let mut rate = Rate::default();
        assert_eq!(rate.update(S, 1000), 1000);
        assert_eq!(rate.update(2 * S, 2000), 1000);
        for i in 3..40 {
            rate.update(i * S, 2000);
        }
        assert_eq!(rate.update(40 * S, 2000), 0);
        assert_eq!(Rate::default().update(Duration::ZERO, 5), 0);
    }

    #[test]
    fn a_rate_of_one_byte_is_not_rounded_away() {
        let mut rate = Rate::default();
        let mut now = Duration::ZERO;
        for tick in 1..=600u64 {
            now += TENTH;
            let seen = rate.update(now, 3 * tick / 10);
            assert!(tick < 100 || (2..=3).contains(&seen), "{tick}: {seen}");
        }
    }

    #[test]
    fn numbers_of_any_size() {
        let mut rate = Rate::default();
        let moved = rate.update(Duration::from_micros(1), u64::MAX);
        assert_eq!(moved, u64::MAX);
        rate.update(Duration::MAX, u64::MAX);
        let mut left = Left::default();
        let most = left.update(S, u64::MAX, 1).unwrap();
        assert_eq!(most, Duration::from_secs(u64::MAX));
        assert!(left.update(Duration::MAX, u64::MAX, 1).is_some());
        assert!(left.update(Duration::ZERO, u64::MAX, 1).is_some());
    }

    #[test]
    fn a_steady_rate_counts_down() {
        let mut left = Left::default();
        for i in 0..10u32 {
            let remaining = 1000 - 100 * u64::from(i);
            assert_eq!(left.update(i * S, remaining, 100), Some((10 - i) * S));
        }
        assert_eq!(left.update(10 * S, 0, 100), Some(Duration::ZERO));
        assert_eq!(left.update(11 * S, 0, 0), Some(Duration::ZERO));
    }

    /// A rate that alternates between two values, and one that drops to a tenth.
    #[test]
    fn it_does_not_jump() {
        let mut left = Left::default();
        let mut remaining = 1_000_000u64;
        let mut now = Duration::ZERO;
        let mut before: Option<Duration> = None;
        for tick in 0..600u32 {
            now += TENTH;
            let rate = match (tick < 300, tick % 2 == 0) {
                (true, true) => 5_000,
                (true, false) => 15_000,
                (false, _) => 1_000,
            };
            remaining -= rate / 10;
            let shown = left.update(now, remaining, rate).unwrap();
            if let Some(before) = before.filter(|_| tick > 60) {
                let jump = shown.abs_diff(before);
                // A sixtieth of the difference between two estimates, and the countdown.
                assert!(jump <= 13 * S, "{tick}: {before:?} {shown:?}");
                assert!(tick >= 300 || jump <= 2 * S, "{tick}: {before:?} {shown:?}");
            }
            before = Some(shown);
        }
        // It has arrived at the new rate.
        let direct = Duration::from_secs(remaining / 1_000);
        assert!(
            before.unwrap().abs_diff(direct) <= direct / 10,
            "{before:?}"
        );
    }

    #[test]
    fn a_stop_forgets() {
        let mut left = Left::default();
        assert_eq!(left.update(S, 1000, 10), Some(100 * S));
        assert_eq!(left.update(2 * S, 1000, 0), None);
        assert_eq!(left.update(3 * S, 1000, 1000), Some(S));
        left.reset();
        assert_eq!(left.update(3 * S, 5000, 1000), Some(5 * S));
    }
}
