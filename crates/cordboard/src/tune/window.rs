//! One measurement: bytes in a window of time.

use std::time::Duration;

/// The least number of bytes of a window, unless it lasts [`LONGEST`].
pub(super) const BYTES: u64 = 4 << 20;
/// The least length of a window. The rate in a shorter one depends mostly on the scheduler.
const SHORTEST: Duration = Duration::from_millis(4);
/// The length after which a window ends with fewer bytes, on a slow device.
const LONGEST: Duration = Duration::from_millis(500);

/// A setting is slower than the best one if it takes this many eighths of its time. A window then
/// ends early.
const SLOWER: u64 = 9;
/// A setting is much slower if it takes this many eighths. The bytes before its window, or a window
/// that is not doubled, then suffice.
const MUCH_SLOWER: u64 = 10;
/// The bytes before a window end early if the setting is slower, and they have taken this many
/// eighths of the best setting's time for all bytes to skip.
const LOOK: u64 = 2;

/// The result of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Bytes per second; if [inverted](Sample::inverted), per second of processor time.
    pub(super) rate: u64,
    /// Nanoseconds of processor time per mebibyte, or of time if inverted; 0 if it was not measured.
    pub(crate) cost: u64,
    /// The bytes moved, with those before the window.
    pub(super) bytes: u64,
}

impl Sample {
    /// Returns a sample of `bytes`, which is not 0, in this time and processor time.
    pub(crate) fn of(bytes: u64, elapsed: Duration, spent: Duration) -> Sample {
        Sample {
            rate: per(bytes, elapsed, 1_000_000_000),
            cost: cost(spent, bytes),
            bytes,
        }
    }

    /// Exchanges time and processor time.
    pub(super) fn inverted(self) -> Sample {
        Sample {
            rate: per_mebibyte(self.cost),
            cost: per_mebibyte(self.rate),
            ..self
        }
    }
}

/// The start of a measurement.
#[derive(Debug, Clone, Copy)]
struct Start {
    at: Duration,
    /// The processor time that was used until then.
    spent: Duration,
    /// The bytes that had arrived.
    bytes: u64,
}

/// The running measurement.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Window {
    /// The number of bytes before the window starts. They are of the previous setting.
    skip: u64,
    /// The number of those that have arrived, and the first arrival.
    skipped: u64,
    skipped_since: Option<Start>,
    since: Option<Start>,
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

    /// Records that `bytes` have arrived by `now`. Returns the sample of a complete window.
    ///
    /// `spent` returns the processor time since a fixed moment. It is called only at the start
    /// and the end of a window, and at the start of the bytes before it.
    pub(super) fn add(
        &mut self,
        now: Duration,
        spent: &mut dyn FnMut() -> Duration,
        bytes: u64,
        extent: Extent,
    ) -> Option<Sample> {
        let least = extent.least;
        let wanted = (BYTES << extent.doublings).max(least);
        let shortest = SHORTEST * (1 << extent.doublings);
        if self.skip > 0 {
            let mut start = |bytes| Start {
                at: now,
                spent: spent(),
                bytes,
            };
            let first = *self.skipped_since.get_or_insert_with(|| start(bytes));
            let whole = self.skip.saturating_add(self.skipped);
            self.skip = self.skip.saturating_sub(bytes);
            self.skipped = self.skipped.saturating_add(bytes);
            let elapsed = now.saturating_sub(first.at);
            let is_slower = extent.is_slower(elapsed, self.skipped, SLOWER);
            // Only a faster setting finds buffers that the previous one has left empty.
            if is_slower && extent.is_slower(elapsed, whole, LOOK) {
                let since_first = self.skipped - first.bytes;
                let is_much_slower = extent.is_slower(elapsed, since_first, MUCH_SLOWER);
                // Blocks in flight are of the previous setting.
                if least == 0 && since_first > 0 && elapsed >= shortest && is_much_slower {
                    return Some(self.end(first, since_first, now, spent()));
                }
                self.skip = 0;
            }
            if self.skip == 0 {
                self.since = Some(start(0));
            }
            return None;
        }
        let Some(since) = self.since else {
            self.since = Some(Start {
                at: now,
                spent: spent(),
                bytes: 0,
            });
            return None;
        };
        self.bytes += bytes;
        let elapsed = now.saturating_sub(since.at);
        let enough = if self.bytes >= wanted {
            elapsed >= shortest
        } else {
            let is_slower = elapsed >= shortest && extent.is_slower(elapsed, wanted, SLOWER);
            // Its longer window would tell nothing more.
            let is_much_slower = elapsed >= SHORTEST
                && extent.is_slower(elapsed, BYTES.max(least), SLOWER)
                && extent.is_slower(elapsed, self.bytes, MUCH_SLOWER);
            // Several blocks of a slow device may have arrived together at the end.
            self.bytes >= least && (elapsed >= LONGEST || is_slower || is_much_slower)
        };
        // Without elapsed time there is no rate.
        if !enough || elapsed.is_zero() {
            return None;
        }
        Some(self.end(since, self.bytes, now, spent()))
    }

    /// Ends the window, in which `bytes` have arrived since its start, and begins the next one.
    fn end(&mut self, start: Start, bytes: u64, now: Duration, spent: Duration) -> Sample {
        let elapsed = now.saturating_sub(start.at);
        let sample = Sample {
            bytes: self.bytes.saturating_add(self.skipped),
            ..Sample::of(bytes, elapsed, spent.saturating_sub(start.spent))
        };
        (self.skip, self.skipped, self.bytes) = (0, 0, 0);
        self.since = Some(Start {
            at: now,
            spent,
            bytes: 0,
        });
        sample
    }
}

