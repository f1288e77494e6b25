//! Adapts block size and queue depth to the device: deeper is not always
//! faster, nor are larger blocks (on one disk 4 × 1 MiB in flight beat 8 × 1
//! MiB by 1.4 times), so both are varied and the best is kept.
//!
//! Time is passed in with each completion, so that tests can simulate devices.

use std::time::Duration;

/// Block sizes to try, in bytes.
const BLOCKS: [usize; 5] = [256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20];
/// Queue depths to try.
const DEPTHS: [u32; 4] = [2, 4, 8, 16];
/// Bytes over which a setting is measured …
const WINDOW: u64 = 32 << 20;
/// … or this long, on a slow device.
const LONGEST: Duration = Duration::from_millis(500);
/// A smaller gain than this is ignored, even on a device whose rate never
/// varies.
const MARGIN: f64 = 0.03;
/// Windows at the best setting between two probes of another one.
const BETWEEN_PROBES: u32 = 32;
/// A device that is this much slower than before, beyond its usual variation,
/// for so many windows in a row, is measured again.
const CHANGED: f64 = 0.75;
const IN_A_ROW: u32 = 3;

/// The blocks in flight: number and size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) block: usize,
    pub(crate) depth: u32,
}

/// Indices into `BLOCKS` and `DEPTHS`.
type Cell = (usize, usize);

/// Hill climbing from a setting that does well on most disks to the best
/// neighbour, as long as there is a better one.
#[derive(Debug)]
pub(crate) struct Adaptive {
    memory: usize,
    /// The caller's block, which is fixed.
    block: Option<usize>,
    /// The best setting so far, and the one being measured.
    best: Cell,
    current: Cell,
    /// Bytes per second, if measured.
    rates: [[Option<f64>; DEPTHS.len()]; BLOCKS.len()],
    /// Bytes of the previous setting still to arrive.
    skip: u64,
    /// Bytes that have arrived.
    arrived: u64,
    /// Start of the window, and the bytes that have arrived in it.
    window: Option<(Duration, u64)>,
    /// Relative difference between consecutive windows at the best setting.
    variation: f64,
    /// Windows measured so far.
    windows: u32,
    /// The rate of the last window, if it was at the best setting.
    last: Option<f64>,
    /// Consecutive windows that were much slower than the best setting's rate.
    slow: u32,
    /// Windows at the best setting since the last probe.
    since_probe: u32,
    /// The neighbour to probe next.
    probe: usize,
}

impl Adaptive {
    /// With no more than `memory` bytes in flight; with blocks of this size
    /// only, if one is given.
    pub(crate) fn new(memory: usize, block: Option<usize>) -> Adaptive {
        let mut adaptive = Adaptive {
            memory,
            block,
            best: (0, 0),
            current: (0, 0),
            rates: Default::default(),
            skip: 0,
            arrived: 0,
            window: None,
            variation: 0.0,
            windows: 0,
            last: None,
            slow: 0,
            since_probe: 0,
            probe: 0,
        };
        // Large blocks: each costs the same CPU time. 2 × 4 MiB, or as much of
        // it as the memory allows.
        let start = [(4, 0), (3, 0), (2, 0), (1, 0), (0, 0)];
        let mut start = start
            .into_iter()
            .filter(|place| block.is_none() || place.0 == 0);
        let fits = start.find(|place| adaptive.fits(*place));
        adaptive.best = fits.unwrap_or((0, 0));
        adaptive.current = adaptive.best;
        adaptive.skip = adaptive.in_flight(adaptive.best);
        adaptive
    }

    /// Returns the setting to use from now on. The first blocks are small, so
    /// that a slow device is detected before much is in flight.
    pub(crate) fn setting(&self) -> Setting {
        let setting = self.at(self.current);
        if self.block.is_some() {
            return setting;
        }
        let small = BLOCKS.iter().rev().find(|b| **b as u64 <= self.arrived / 2);
        Setting {
            block: setting.block.min(*small.unwrap_or(&BLOCKS[0])),
            ..setting
        }
    }

