//! The results of earlier transfers of this process.

use std::sync::Mutex;
use std::time::Duration;

use crate::endpoint::Kind;
use crate::request::DataPath;

use super::Goal;

/// The time after which a result is discarded, because the load of the machine may have
/// changed.
const LASTS: Duration = Duration::from_secs(300);
/// The maximum number of results.
const MOST: usize = 32;

/// The transfers to which a result applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    /// The kinds of the source and of the sink.
    pub(crate) kinds: [Kind; 2],
    /// The source is on a file system in memory.
    pub(crate) is_in_memory: bool,
    pub(crate) goal: Goal,
}

/// The fastest setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) path: DataPath,
    /// The index of the size of its calls.
    pub(crate) piece: usize,
}

type Results = Vec<(Key, Found, Duration)>;

/// A child of `fork(2)` may inherit the mutex locked, so no thread waits for it.
static RESULTS: Mutex<Results> = Mutex::new(Vec::new());

impl Found {
    /// Returns the result of an earlier transfer, unless it is too old. `now` is the time
    /// of the monotonic clock.
    pub(crate) fn recall(key: &Key, now: Duration) -> Option<Found> {
        recall(&*RESULTS.try_lock().ok()?, key, now)
    }

    /// Stores the result for later transfers.
    pub(crate) fn remember(self, key: Key, now: Duration) {
        if let Ok(mut results) = RESULTS.try_lock() {
            remember(&mut results, key, self, now);
        }
    }
}

fn recall(results: &Results, key: &Key, now: Duration) -> Option<Found> {
    let (_, found, then) = results.iter().find(|(of, _, _)| of == key)?;
    (now.saturating_sub(*then) <= LASTS).then_some(*found)
}

fn remember(results: &mut Results, key: Key, found: Found, now: Duration) {
    results.retain(|(of, _, _)| *of != key);
    if results.len() == MOST {
        results.remove(0);
    }
    results.push((key, found, now));
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUND: Found = Found {
        path: DataPath::Splice,
        piece: 1,
    };

    fn key(goal: Goal, sink: Kind) -> Key {
        Key {
            kinds: [Kind::File, sink],
            is_in_memory: false,
            goal,
        }
    }

    #[test]
    fn a_result_holds_for_its_kinds_and_for_a_while() {
        let mut results = Vec::new();
        let now = Duration::from_secs(1000);
        remember(&mut results, key(Goal::Rate, Kind::Tcp), FOUND, now);
        let at = |goal, kind, seconds| {
            recall(
                &results,
                &key(goal, kind),
                now + Duration::from_secs(seconds),
            )
        };
        assert_eq!(at(Goal::Rate, Kind::Tcp, 300), Some(FOUND));
        assert_eq!(at(Goal::Rate, Kind::Tcp, 301), None);
        assert_eq!(at(Goal::Time, Kind::Tcp, 1), None);
        assert_eq!(at(Goal::Rate, Kind::UnixStream, 1), None);
    }

    #[test]
    fn the_newest_results_are_kept() {
        let mut results = Vec::new();
        for seconds in 0..100 {
            let now = Duration::from_secs(seconds);
            for kind in Kind::ALL {
                remember(&mut results, key(Goal::Rate, *kind), FOUND, now);
            }
        }
        assert!(results.len() <= MOST);
        let last = key(Goal::Rate, Kind::ALL[Kind::ALL.len() - 1]);
        assert_eq!(
            recall(&results, &last, Duration::from_secs(99)),
            Some(FOUND)
        );
    }
}
