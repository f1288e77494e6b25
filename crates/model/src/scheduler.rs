//! The scheduler that chooses the next thread: shuttle, or Miri.

#[cfg(not(miri))]
pub(crate) use shuttle::{sync, thread};
#[cfg(miri)]
pub(crate) use std::{sync, thread};

/// Interleavings that each scheduler tries.
#[cfg(not(miri))]
const ORDERS: usize = 600;

/// Runs the scenario in random interleavings, and in those of PCT, which have few
/// preemptions at random points.
#[cfg(not(miri))]
pub(crate) fn in_every_order(scenario: impl Fn() + Send + Sync + Clone + 'static) {
    use shuttle::scheduler::{PctScheduler, RandomScheduler};
    use shuttle::{Config, Runner};
    let mut config = Config::new();
    config.silence_warnings = true;
    Runner::new(RandomScheduler::new(ORDERS), config.clone()).run(scenario.clone());
    Runner::new(PctScheduler::new(3, ORDERS), config).run(scenario);
}

/// Runs the scenario once; Miri tries one interleaving for each seed.
#[cfg(miri)]
pub(crate) fn in_every_order(scenario: impl Fn() + Send + Sync + Clone + 'static) {
    scenario();
}

/// Returns true half the time, as the interleaving decides.
#[cfg(not(miri))]
pub(crate) fn by_chance() -> bool {
    shuttle::rand::Rng::gen_bool(&mut shuttle::rand::thread_rng(), 0.5)
}

/// Returns true half the time, as the seed decides.
#[cfg(miri)]
pub(crate) fn by_chance() -> bool {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(()) & 1 == 0
}