    fn at(&self, (block, depth): Cell) -> Setting {
        Setting {
            block: self.block.unwrap_or(BLOCKS[block]),
            depth: DEPTHS[depth],
        }
    }

    fn in_flight(&self, place: Cell) -> u64 {
        let Setting { block, depth } = self.at(place);
        block as u64 * u64::from(depth)
    }

    fn fits(&self, place: Cell) -> bool {
        self.in_flight(place) <= self.memory as u64
    }

    fn rate(&self, (block, depth): Cell) -> Option<f64> {
        self.rates[block][depth]
    }

    /// Records that `bytes` have arrived; `now` is time since any fixed moment.
    pub(crate) fn learn(&mut self, now: Duration, bytes: u64) {
        self.arrived += bytes;
        if self.skip > 0 {
            self.skip = self.skip.saturating_sub(bytes);
            return;
        }
        let Some((since, so_far)) = &mut self.window else {
            self.window = Some((now, 0));
            return;
        };
        *so_far += bytes;
        let (elapsed, so_far) = (now.saturating_sub(*since), *so_far);
        // A rate needs a measurable time; and the last blocks of a slow device
        // may have arrived together.
        let enough =
            so_far >= WINDOW || (elapsed >= LONGEST && so_far >= self.in_flight(self.current));
        if !enough || elapsed.is_zero() {
            return;
        }
        self.measured(so_far as f64 / elapsed.as_secs_f64());
        self.window = self.window.map(|_| (now, 0));
    }

    fn measured(&mut self, rate: f64) {
        if self.current == self.best {
            self.measured_best(rate);
        } else {
            let (block, depth) = self.current;
            self.rates[block][depth] = Some(rate);
            self.last = None;
            if self.is_better(rate) {
                self.best = self.current;
                self.since_probe = 0;
            }
        }
        let next = self.next();
        self.set_current(next);
    }

    /// Whether a rate exceeds that of the best setting by more than the usual
    /// variation.
    fn is_better(&self, rate: f64) -> bool {
        let margin = 1.0 + MARGIN.max(2.0 * self.variation);
        self.rate(self.best)
            .is_some_and(|best| rate > best * margin)
    }

    /// One window alone says little about a device shared with other users: the
    /// rate of the best setting is a mean, and so is its variation.
    fn measured_best(&mut self, rate: f64) {
        if let Some(last) = self.last.replace(rate) {
            let differs = (rate - last).abs() / rate.max(last);
            self.variation = if self.variation == 0.0 {
                differs
            } else {
                self.variation * 0.75 + differs * 0.25
            };
        }
        let (block, depth) = self.best;
        let best = self.rates[block][depth].get_or_insert(rate);
        let slow = rate < *best * CHANGED * (1.0 - self.variation);
        self.slow = if slow { self.slow + 1 } else { 0 };
        if self.slow >= IN_A_ROW {
            self.forget();
            self.rates[block][depth] = Some(rate);
        } else if !slow {
            *best = *best * 0.75 + rate * 0.25;
        }
    }

    /// Whether a device of this rate completes the bytes in flight within a
    /// second, which bounds the time of a cancellation.
    fn is_soon_done(&self, place: Cell, rate: f64) -> bool {
        self.in_flight(place) as f64 <= rate || self.shrink(place) == place
    }

    /// Halves the bytes in flight; returns the same setting if that is
    /// impossible.
    fn shrink(&self, (block, depth): Cell) -> Cell {
        if depth > 0 {
            (block, depth - 1)
        } else {
            (block.saturating_sub(1), depth)
        }
    }

