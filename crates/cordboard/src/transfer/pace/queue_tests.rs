//! Transfers that share a rate and need different numbers of bytes at once, with an injected
//! clock: each one continues, and together they are no faster than the rate.

use std::cmp::Reverse;
use std::time::Duration;

use proptest::prelude::*;

use super::need::Need;
use super::pacer::Pacers;
use super::pacer_tests::{MS, any, give_back};
use crate::request::Schedule;

/// The time of a step.
const STEP: Duration = Duration::from_micros(10);

fn of_unit(unit: u64) -> Need {
    Need { unit, ..any() }
}

/// Transfers that take whole units, all that is granted.
struct Sharing {
    pacers: Pacers,
    rate: u64,
    units: Vec<u64>,
    /// The time of the next request of each transfer.
    next: Vec<Duration>,
    taken: Vec<u64>,
    /// The least that the bytes before a grant were below those of the rate.
    least: i128,
}

impl Sharing {
    fn new(rate: u64, units: &[u64]) -> Sharing {
        let mut pacers = Pacers::default();
        pacers.set(Schedule::rate(rate));
        Sharing {
            pacers,
            rate,
            units: units.to_vec(),
            next: vec![Duration::ZERO; units.len()],
            taken: vec![0; units.len()],
            least: 0,
        }
    }

    /// Runs up to this time. Each wakeup is `late`. Of several transfers that request at the
    /// same time, the last one is the first.
    fn run(&mut self, end: Duration, late: Duration) {
        loop {
            let all = 0..self.units.len();
            let first = all.min_by_key(|index| (self.next[*index], Reverse(*index)));
            let (index, now) = first.map(|index| (index, self.next[index])).unwrap();
            if now > end {
                return;
            }
            let unit = self.units[index];
            self.next[index] = match self.pacers.grant(now, of_unit(unit)) {
                Ok(granted) => {
                    let used = granted / unit * unit;
                    assert!(used > 0, "{granted} of {unit}");
                    give_back(&mut self.pacers, granted - used, 0);
                    self.note(index, used, now);
                    now + STEP
                }
                Err(wait) => {
                    assert!(wait > Duration::ZERO, "it would not sleep");
                    now + wait + late
                }
            };
        }
    }

    /// Between any two moments, the bytes are those of the rate, and of 40 ms, or of a unit and
    /// 30 ms.
    fn note(&mut self, index: usize, used: u64, now: Duration) {
        let permitted = u128::from(self.rate) * now.as_nanos() / 1_000_000_000;
        let all = |taken: &[u64]| taken.iter().map(|bytes| i128::from(*bytes)).sum::<i128>();
        let ahead = all(&self.taken) - permitted as i128;
        self.least = self.least.min(ahead);
        self.taken[index] += used;
        let ahead = ahead + i128::from(used);
        assert!(ahead <= 0, "{ahead} more than the rate at {now:?}");
        let longest = self.units.iter().copied().max().unwrap();
        let burst = longest.max(self.rate / 100) + self.rate * 3 / 100 + 2;
        assert!(ahead - self.least <= i128::from(burst), "at {now:?}");
    }
}

/// The transfer with a unit gets its part of the rate, and leaves the others theirs.
#[test]
fn a_shared_rate_starves_no_path_with_a_unit() {
    for (rate, units) in [
        (100_000, &[4096, 1][..]),
        // Hardly more than a piece.
        (409_000, &[4096, 1]),
        (1000, &[4096, 1]),
        (100_000, &[4096, 1, 1, 1]),
        (100_000, &[4096, 4096, 1]),
        (100_000, &[4096, 2048, 1]),
    ] {
        for late in [Duration::ZERO, MS] {
            let mut sharing = Sharing::new(rate, units);
            let seconds = 200;
            sharing.run(Duration::from_secs(seconds), late);
            let (all, taken) = (rate * seconds, &sharing.taken);
            let total: u64 = taken.iter().sum();
            assert!(total >= all * 95 / 100, "{rate} {units:?}: {taken:?}");
            // Of equal transfers, the order of their requests decides.
            for unit in units {
                let equal = units.iter().zip(taken).filter(|(its, _)| *its == unit);
                let part: u64 = equal.map(|(_, taken)| taken).sum();
                assert!(part >= all / 8, "{rate} {units:?}: {taken:?}");
            }
        }
    }
}

/// A transfer that ends while it waits delays the others for a short time only.
#[test]
fn a_place_in_the_queue_ends_with_its_transfer() {
    let mut sharing = Sharing::new(100_000, &[4096, 1]);
    assert!(sharing.pacers.grant(Duration::ZERO, of_unit(4096)).is_err());
    sharing.next[0] = Duration::MAX;
    sharing.run(Duration::from_secs(2), Duration::ZERO);
    assert!(sharing.taken[1] >= 185_000, "{:?}", sharing.taken);
}

/// Changes of the rate drop nothing of what a transfer waits for.
#[test]
fn frequent_changes_of_a_shared_rate_do_not_stop_a_path_with_a_unit() {
    let mut sharing = Sharing::new(1000, &[4096, 1]);
    for n in 0..10_000 {
        // `note` knows the faster rate.
        sharing.pacers.set(Schedule::rate(1000 - n % 2));
        sharing.run(n as u32 * 5 * MS, Duration::ZERO);
    }
    let taken = &sharing.taken;
    assert!(taken.iter().all(|taken| *taken >= 10_000), "{taken:?}");
}

proptest! {
    /// Whatever the transfers need, none stands still.
    #[test]
    fn every_transfer_of_a_shared_rate_continues(
        rate in 10_000..1_000_000u64,
        units in prop::collection::hash_set(1..20_000u64, 2..5),
        late in 0..20_000u64,
    ) {
        let units: Vec<u64> = units.into_iter().collect();
        let mut sharing = Sharing::new(rate, &units);
        let each = units.iter().map(|unit| 2 * unit.max(&(rate / 100)));
        let round = Duration::from_secs_f64(each.sum::<u64>() as f64 / rate as f64);
        let late = Duration::from_micros(late);
        sharing.run(4 * (round + 100 * MS), late);
        let pieces = units.iter().filter(|unit| **unit <= rate / 100).count();
        let still = sharing.taken.iter().filter(|taken| **taken == 0).count();
        // Of those that need a piece, the order of their requests decides.
        prop_assert!(still <= pieces.saturating_sub(1), "{units:?}: {:?}", sharing.taken);
    }
}
