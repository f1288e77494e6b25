//! What must hold in every order.

mod end;
mod hand_over;
mod work;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};

/// Orders tried of each kind.
const ORDERS: usize = 600;

/// In random orders, and in those that differ from one thread after the other
/// by a few well-aimed changes.
fn in_every_order(scenario: impl Fn() + Send + Sync + Clone + 'static) {
    let mut config = Config::new();
    config.silence_warnings = true;
    Runner::new(RandomScheduler::new(ORDERS), config.clone()).run(scenario.clone());
    Runner::new(PctScheduler::new(3, ORDERS), config).run(scenario);
}
