//! Adapts block size and queue depth to the device: deeper is not always
//! faster, nor are larger blocks (on one disk 4 × 1 MiB in flight beat 8 × 1
//! MiB by 1.4 times), so both are varied and the best is kept.
//!
//! Time is passed in with each completion, so that tests can simulate devices.

use std::time::Duration;

use crate::tune::{Arm, Arms, Controller, Goal};

/// Block sizes to try, in bytes.
const BLOCKS: [usize; 5] = [256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20];
/// On a device as fast as memory, other settings are tried after so many bytes: trying all
/// of them takes as long as moving these.
const FIRST: u64 = 1 << 30;
/// The rate of such a device, in bytes per nanosecond.
const MEMORY: u128 = 4;
/// Added to the number of blocks of a mebibyte, each of which takes about the same processor time.
/// A weight: by the blocks alone, half their size would have to be a quarter faster, although the
/// processor time of direct I/O is a small part of that of other paths.
const SHARE: u64 = 4;
/// Queue depths to try.
const DEPTHS: [u32; 4] = [2, 4, 8, 16];

/// The blocks in flight: number and size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) block: usize,
    pub(crate) depth: u32,
}

/// The block sizes and depths that fit into the memory. An arm is the index of a block
/// size, times the number of depths, plus the index of a depth.
#[derive(Debug)]
struct Grid {
    memory: usize,
}

impl Setting {
    /// Returns as many blocks of this size as fit into the memory, up to the largest depth.
    pub(super) fn of_blocks(block: usize, memory: usize) -> Setting {
        let [least, .., most] = DEPTHS;
        let fit = u32::try_from(memory / block.max(1)).unwrap_or(most);
        Setting {
            block,
            depth: fit.clamp(least, most),
        }
    }

    /// Returns how many blocks may be begun while these are in flight, and their length.
    pub(super) fn more(self, pending: (u32, u32)) -> (u32, usize) {
        (self.depth.saturating_sub(pending.0 + pending.1), self.block)
    }
}

impl Grid {
    fn at(&self, arm: Arm) -> Setting {
        Setting {
            block: BLOCKS[arm / DEPTHS.len()],
            depth: DEPTHS[arm % DEPTHS.len()],
        }
    }
}

impl Arms for Grid {
    fn len(&self) -> usize {
        BLOCKS.len() * DEPTHS.len()
    }

    /// One step in block size, in depth, or in both in opposite directions.
    fn is_neighbour(&self, from: Arm, to: Arm) -> bool {
        let by = |of: fn(Arm) -> usize| of(to) as isize - of(from) as isize;
        let (block, depth) = (by(|arm| arm / DEPTHS.len()), by(|arm| arm % DEPTHS.len()));
        matches!(
            (block, depth),
            (0, 1 | -1) | (1 | -1, 0) | (1, -1) | (-1, 1)
        )
    }

    fn is_possible(&self, arm: Arm) -> bool {
        self.in_flight(arm) <= self.memory as u64
    }

    fn in_flight(&self, arm: Arm) -> u64 {
        let Setting { block, depth } = self.at(arm);
        block as u64 * u64::from(depth)
    }

    fn shrink(&self, arm: Arm) -> Arm {
        match arm % DEPTHS.len() {
            0 => arm.checked_sub(DEPTHS.len()).unwrap_or(arm),
            _ => arm - 1,
        }
    }
}

/// The controller of the blocks in flight.
#[derive(Debug)]
pub(crate) struct Adaptive {
    grid: Grid,
    controller: Controller,
    /// The setting with the largest blocks, which takes the least processor time.
    first: Arm,
    /// Whether settings are measured; otherwise the first one stays.
    tunes: bool,
    goal: Goal,
    /// The processor time of the bytes that have arrived, where a block takes 2^20. Only ratios
    /// count.
    spent: u64,
    /// Bytes that have arrived.
    arrived: u64,
    /// The time of the first arrival.
    since: Option<Duration>,
    /// The best setting, and the bytes that had arrived when it became the best.
    best: (Arm, u64),
}

impl Adaptive {
    /// With no more than `memory` bytes in flight. `tunes`: settings are measured.
    pub(crate) fn new(memory: usize, tunes: bool) -> Adaptive {
        let grid = Grid { memory };
        // Large blocks: each costs the same CPU time. 2 × 4 MiB, or as much of
        // it as the memory allows.
        let start = (0..grid.len()).rev().step_by(DEPTHS.len());
        let start = start.map(|arm| arm + 1 - DEPTHS.len());
        let start = start.into_iter().find(|arm| grid.is_possible(*arm));
        let first = start.unwrap_or(0);
        let controller = Controller::new(&grid, first, Goal::Rate);
        Adaptive {
            grid,
            controller,
            first,
            tunes,
            goal: Goal::Rate,
            spent: 0,
            arrived: 0,
            since: None,
            best: (first, 0),
        }
    }

