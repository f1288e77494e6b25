//! Who decides which thread goes on: shuttle, or Miri.

#[cfg(not(miri))]
pub(crate) use shuttle::{sync, thread};
#[cfg(miri)]
pub(crate) use std::{sync, thread};

/// Orders tried of each kind.
#[cfg(not(miri))]
const ORDERS: usize = 600;

/// In random orders, and in those that differ from one thread after the other
/// by a few well-aimed changes.
#[cfg(not(miri))]
pub(crate) fn in_every_order(scenario: impl Fn() + Send + Sync + Clone + 'static) {
    use shuttle::scheduler::{PctScheduler, RandomScheduler};
    use shuttle::{Config, Runner};
    let mut config = Config::new();
    config.silence_warnings = true;
    Runner::new(RandomScheduler::new(ORDERS), config.clone()).run(scenario.clone());
    Runner::new(PctScheduler::new(3, ORDERS), config).run(scenario);
}

/// In one order; it tries as many as it is given seeds.
#[cfg(miri)]
pub(crate) fn in_every_order(scenario: impl Fn() + Send + Sync + Clone + 'static) {
    scenario();
}

/// Half the time, as the order has it.
#[cfg(not(miri))]
pub(crate) fn by_chance() -> bool {
    shuttle::rand::Rng::gen_bool(&mut shuttle::rand::thread_rng(), 0.5)
}

/// Half the time, as the seed has it.
#[cfg(miri)]
pub(crate) fn by_chance() -> bool {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(()) & 1 == 0
}