    /// Returns the setting to measure next: a neighbour that was not measured,
    /// or was better than the best setting is now; or the best setting.
    fn next(&mut self) -> Cell {
        self.windows += 1;
        if self.windows < 2 {
            // Only two in a row show the variation.
            return self.best;
        }
        let rate = self.rate(self.best).unwrap_or(f64::INFINITY);
        while !self.is_soon_done(self.best, rate) {
            self.best = self.shrink(self.best);
            self.rates[self.best.0][self.best.1].get_or_insert(rate);
        }
        let promising = self
            .neighbours()
            .filter(|place| self.is_soon_done(*place, rate))
            .find(|place| self.rate(*place).is_none_or(|rate| self.is_better(rate)));
        if let Some(place) = promising {
            return place;
        }
        self.since_probe += 1;
        if self.since_probe > BETWEEN_PROBES {
            self.since_probe = 0;
            self.probe += 1;
            let soon = |place: &Cell| self.is_soon_done(*place, rate);
            let all: Vec<Cell> = self.neighbours().filter(soon).collect();
            if let Some(place) = all.get(self.probe % all.len().max(1)) {
                return *place;
            }
        }
        self.best
    }

    fn set_current(&mut self, place: Cell) {
        if place != self.current {
            // Blocks submitted before must not count for the new setting, nor
            // the time in which the device adjusts to it.
            self.skip = self.in_flight(self.current).max(self.in_flight(place));
            self.current = place;
            self.window = None;
        }
    }

    fn forget(&mut self) {
        self.rates = Default::default();
        self.variation = 0.0;
        (self.windows, self.slow, self.since_probe) = (0, 0, 0);
    }

