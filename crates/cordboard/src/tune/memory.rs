//! The results of earlier transfers of this process.

use std::sync::Mutex;
use std::time::Duration;

use crate::endpoint::Kind;
use crate::request::{DataPath, Switches};

use super::{Controller, Goal};

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
    /// The paths among which it chooses: a blocking socket, or a request, may exclude some.
    pub(crate) paths: Switches,
    /// The device number of the source's file system, or of the source: another one may be slower.
    pub(crate) device: Option<u64>,
    pub(crate) goal: Goal,
}

/// The fastest setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) path: DataPath,
    /// The index of the size of its calls.
    pub(crate) piece: usize,
}

/// The state of the search of a transfer, which the next one continues.
#[derive(Debug, Clone)]
pub(crate) struct Search {
    /// The paths that were measured, in the order of the controller's arms.
    pub(crate) paths: Vec<DataPath>,
    pub(crate) controller: Controller,
}

/// Results by transfer, each with the time of its last measurement.
struct Results<T>(Vec<(Key, T, Duration)>);

// A child of `fork(2)` may inherit a mutex locked, so no thread waits for it.
static FOUND: Mutex<Results<Found>> = Mutex::new(Results(Vec::new()));
static SEARCHES: Mutex<Results<Search>> = Mutex::new(Results(Vec::new()));

impl Found {
    /// Returns the result of an earlier transfer, unless it is too old. `now` is the time
    /// of the monotonic clock.
    pub(crate) fn recall(key: &Key, now: Duration) -> Option<Found> {
        let (found, _) = FOUND.try_lock().ok()?.recall(key, now)?;
        Some(found)
    }

    /// Stores the result for later transfers, unless there is a newer one. `then` is the time of its
    /// last measurement.
    pub(crate) fn remember(self, key: Key, then: Duration) {
        if let Ok(mut results) = FOUND.try_lock() {
            results.remember(key, self, then);
        }
    }
}

impl Search {
    /// As [`Found::recall`]. Returns also the time of its last measurement.
    pub(crate) fn recall(key: &Key, now: Duration) -> Option<(Search, Duration)> {
        SEARCHES.try_lock().ok()?.recall(key, now)
    }

    /// As [`Found::remember`].
    pub(crate) fn remember(self, key: Key, then: Duration) {
        if let Ok(mut results) = SEARCHES.try_lock() {
            results.remember(key, self, then);
        }
    }
}

impl<T: Clone> Results<T> {
    fn recall(&self, key: &Key, now: Duration) -> Option<(T, Duration)> {
        let (_, found, then) = self.0.iter().find(|(of, _, _)| of == key)?;
        (now.saturating_sub(*then) <= LASTS).then(|| (found.clone(), *then))
    }

    fn remember(&mut self, key: Key, found: T, then: Duration) {
        let is_newer = |(of, _, at): &(Key, T, Duration)| *of == key && *at > then;
        if self.0.iter().any(is_newer) {
            return;
        }
        self.0.retain(|(of, _, _)| *of != key);
        if self.0.len() == MOST {
            self.0.remove(0);
        }
        self.0.push((key, found, then));
    }
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
            paths: Switches::all(),
            device: Some(1),
            goal,
        }
    }

    #[test]
    fn a_result_holds_for_its_kinds_and_for_a_while() {
        let mut results = Results(Vec::new());
        let now = Duration::from_secs(1000);
        results.remember(key(Goal::Rate, Kind::Tcp), FOUND, now);
        let at = |goal, kind, seconds| {
            let recalled = results.recall(&key(goal, kind), now + Duration::from_secs(seconds));
            recalled.map(|(found, _)| found)
        };
        assert_eq!(at(Goal::Rate, Kind::Tcp, 300), Some(FOUND));
        assert_eq!(at(Goal::Rate, Kind::Tcp, 301), None);
        assert_eq!(at(Goal::Time, Kind::Tcp, 1), None);
        assert_eq!(at(Goal::Rate, Kind::UnixStream, 1), None);
        let fewer = Key {
            paths: Switches::only(&[DataPath::ReadWrite]),
            ..key(Goal::Rate, Kind::Tcp)
        };
        assert_eq!(results.recall(&fewer, now), None);
        // Of another file system, and of a source without one.
        for device in [Some(2), None] {
            let other = Key {
                device,
                ..key(Goal::Rate, Kind::Tcp)
            };
            assert_eq!(results.recall(&other, now), None);
        }
        // A transfer that has begun before, and has measured nothing since.
        let older = now - Duration::from_secs(1);
        let other = Found { piece: 2, ..FOUND };
        results.remember(key(Goal::Rate, Kind::Tcp), other, older);
        let recalled = results.recall(&key(Goal::Rate, Kind::Tcp), now);
        assert_eq!(recalled, Some((FOUND, now)));
    }

    #[test]
    fn the_newest_results_are_kept() {
        let mut results = Results(Vec::new());
        for seconds in 0..100 {
            let now = Duration::from_secs(seconds);
            for kind in Kind::ALL {
                results.remember(key(Goal::Rate, *kind), FOUND, now);
            }
        }
        assert!(results.0.len() <= MOST);
        let last = key(Goal::Rate, Kind::ALL[Kind::ALL.len() - 1]);
        let now = Duration::from_secs(99);
        assert_eq!(results.recall(&last, now), Some((FOUND, now)));
    }
}
