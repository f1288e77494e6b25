//! Block size and depth as the device shows: deeper is not always faster, nor
//! are larger blocks (on one disk 4 × 1 MiB in flight beat 8 × 1 MiB by 1.4
//! times), so both are tried and the best is kept.
//!
//! Time is given with each completion, so that tests have devices of their own
//! making.

use std::time::Duration;

/// Block sizes that are tried, in bytes.
const BLOCKS: [usize; 5] = [256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20];
/// Numbers of blocks in flight that are tried.
const DEPTHS: [u32; 4] = [2, 4, 8, 16];
/// Bytes over which a setting is measured …
const WINDOW: u64 = 32 << 20;
/// … or as long as this, on a slow device.
const LONGEST: Duration = Duration::from_millis(500);
/// What is faster by less than this is not believed, even on a device whose
/// rate never varies.
const MARGIN: f64 = 0.03;
/// Windows at the best setting between two looks at another one.
const REST: u32 = 32;
/// A device that is so much slower than it was, beyond its usual variation, for
/// so many windows in a row, is another device.
const CHANGED: f64 = 0.75;
const IN_A_ROW: u32 = 3;

/// What is in flight: so many blocks of this many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) block: usize,
    pub(crate) depth: u32,
}

/// Indices into `BLOCKS` and `DEPTHS`.
type Cell = (usize, usize);

/// Climbs from a setting that does well on most disks to the best one among
/// its neighbours, as long as there is a better one.
#[derive(Debug)]
pub(crate) struct Adaptive {
    memory: usize,
    /// The caller's block, which is not to be changed.
    block: Option<usize>,
    /// The best place so far, and the one that is being measured.
    home: Cell,
    trial: Cell,
    /// Bytes a second, where measured.
    rates: [[Option<f64>; DEPTHS.len()]; BLOCKS.len()],
    /// Bytes of the setting before that are still to arrive.
    skip: u64,
    /// Bytes that have arrived.
    arrived: u64,
    /// When the window began, and what has arrived in it.
    window: Option<(Duration, u64)>,
    /// How much one window differs from the next at home, as a share.
    variation: f64,
    /// Windows measured so far.
    windows: u32,
    /// The last window was at home, at this rate.
    last: Option<f64>,
    /// Windows in a row that were much slower than home is.
    slow: u32,
    /// Windows at home since the last look around.
    rested: u32,
    /// Which neighbour is looked at next.
    turn: usize,
}

impl Adaptive {
    /// With no more than `memory` bytes in flight; with blocks of this size
    /// only, if there is one.
    pub(crate) fn new(memory: usize, block: Option<usize>) -> Adaptive {
        let mut adaptive = Adaptive {
            memory,
            block,
            home: (0, 0),
            trial: (0, 0),
            rates: Default::default(),
            skip: 0,
            arrived: 0,
            window: None,
            variation: 0.0,
            windows: 0,
            last: None,
            slow: 0,
            rested: 0,
            turn: 0,
        };
        // Large blocks: each costs the processor the same. 2 × 4 MiB, or as
        // much of it as the memory allows.
        let start = [(4, 0), (3, 0), (2, 0), (1, 0), (0, 0)];
        let mut start = start
            .into_iter()
            .filter(|place| block.is_none() || place.0 == 0);
        let fits = start.find(|place| adaptive.fits(*place));
        adaptive.home = fits.unwrap_or((0, 0));
        adaptive.trial = adaptive.home;
        adaptive.skip = adaptive.in_flight(adaptive.home);
        adaptive
    }

    /// What is to be in flight from now on. The first blocks are small ones: a
    /// slow device is found out before much is in its hands.
    pub(crate) fn setting(&self) -> Setting {
        let setting = self.at(self.trial);
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

    /// So many bytes have arrived; `now` is time since any fixed moment.
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
        // A device that is never slow cannot be told apart; and the last
        // blocks of a slow one may have come together.
        let enough =
            so_far >= WINDOW || (elapsed >= LONGEST && so_far >= self.in_flight(self.trial));
        if !enough || elapsed.is_zero() {
            return;
        }
        self.measured(so_far as f64 / elapsed.as_secs_f64());
        self.window = self.window.map(|_| (now, 0));
    }

    fn measured(&mut self, rate: f64) {
        if self.trial == self.home {
            self.measured_home(rate);
        } else {
            let (block, depth) = self.trial;
            self.rates[block][depth] = Some(rate);
            self.last = None;
            if self.is_better(rate) {
                self.home = self.trial;
                self.rested = 0;
            }
        }
        let next = self.next();
        self.go(next);
    }

    /// Better than home by more than home itself varies.
    fn is_better(&self, rate: f64) -> bool {
        let margin = 1.0 + MARGIN.max(2.0 * self.variation);
        self.rate(self.home)
            .is_some_and(|home| rate > home * margin)
    }

    /// One window alone says little of a device that others use too: home's
    /// rate is a mean, and so is what two windows in a row differ by.
    fn measured_home(&mut self, rate: f64) {
        if let Some(last) = self.last.replace(rate) {
            let differs = (rate - last).abs() / rate.max(last);
            self.variation = if self.variation == 0.0 {
                differs
            } else {
                self.variation * 0.75 + differs * 0.25
            };
        }
        let (block, depth) = self.home;
        let home = self.rates[block][depth].get_or_insert(rate);
        let slow = rate < *home * CHANGED * (1.0 - self.variation);
        self.slow = if slow { self.slow + 1 } else { 0 };
        if self.slow >= IN_A_ROW {
            self.forget();
            self.rates[block][depth] = Some(rate);
        } else if !slow {
            *home = *home * 0.75 + rate * 0.25;
        }
    }