    /// One step in block size, in depth, or in both in opposite directions.
    fn neighbours(&self) -> impl Iterator<Item = Cell> + use<> {
        const STEPS: [(isize, isize); 6] = [(0, 1), (0, -1), (-1, 0), (1, 0), (-1, 1), (1, -1)];
        let (block, depth) = self.best;
        let blocks = if self.block.is_some() {
            1
        } else {
            BLOCKS.len()
        };
        let (memory, fixed) = (self.memory, self.block);
        STEPS.into_iter().filter_map(move |(b, d)| {
            let place = (block.checked_add_signed(b)?, depth.checked_add_signed(d)?);
            if place.0 >= blocks || place.1 >= DEPTHS.len() {
                return None;
            }
            let bytes = fixed.unwrap_or(BLOCKS[place.0]) * DEPTHS[place.1] as usize;
            (bytes <= memory).then_some(place)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::LARGEST_ARENA;

    const MIB: u64 = 1 << 20;

    /// A device: bytes per second with this setting, at this offset.
    type Device = fn(Setting, u64) -> f64;

    /// A pipelined device of this rate at most, with `latency` for each block.
    fn pipelined(setting: Setting, latency: f64, most: f64) -> f64 {
        let bytes = setting.block as f64;
        (f64::from(setting.depth) * bytes / (latency + bytes / most)).min(most)
    }

    fn ssd(setting: Setting, _: u64) -> f64 {
        pipelined(setting, 0.004, 2e9)
    }

    /// A disk that gets slower past 4 MiB in flight.
    fn shallow(setting: Setting, _: u64) -> f64 {
        let in_flight = setting.block as f64 * f64::from(setting.depth) / 4e6;
        9e8 / in_flight.max(1.0).sqrt() * (0.6 + 0.1 * f64::from(setting.depth.min(4)))
    }

    fn likes_small_blocks(setting: Setting, _: u64) -> f64 {
        pipelined(setting, 0.001, 3e9) / (1.0 + setting.block as f64 / 2e6)
    }

    fn likes_large_blocks(setting: Setting, _: u64) -> f64 {
        1e9 * setting.block as f64 / (setting.block as f64 + 1e6) / f64::from(setting.depth).sqrt()
    }

    fn flat(_: Setting, _: u64) -> f64 {
        1e8
    }

    fn slow(_: Setting, _: u64) -> f64 {
        1e6
    }

    /// A pseudo-random number between -1 and 1.
    fn noise(at: u64) -> f64 {
        let mixed = at.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
        (mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as f64 / (1u64 << 23) as f64 - 1.0
    }

    fn noisy(setting: Setting, at: u64) -> f64 {
        shallow(setting, at) * (1.0 + 0.3 * noise(at / (8 * MIB)))
    }

    /// Simulates bytes 0 to `to`; returns the seconds from `from` to `to`.
    fn run(adaptive: &mut Adaptive, device: Device, from: u64, to: u64) -> f64 {
        let (mut at, mut now) = (0, 0.0);
        let mut began = 0.0;
        while at < to {
            let setting = adaptive.setting();
            assert!(setting.block as u64 * u64::from(setting.depth) <= adaptive.memory as u64);
            now += setting.block as f64 / device(setting, at);
            at += setting.block as u64;
            adaptive.learn(Duration::from_secs_f64(now), setting.block as u64);
            if at <= from {
                began = now;
            }
        }
        now - began
    }

    fn best(device: Device, from: u64, to: u64) -> f64 {
        let settings = BLOCKS
            .iter()
            .flat_map(|block| DEPTHS.iter().map(|depth| (*block, *depth)));
        let fits = settings.filter(|(block, depth)| block * *depth as usize <= LARGEST_ARENA);
        let seconds = fits.map(|(block, depth)| {
            let setting = Setting { block, depth };
            let blocks = (from..to).step_by(block);
            blocks.map(|at| block as f64 / device(setting, at)).sum()
        });
        seconds.fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn as_good_as_the_best_fixed_setting_after_256_mib() {
        let devices: [(&str, Device); 6] = [
            ("ssd", ssd),
            ("shallow", shallow),
            ("small blocks", likes_small_blocks),
            ("large blocks", likes_large_blocks),
            ("flat", flat),
            ("slow", slow),
        ];
        for (name, device) in devices {
            let mut adaptive = Adaptive::new(LARGEST_ARENA, None);
            let (from, to) = (256 * MIB, 4096 * MIB);
            let ratio = best(device, from, to) / run(&mut adaptive, device, from, to);
            assert!(ratio >= 0.95, "{name}: {ratio:.3} with {:?}", adaptive.best);
        }
    }

    /// If windows differ by more than settings do, it stays near where it began
    /// instead of following each of them.
    #[test]
    fn noise_is_not_followed() {
        let mut adaptive = Adaptive::new(LARGEST_ARENA, None);
        let (from, to) = (256 * MIB, 4096 * MIB);
        let ratio = best(noisy, from, to) / run(&mut adaptive, noisy, from, to);
        assert!(ratio >= 0.9, "{ratio:.3} with {:?}", adaptive.best);
    }

    #[test]
    fn a_device_that_changes_is_learnt_anew() {
        fn changing(setting: Setting, at: u64) -> f64 {
            if at < 1024 * MIB {
                ssd(setting, at)
            } else {
                0.2 * likes_large_blocks(setting, at)
            }
        }
        let mut adaptive = Adaptive::new(LARGEST_ARENA, None);
        let (from, to) = (1536 * MIB, 4096 * MIB);
        let ratio = best(changing, from, to) / run(&mut adaptive, changing, from, to);
        assert!(ratio >= 0.95, "{ratio:.3} with {:?}", adaptive.best);
    }

    #[test]
    fn a_slow_device_has_little_in_hand() {
        let mut adaptive = Adaptive::new(LARGEST_ARENA, None);
        run(&mut adaptive, slow, 0, 64 * MIB);
        assert!(adaptive.in_flight(adaptive.current) <= MIB, "{adaptive:?}");
    }

    #[test]
    fn the_callers_block_is_kept() {
        let mut adaptive = Adaptive::new(LARGEST_ARENA, Some(12288));
        run(&mut adaptive, ssd, 0, 256 * MIB);
        assert_eq!(
            adaptive.setting(),
            Setting {
                block: 12288,
                depth: 16
            }
        );
    }

    #[test]
    fn little_memory_is_kept_to() {
        let mut adaptive = Adaptive::new(1 << 20, None);
        run(&mut adaptive, ssd, 0, 512 * MIB);
        assert_eq!(adaptive.in_flight(adaptive.best), 1 << 20);
    }
}
