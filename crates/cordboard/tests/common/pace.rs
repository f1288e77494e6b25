//! How many bytes a schedule permits, and what an observer finds.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use cordboard::Schedule;

/// Returns the most bytes that a schedule permits in this time from its start.
pub fn most(schedule: Schedule, block: u64, time: Duration) -> u64 {
    let bytes = match schedule {
        Schedule::Rate(rate) => u128::from(rate.get()) * time.as_nanos() / 1_000_000_000,
        Schedule::Blocks { count, rest } => {
            // The shortest rest.
            let rest = rest.max(Duration::from_millis(1));
            let bursts = time.as_nanos() / rest.as_nanos() + 1;
            bursts * u128::from(count.get()) * u128::from(block)
        }
        _ => return u64::MAX,
    };
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// The first thing that an observer has found wrong. If it panicked, only its transfer would end.
#[derive(Debug, Clone, Default)]
pub struct Wrong(Arc<Mutex<Option<String>>>);

impl Wrong {
    pub fn unless(&self, is_right: bool, what: impl FnOnce() -> String) {
        if !is_right {
            self.0.lock().unwrap().get_or_insert_with(what);
        }
    }

    pub fn found(&self) -> Option<String> {
        self.0.lock().unwrap().clone()
    }
}