    /// Sets the goal, which a command may change. The first setting is the best one for little
    /// processor time.
    pub(crate) fn set_goal(&mut self, goal: Goal) {
        if goal != self.goal {
            self.goal = goal;
            // A window would contain blocks of both settings.
            self.interrupt();
        }
    }

    fn measures(&self) -> bool {
        self.tunes && self.goal == Goal::Rate
    }

    /// Returns the setting to use from now on. The first blocks are small, so
    /// that a slow device is detected before much is in flight.
    pub(crate) fn setting(&self) -> Setting {
        let setting = self.grid.at(match self.measures() {
            true => self.controller.current(),
            false => self.first,
        });
        let small = BLOCKS.iter().rev().find(|b| **b as u64 <= self.arrived / 2);
        Setting {
            block: setting.block.min(*small.unwrap_or(&BLOCKS[0])),
            ..setting
        }
    }

    /// Records that `bytes` have arrived; `now` is time since any fixed moment.
    pub(crate) fn learn(&mut self, now: Duration, bytes: u64) {
        self.arrived += bytes;
        if !self.measures() {
            return;
        }
        let block = self.grid.at(self.controller.current()).block as u64;
        let cost = bytes * SHARE + (bytes << 20) / block;
        self.spent = self.spent.saturating_add(cost);
        let since = now.saturating_sub(*self.since.get_or_insert(now));
        if self.arrived < FIRST && u128::from(self.arrived) > since.as_nanos() * MEMORY {
            return;
        }
        let mut spent = || Duration::from_nanos(self.spent);
        self.controller
            .learn(&self.grid, now, &mut spent, bytes, u64::MAX);
        let best = self.controller.best();
        if best != self.best.0 {
            self.best = (best, self.arrived);
        }
    }

    /// Returns the best setting, and the bytes that had arrived when it became the best; `None` if no
    /// other one was measured.
    pub(crate) fn best(&self) -> Option<(Setting, u64)> {
        let (best, after) = self.best;
        let is_found = self.controller.has_measured() || best != self.first;
        (self.measures() && is_found).then(|| (self.grid.at(best), after))
    }

    /// Records that a pause or a schedule limits the rate: the running window is discarded.
    pub(crate) fn interrupt(&mut self) {
        if self.measures() {
            self.controller.interrupt(&self.grid);
        }
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

    fn noisy(setting: Setting, at: u64, seed: u64) -> f64 {
        shallow(setting, at) * (1.0 + 0.3 * noise(at / (8 * MIB) + 7919 * seed))
    }

    /// Simulates bytes 0 to `to`; returns the seconds from `from` to `to`.
    fn run(
        adaptive: &mut Adaptive,
        device: impl Fn(Setting, u64) -> f64,
        from: u64,
        to: u64,
    ) -> f64 {
        let (mut at, mut now) = (0, 0.0);
        let mut began = 0.0;
        while at < to {
            let setting = adaptive.setting();
            assert!(setting.block as u64 * u64::from(setting.depth) <= adaptive.grid.memory as u64);
            now += setting.block as f64 / device(setting, at);
            at += setting.block as u64;
            adaptive.learn(Duration::from_secs_f64(now), setting.block as u64);
            if at <= from {
                began = now;
            }
        }
        now - began
    }

    fn best(device: impl Fn(Setting, u64) -> f64, from: u64, to: u64) -> f64 {
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
            let mut adaptive = Adaptive::new(LARGEST_ARENA, true);
            let (from, to) = (256 * MIB, 4096 * MIB);
            let ratio = best(device, from, to) / run(&mut adaptive, device, from, to);
            assert!(
                ratio >= 0.95,
                "{name}: {ratio:.3} with {:?}",
                adaptive.grid.at(adaptive.controller.best())
            );
        }
    }

    /// If windows differ by more than settings do, it stays near where it began
    /// instead of following each of them.
    #[test]
    fn noise_is_not_followed() {
        let (from, to) = (256 * MIB, 4096 * MIB);
        let ratios = (0..50).map(|seed| {
            let device = |setting: Setting, at: u64| noisy(setting, at, seed);
            let mut adaptive = Adaptive::new(LARGEST_ARENA, true);
            best(device, from, to) / run(&mut adaptive, device, from, to)
        });
        let ratios: Vec<f64> = ratios.collect();
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        assert!(mean >= 0.92, "{mean:.3}: {ratios:.3?}");
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
        let mut adaptive = Adaptive::new(LARGEST_ARENA, true);
        let (from, to) = (1536 * MIB, 4096 * MIB);
        let ratio = best(changing, from, to) / run(&mut adaptive, changing, from, to);
        assert!(
            ratio >= 0.94,
            "{ratio:.3} with {:?}",
            adaptive.grid.at(adaptive.controller.best())
        );
    }