/// The length of a window.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Extent {
    /// The least number of bytes.
    pub(super) least: u64,
    /// The rate of the best setting, if the window is of another one. It ends early if it is
    /// [`SLOWER`].
    pub(super) known: Option<u64>,
    /// How often the length is doubled, because the rates vary.
    pub(super) doublings: u32,
}

impl Extent {
    /// Returns whether `elapsed` is at least this many eighths of the time of these bytes at
    /// the known rate.
    fn is_slower(&self, elapsed: Duration, bytes: u64, eighths: u64) -> bool {
        let Some(rate) = self.known else {
            return false;
        };
        let time = u128::from(bytes) * u128::from(eighths) * 125_000_000;
        u128::from(rate) * elapsed.as_nanos() >= time
    }
}

/// Returns `bytes * unit / elapsed`, where `elapsed` is not 0; at least 1.
fn per(bytes: u64, elapsed: Duration, unit: u128) -> u64 {
    let rate = u128::from(bytes) * unit / elapsed.as_nanos().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX).max(1)
}

/// Returns the nanoseconds of each mebibyte.
fn cost(spent: Duration, bytes: u64) -> u64 {
    let cost = spent.as_nanos() * (1 << 20) / u128::from(bytes.max(1));
    u64::try_from(cost).unwrap_or(u64::MAX)
}

