//! One measurement: bytes in a window of time.

use std::time::Duration;

/// The least number of bytes of a window, unless it lasts [`LONGEST`].
const BYTES: u64 = 8 << 20;
/// The least length of a window. The rate in a shorter one depends mostly on the scheduler.
const SHORTEST: Duration = Duration::from_millis(4);
/// The length after which a window ends with fewer bytes, on a slow device.
const LONGEST: Duration = Duration::from_millis(500);

/// The result of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    /// Bytes per second.
    pub(super) rate: u64,
    /// Nanoseconds of processor time per mebibyte; 0 if it was not measured.
    pub(super) cost: u64,
    pub(super) bytes: u64,
}

/// The running measurement.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Window {
    /// The number of bytes before the window starts. They are of the previous setting.
    skip: u64,
    /// The time of the start, and the processor time that was used until then.
    since: Option<(Duration, Duration)>,
    bytes: u64,
}

impl Window {
    /// Returns a window that starts once `skip` bytes have arrived.
    pub(super) fn after(skip: u64) -> Window {
        Window {
            skip,
            ..Window::default()
        }
    }

    /// Discards the bytes and the time so far.
    pub(super) fn restart(&mut self) {
        (self.since, self.bytes) = (None, 0);
    }

    /// Records that `bytes` have arrived by `now`. Returns the sample of a complete window.
    ///
    /// * `spent` returns the processor time since a fixed moment. It is called only at the
    ///   start and the end of a window.
    /// * `in_flight`: the least number of bytes of a window.
    /// * `known`: the rate of the best setting. A window that is much slower ends early.
    /// * `doublings`: how often the length of a window is doubled, because the rates vary.
    pub(super) fn add(
        &mut self,
        now: Duration,
        spent: &mut dyn FnMut() -> Duration,
        bytes: u64,
        in_flight: u64,
        known: Option<u64>,
        doublings: u32,
    ) -> Option<Sample> {
        let (wanted, shortest) = (BYTES << doublings, SHORTEST * (1 << doublings));
        if self.skip > 0 {
            self.skip = self.skip.saturating_sub(bytes);
            return None;
        }
        let Some((since, spent_before)) = self.since else {
            self.since = Some((now, spent()));
            return None;
        };
        self.bytes += bytes;
        let elapsed = now.saturating_sub(since);
        let enough = if self.bytes >= wanted.max(in_flight) {
            elapsed >= shortest
        } else {
            // Several blocks of a slow device may have arrived together at the end.
            self.bytes >= in_flight
                && (elapsed >= LONGEST || is_much_slower(elapsed, known, wanted, shortest))
        };
        // Without elapsed time there is no rate.
        if !enough || elapsed.is_zero() {
            return None;
        }
        let spent = spent();
        let sample = Sample {
            rate: per(self.bytes, elapsed, 1_000_000_000),
            cost: per_mebibyte(spent.saturating_sub(spent_before), self.bytes),
            bytes: self.bytes,
        };
        (self.since, self.bytes) = (Some((now, spent)), 0);
        Some(sample)
    }
}

/// Returns whether a window already takes at least twice the time of one at a known rate.
fn is_much_slower(elapsed: Duration, known: Option<u64>, wanted: u64, shortest: Duration) -> bool {
    known.is_some_and(|rate| {
        elapsed >= shortest
            && u128::from(rate) * elapsed.as_nanos() >= u128::from(wanted) * 2_000_000_000
    })
}

/// Returns `bytes * unit / elapsed`, where `elapsed` is not 0; at least 1.
fn per(bytes: u64, elapsed: Duration, unit: u128) -> u64 {
    let rate = u128::from(bytes) * unit / elapsed.as_nanos().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX).max(1)
}

fn per_mebibyte(spent: Duration, bytes: u64) -> u64 {
    let cost = spent.as_nanos() * (1 << 20) / u128::from(bytes.max(1));
    u64::try_from(cost).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Adds bytes at a time in milliseconds, with a thousandth of it spent.
    fn add(
        window: &mut Window,
        millis: u64,
        bytes: u64,
        in_flight: u64,
        known: Option<u64>,
    ) -> Option<Sample> {
        let mut spent = || Duration::from_micros(millis);
        let now = Duration::from_millis(millis);
        window.add(now, &mut spent, bytes, in_flight, known, 0)
    }

    #[test]
    fn a_window_has_bytes_and_time() {
        let mut window = Window::after(MIB);
        assert_eq!(add(&mut window, 0, MIB, 0, None), None);
        // The bytes of the previous setting have arrived: time starts.
        assert_eq!(add(&mut window, 10, MIB, 0, None), None);
        assert_eq!(add(&mut window, 12, 16 * MIB, 0, None), None);
        let sample = add(&mut window, 20, 4 * MIB, 0, None).unwrap();
        assert_eq!(sample.rate, 20 * MIB * 100);
        assert_eq!(sample.cost, 500);
        // The next one begins where this one ended.
        let next = add(&mut window, 30, 16 * MIB, 0, None).unwrap();
        assert_eq!(next.rate, 16 * MIB * 100);
    }

    #[test]
    fn a_slow_device_ends_a_window_by_time() {
        let mut window = Window::after(0);
        add(&mut window, 0, MIB, 0, None);
        assert_eq!(add(&mut window, 499, 1000, 0, None), None);
        assert_eq!(add(&mut window, 500, 1000, 4000, None), None);
        assert_eq!(add(&mut window, 501, 2000, 4000, None).unwrap().rate, 7984);
    }

    #[test]
    fn a_window_that_is_much_slower_than_the_best_ends_early() {
        let known = Some(1 << 30);
        let mut window = Window::after(0);
        add(&mut window, 0, MIB, 0, known);
        assert_eq!(add(&mut window, 12, MIB, 0, known), None);
        assert!(add(&mut window, 16, MIB, 0, known).is_some());
    }

    #[test]
    fn a_window_can_be_longer() {
        let mut window = Window::after(0);
        let mut spent = || Duration::ZERO;
        let mut add = |millis, bytes| {
            let now = Duration::from_millis(millis);
            window.add(now, &mut spent, bytes, 0, None, 2)
        };
        add(0, MIB);
        assert_eq!(add(20, 31 * MIB), None);
        assert!(add(21, MIB).is_some());
        assert_eq!(add(30, 64 * MIB), None);
        assert!(add(37, MIB).is_some());
    }

    #[test]
    fn a_restart_discards_what_was_measured() {
        let mut window = Window::after(0);
        add(&mut window, 0, MIB, 0, None);
        add(&mut window, 1, 8 * MIB, 0, None);
        window.restart();
        assert_eq!(add(&mut window, 900, MIB, 0, None), None);
        let sample = add(&mut window, 910, 16 * MIB, 0, None).unwrap();
        assert_eq!(sample.rate, 1600 * MIB);
    }
}
