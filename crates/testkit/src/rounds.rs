//! Random rounds. A round's plan is generated from its seed, which a failure prints. The
//! order in which threads run is not, so a seed may take several runs to fail again.
//!
//! `CORDBOARD_RANDOM_SEED=N` runs that round only. `CORDBOARD_RANDOM_MINUTES=N` runs
//! new ones for N minutes, instead of the few of an ordinary run.

use crate::watchdog;
use std::env::VarError;
use std::time::{Duration, Instant};

/// Prints the seed when a round panics.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed in the round of CORDBOARD_RANDOM_SEED={}", self.0);
        }
    }
}

/// Runs the rounds of the kept seeds, one a line with comments from `#` on, and then
/// `fresh` new ones. A round that hangs aborts the process with its seed.
pub fn run(kept: &str, fresh: u32, mut round: impl FnMut(&mut fastrand::Rng)) {
    let mut one = |seed: u64| {
        let _printed = Seed(seed);
        let _watched = watchdog::watch(format!("the round of CORDBOARD_RANDOM_SEED={seed}"));
        round(&mut fastrand::Rng::with_seed(seed));
    };
    if let Some(seed) = number("CORDBOARD_RANDOM_SEED") {
        return one(seed);
    }
    for seed in seeds(kept) {
        one(seed);
    }
    let Some(minutes) = number("CORDBOARD_RANDOM_MINUTES") else {
        for _ in 0..fresh {
            one(fastrand::u64(..));
        }
        return;
    };
    let end = Instant::now() + Duration::from_secs(60 * minutes);
    let mut rounds = 0;
    while Instant::now() < end {
        one(fastrand::u64(..));
        rounds += 1;
    }
    eprintln!("{rounds} rounds in {minutes} minutes");
}

fn seeds(kept: &str) -> impl Iterator<Item = u64> {
    let lines = kept.lines().map(|line| match line.split_once('#') {
        Some((seed, _)) => seed.trim(),
        None => line.trim(),
    });
    lines
        .filter(|seed| !seed.is_empty())
        .map(|seed| seed.parse().expect("a seed is a number"))
}

fn number(name: &str) -> Option<u64> {
    match std::env::var(name) {
        Ok(text) => Some(text.parse().unwrap_or_else(|e| panic!("{name}: {e}"))),
        Err(VarError::NotPresent) => None,
        Err(e) => panic!("{name}: {e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_stand_one_a_line() {
        let kept = "# kept\n12 # why\n\n  7\n";
        assert_eq!(seeds(kept).collect::<Vec<_>>(), [12, 7]);
    }

    #[test]
    fn a_seed_brings_the_round_back() {
        let mut drawn = Vec::new();
        run("5\n5", 0, |rng| drawn.push(rng.u64(..)));
        assert_eq!(drawn[0], drawn[1]);
    }
}