/// Returns the nanoseconds of a mebibyte at this rate, or the rate of these nanoseconds.
pub(super) fn per_mebibyte(other: u64) -> u64 {
    (1_000_000_000 << 20) / other.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Adds bytes at a time in milliseconds, with a thousandth of it spent.
    fn add(window: &mut Window, millis: u64, bytes: u64, extent: Extent) -> Option<Sample> {
        let mut spent = || Duration::from_micros(millis);
        window.add(Duration::from_millis(millis), &mut spent, bytes, extent)
    }

    const PLAIN: Extent = Extent {
        least: 0,
        known: None,
        doublings: 0,
    };

    #[test]
    fn a_window_has_bytes_and_time() {
        let mut window = Window::after(MIB);
        // The bytes of the previous setting have arrived: time starts.
        assert_eq!(add(&mut window, 10, MIB, PLAIN), None);
        assert_eq!(add(&mut window, 12, 16 * MIB, PLAIN), None);
        let sample = add(&mut window, 20, 4 * MIB, PLAIN).unwrap();
        assert_eq!(sample.rate, 20 * MIB * 100);
        assert_eq!((sample.cost, sample.bytes), (500, 21 * MIB));
        // The next one begins where this one ended.
        let next = add(&mut window, 30, 16 * MIB, PLAIN).unwrap();
        assert_eq!((next.rate, next.bytes), (16 * MIB * 100, 16 * MIB));
    }

    #[test]
    fn a_slow_device_ends_a_window_by_time() {
        let mut window = Window::after(0);
        let least = Extent {
            least: 4000,
            ..PLAIN
        };
        add(&mut window, 0, MIB, PLAIN);
        assert_eq!(add(&mut window, 499, 1000, PLAIN), None);
        assert_eq!(add(&mut window, 500, 1000, least), None);
        assert_eq!(add(&mut window, 501, 2000, least).unwrap().rate, 7984);
    }

    /// The best setting takes 3.9 ms for the bytes of a window.
    const KNOWN: Extent = Extent {
        known: Some(1 << 30),
        ..PLAIN
    };

    #[test]
    fn a_window_that_is_slower_than_the_best_ends_early() {
        let mut window = Window::after(0);
        add(&mut window, 0, MIB, KNOWN);
        assert_eq!(add(&mut window, 4, MIB, KNOWN), None);
        assert!(add(&mut window, 5, MIB, KNOWN).is_some());
    }

    /// The best setting takes 15.6 ms for the bytes before the window.
    #[test]
    fn a_slower_setting_skips_fewer_bytes() {
        let mut window = Window::after(16 * MIB);
        add(&mut window, 0, 1, KNOWN);
        // The same rate as the best one, and then a little slower.
        assert_eq!(add(&mut window, 5, 5 * MIB, KNOWN), None);
        assert_eq!(add(&mut window, 8, 2 * MIB, KNOWN), None);
        // The window starts, and ends early.
        assert_eq!(add(&mut window, 12, MIB, KNOWN), None);
        let sample = add(&mut window, 13, MIB, KNOWN).unwrap();
        assert_eq!((sample.rate, sample.bytes), (400 * MIB, 9 * MIB + 1));
    }

    /// The buffers hold bytes of a faster setting, so this one is not faster than these bytes.
    #[test]
    fn a_much_slower_setting_needs_no_bytes_after_those_to_skip() {
        let sample = |extent| {
            let mut window = Window::after(16 * MIB);
            assert_eq!(add(&mut window, 1, MIB, extent), None);
            let early = add(&mut window, 4, MIB / 2, extent);
            assert_eq!(early, None, "the time is too short");
            add(&mut window, 6, MIB / 2, extent)
        };
        let found = sample(KNOWN).unwrap();
        assert_eq!((found.rate, found.cost), (200 * MIB, 5000));
        assert_eq!(found.bytes, 2 * MIB);
        // Blocks in flight are those of the setting before it.
        assert_eq!(sample(Extent { least: 1, ..KNOWN }), None);
        assert_eq!(sample(PLAIN), None);
    }

    #[test]
    fn the_window_of_a_much_slower_setting_is_not_longer() {
        let ends = |bytes| {
            let mut window = Window::after(0);
            let longer = Extent {
                doublings: 2,
                ..KNOWN
            };
            add(&mut window, 0, MIB, longer);
            assert_eq!(add(&mut window, 4, bytes / 2, longer), None);
            add(&mut window, 5, bytes / 2, longer).is_some()
        };
        assert!(ends(4 * MIB));
        assert!(!ends(5 * MIB));
    }

    #[test]
    fn time_and_processor_time_are_exchanged() {
        let sample = Sample {
            rate: 500 * MIB,
            cost: 1_000_000,
            bytes: MIB,
        };
        let inverted = sample.inverted();
        assert_eq!((inverted.rate, inverted.cost), (1000 * MIB, 2_000_000));
        assert_eq!(inverted.inverted(), sample);
    }

    #[test]
    fn a_window_can_be_longer() {
        let mut window = Window::after(0);
        let longer = Extent {
            doublings: 2,
            ..PLAIN
        };
        add(&mut window, 0, MIB, longer);
        assert_eq!(add(&mut window, 20, 15 * MIB, longer), None);
        assert!(add(&mut window, 21, MIB, longer).is_some());
        assert_eq!(add(&mut window, 30, 32 * MIB, longer), None);
        assert!(add(&mut window, 37, MIB, longer).is_some());
    }
}