    #[test]
    fn a_slow_device_has_little_in_hand() {
        let mut adaptive = Adaptive::new(LARGEST_ARENA, true);
        run(&mut adaptive, slow, 0, 64 * MIB);
        assert!(
            adaptive.grid.in_flight(adaptive.controller.current()) <= MIB,
            "{adaptive:?}"
        );
    }

    #[test]
    fn little_memory_is_kept_to() {
        let mut adaptive = Adaptive::new(1 << 20, true);
        run(&mut adaptive, ssd, 0, 512 * MIB);
        assert_eq!(adaptive.grid.in_flight(adaptive.controller.best()), 1 << 20);
    }

    /// The first gibibyte of a device as fast as memory moves by the first setting, which is
    /// left afterwards.
    #[test]
    fn a_fast_device_is_measured_later() {
        let mut adaptive = Adaptive::new(LARGEST_ARENA, true);
        let (mut now, mut others) = (Duration::ZERO, 0);
        for moved in 0..3 * 1024 {
            let is_first = adaptive.setting().depth == 2;
            assert!(moved >= 1024 || is_first, "after {moved} MiB");
            others += u32::from(!is_first);
            // 8 GiB/s.
            now += Duration::from_micros(122);
            adaptive.learn(now, MIB);
        }
        assert!(others > 0, "no other depth was tried");
    }

    /// The rate is the same, or a little higher with blocks of which each mebibyte needs many.
    #[test]
    fn a_small_gain_does_not_justify_many_blocks() {
        fn small_gain(setting: Setting, _: u64) -> f64 {
            match setting.block {
                0..=0x80000 => 1.06e9,
                _ => 1e9,
            }
        }
        let devices: [(Device, usize); 2] = [(flat, 4 << 20), (small_gain, 1 << 20)];
        for (device, least) in devices {
            let mut adaptive = Adaptive::new(LARGEST_ARENA, true);
            run(&mut adaptive, device, 0, 8192 * MIB);
            let best = adaptive.grid.at(adaptive.controller.best());
            assert!(best.block >= least, "{best:?}");
        }
    }

    /// While little processor time is the goal, the largest blocks stay.
    #[test]
    fn the_first_setting_is_used_for_little_processor_time() {
        let mut adaptive = Adaptive::new(LARGEST_ARENA, true);
        let first = adaptive.grid.at(adaptive.first);
        adaptive.set_goal(Goal::Time);
        run(&mut adaptive, likes_small_blocks, 0, 1024 * MIB);
        assert_eq!((adaptive.setting(), adaptive.best()), (first, None));
        adaptive.set_goal(Goal::Rate);
        assert_eq!(adaptive.best(), None);
        run(&mut adaptive, likes_small_blocks, 0, 4096 * MIB);
        assert_ne!(adaptive.setting(), first);
        let (best, after) = adaptive.best().unwrap();
        assert!(best.block < first.block, "{best:?}");
        assert!(after > 1024 * MIB && after < adaptive.arrived, "{after}");
        adaptive.set_goal(Goal::Time);
        assert_eq!((adaptive.setting(), adaptive.best()), (first, None));
    }

    #[test]
    fn the_first_setting_stays_if_none_is_measured() {
        let mut adaptive = Adaptive::new(LARGEST_ARENA, false);
        let first = adaptive.grid.at(adaptive.controller.current());
        run(&mut adaptive, likes_small_blocks, 0, 4096 * MIB);
        assert_eq!(adaptive.setting(), first);
    }

    /// A schedule grants a block at a time: whatever the device, the rate is the same.
    #[test]
    fn a_limited_rate_is_not_measured() {
        let mut adaptive = Adaptive::new(LARGEST_ARENA, true);
        let first = adaptive.grid.at(adaptive.controller.current());
        let mut now = Duration::ZERO;
        for moved in 0..4096 {
            let Setting { block, depth } = adaptive.setting();
            assert!(moved < 32 || (block, depth) == (first.block, first.depth));
            // Larger blocks seem faster.
            now += Duration::from_nanos(1_000_000_000 / block as u64);
            adaptive.learn(now, MIB);
            adaptive.interrupt();
        }
    }
}
