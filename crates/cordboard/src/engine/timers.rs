//! When a sleeping transfer is to be looked at again.

use std::collections::BTreeSet;
use std::time::Duration;

/// Moments by transfer, the earliest first.
///
/// A transfer has one entry at most, [`Timer::set`]. An entry whose moment is
/// postponed stays until its first moment, so that a transfer that sleeps and
/// wakes a thousand times within its idle limit makes one entry, not a
/// thousand. It is removed with the transfer: [`Timers::forget`].
#[derive(Debug, Default)]
pub(super) struct Timers {
    entries: BTreeSet<(Duration, u64)>,
}

/// One transfer's part of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Timer {
    /// When it is to be woken.
    pub(super) at: Option<Duration>,
    /// The moment of its entry.
    set: Option<Duration>,
}

impl Timers {
    /// Wakes the transfer then, or not at all.
    pub(super) fn arm(&mut self, id: u64, timer: &mut Timer, at: Option<Duration>) {
        timer.at = at;
        if let Some(at) = at
            && timer.set.is_none_or(|set| at < set)
        {
            self.remove(id, timer);
            timer.set = Some(at);
            self.entries.insert((at, id));
        }
    }

    /// The transfer has ended, or goes on elsewhere.
    pub(super) fn forget(&mut self, id: u64, timer: &mut Timer) {
        self.remove(id, timer);
        timer.at = None;
    }

    fn remove(&mut self, id: u64, timer: &mut Timer) {
        if let Some(set) = timer.set.take() {
            self.entries.remove(&(set, id));
        }
    }

    /// The next moment of any.
    pub(super) fn next(&self) -> Option<Duration> {
        self.entries.first().map(|(at, _)| *at)
    }

    /// The transfer and the moment of an entry whose moment has come.
    pub(super) fn pop(&mut self, now: Duration) -> Option<(Duration, u64)> {
        match self.entries.first() {
            Some((at, _)) if *at <= now => self.entries.pop_first(),
            _ => None,
        }
    }

    /// Whether the transfer is to be woken now that this entry's moment has
    /// come; if it is to be later, it is entered again.
    pub(super) fn is_due(&mut self, id: u64, timer: &mut Timer, entry: Duration) -> bool {
        timer.set = None;
        match timer.at {
            Some(at) if at <= entry => {
                timer.at = None;
                true
            }
            later => {
                self.arm(id, timer, later);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Option<Duration> {
        Some(Duration::from_secs(n))
    }

    #[test]
    fn an_alarm_that_moves_on_leaves_one_entry() {
        let (mut timers, mut timer) = (Timers::default(), Timer::default());
        for n in 1..1000 {
            timers.arm(7, &mut timer, seconds(n));
            timers.arm(7, &mut timer, None);
        }
        timers.arm(7, &mut timer, seconds(1000));
        assert_eq!((timers.entries.len(), timers.next()), (1, seconds(1)));
        let (entry, id) = timers.pop(Duration::from_secs(2)).unwrap();
        assert_eq!((entry, id), (Duration::from_secs(1), 7));
        assert!(!timers.is_due(id, &mut timer, entry), "it has moved on");
        assert_eq!(timers.next(), seconds(1000));
        assert_eq!(timers.pop(Duration::from_secs(999)), None);
        let (entry, id) = timers.pop(Duration::from_secs(1000)).unwrap();
        assert!(timers.is_due(id, &mut timer, entry));
        assert_eq!((timers.next(), timer), (None, Timer::default()));
    }

    #[test]
    fn an_earlier_alarm_takes_the_place_of_the_later_one() {
        let (mut timers, mut timer) = (Timers::default(), Timer::default());
        timers.arm(7, &mut timer, seconds(9));
        timers.arm(7, &mut timer, seconds(2));
        assert_eq!(timers.entries.len(), 1);
        let (entry, id) = timers.pop(Duration::from_secs(2)).unwrap();
        assert!(timers.is_due(id, &mut timer, entry));
        assert_eq!((timers.next(), timer), (None, Timer::default()));
    }

    #[test]
    fn what_has_ended_leaves_nothing() {
        let (mut timers, mut timer) = (Timers::default(), Timer::default());
        timers.arm(7, &mut timer, seconds(3600));
        timers.arm(7, &mut timer, None);
        let mut other = Timer::default();
        timers.arm(8, &mut other, seconds(3600));
        timers.forget(7, &mut timer);
        assert_eq!(timers.entries.len(), 1, "the other's");
        assert_eq!(timer, Timer::default());
        timers.forget(7, &mut timer);
        timers.forget(8, &mut other);
        assert_eq!(timers.next(), None);
    }
}