    /// Few enough bytes that a device of this rate is done with them in a
    /// second: as long as that takes whoever cancels.
    fn is_soon_done(&self, place: Cell, rate: f64) -> bool {
        self.in_flight(place) as f64 <= rate || self.shrink(place) == place
    }

    /// Half of it in flight; the same where there is no less.
    fn shrink(&self, (block, depth): Cell) -> Cell {
        if depth > 0 {
            (block, depth - 1)
        } else {
            (block.saturating_sub(1), depth)
        }
    }

    /// What to measure next: a neighbour that has not been, or has done better
    /// than home does now; or home.
    fn next(&mut self) -> Cell {
        self.windows += 1;
        if self.windows < 2 {
            // Only two in a row tell how much to believe of one.
            return self.home;
        }
        let rate = self.rate(self.home).unwrap_or(f64::INFINITY);
        while !self.is_soon_done(self.home, rate) {
            self.home = self.shrink(self.home);
            self.rates[self.home.0][self.home.1].get_or_insert(rate);
        }
        let promising = self
            .neighbours()
            .filter(|place| self.is_soon_done(*place, rate))
            .find(|place| self.rate(*place).is_none_or(|rate| self.is_better(rate)));
        if let Some(place) = promising {
            return place;
        }
        self.rested += 1;
        if self.rested > REST {
            self.rested = 0;
            self.turn += 1;
            let soon = |place: &Cell| self.is_soon_done(*place, rate);
            let all: Vec<Cell> = self.neighbours().filter(soon).collect();
            if let Some(place) = all.get(self.turn % all.len().max(1)) {
                return *place;
            }
        }
        self.home
    }

    fn go(&mut self, place: Cell) {
        if place != self.trial {
            // What was begun before must not be counted for the new setting,
            // nor the time in which the device gets used to it.
            self.skip = self.in_flight(self.trial).max(self.in_flight(place));
            self.trial = place;
            self.window = None;
        }
    }

    fn forget(&mut self) {
        self.rates = Default::default();
        self.variation = 0.0;
        (self.windows, self.slow, self.rested) = (0, 0, 0);
    }

    /// One step in block, in depth, or in both against each other.
    fn neighbours(&self) -> impl Iterator<Item = Cell> + use<> {
        const STEPS: [(isize, isize); 6] = [(0, 1), (0, -1), (-1, 0), (1, 0), (-1, 1), (1, -1)];
        let (block, depth) = self.home;
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

    /// A device: bytes a second with these blocks, so many at a time, after so
    /// many bytes.
    type Device = fn(Setting, u64) -> f64;

    /// What it does once its pipe is full, up to this rate; `latency` for each
    /// block.
    fn pipelined(setting: Setting, latency: f64, most: f64) -> f64 {
        let bytes = setting.block as f64;
        (f64::from(setting.depth) * bytes / (latency + bytes / most)).min(most)
    }

    fn ssd(setting: Setting, _: u64) -> f64 {
        pipelined(setting, 0.004, 2e9)
    }

    /// As the disk of the notes: past 4 MiB in flight it gets slower.
    fn shallow(setting: Setting, _: u64) -> f64 {
        let flying = setting.block as f64 * f64::from(setting.depth) / 4e6;
        9e8 / flying.max(1.0).sqrt() * (0.6 + 0.1 * f64::from(setting.depth.min(4)))
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

    /// A number between -1 and 1 that is another one each time.
    fn noise(at: u64) -> f64 {
        let mixed = at.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
        (mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as f64 / (1u64 << 23) as f64 - 1.0
    }

    fn noisy(setting: Setting, at: u64) -> f64 {
        shallow(setting, at) * (1.0 + 0.3 * noise(at / (8 * MIB)))
    }

    /// Runs it over bytes `from` to `to`; seconds from the one to the other.
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
            assert!(ratio >= 0.95, "{name}: {ratio:.3} with {:?}", adaptive.home);
        }
    }

    /// Where one window differs from the next by more than settings do, it
    /// stays about where it began instead of following each of them.
    #[test]
    fn noise_is_not_followed() {
        let mut adaptive = Adaptive::new(LARGEST_ARENA, None);
        let (from, to) = (256 * MIB, 4096 * MIB);
        let ratio = best(noisy, from, to) / run(&mut adaptive, noisy, from, to);
        assert!(ratio >= 0.9, "{ratio:.3} with {:?}", adaptive.home);
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
        assert!(ratio >= 0.95, "{ratio:.3} with {:?}", adaptive.home);
    }

    #[test]
    fn a_slow_device_has_little_in_hand() {
        let mut adaptive = Adaptive::new(LARGEST_ARENA, None);
        run(&mut adaptive, slow, 0, 64 * MIB);
        assert!(adaptive.in_flight(adaptive.trial) <= MIB, "{adaptive:?}");
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
        assert_eq!(adaptive.in_flight(adaptive.home), 1 << 20);
    }
}
