//! The timers of sleeping transfers.

use std::collections::BTreeSet;
use std::time::Duration;

/// Timer entries, the earliest first.
///
/// A transfer has at most one entry, [`Timer::set`]. An entry that is postponed
/// stays until its first deadline, so a transfer that sleeps and wakes a thousand
/// times within its idle limit makes one entry. [`Timers::forget`] removes it with
/// the transfer.
#[derive(Debug, Default)]
pub(super) struct Timers {
    entries: BTreeSet<(Duration, u64)>,
}

/// The timer of one transfer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Timer {
    /// The deadline.
    pub(super) at: Option<Duration>,
    /// The time of its entry, which may be earlier.
    set: Option<Duration>,
}

impl Timers {
    /// Sets the deadline; `None`: no deadline.
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

    /// Removes the timer: the transfer has ended, or continues on another thread.
    pub(super) fn forget(&mut self, id: u64, timer: &mut Timer) {
        self.remove(id, timer);
        timer.at = None;
    }

    fn remove(&mut self, id: u64, timer: &mut Timer) {
        if let Some(set) = timer.set.take() {
            self.entries.remove(&(set, id));
        }
    }

    /// Returns the time of the earliest entry.
    pub(super) fn next(&self) -> Option<Duration> {
        self.entries.first().map(|(at, _)| *at)
    }

    /// Removes an entry that has expired; returns its time and its transfer.
    pub(super) fn pop(&mut self, now: Duration) -> Option<(Duration, u64)> {
        match self.entries.first() {
            Some((at, _)) if *at <= now => self.entries.pop_first(),
            _ => None,
        }
    }

    /// Returns whether the deadline has passed now that this entry has expired; if
    /// not, inserts an entry for the deadline.
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
    fn a_postponed_timer_has_one_entry() {
        let (mut timers, mut timer) = (Timers::default(), Timer::default());
        for n in 1..1000 {
            timers.arm(7, &mut timer, seconds(n));
            timers.arm(7, &mut timer, None);
        }
        timers.arm(7, &mut timer, seconds(1000));
        assert_eq!((timers.entries.len(), timers.next()), (1, seconds(1)));
        let (entry, id) = timers.pop(Duration::from_secs(2)).unwrap();
        assert_eq!((entry, id), (Duration::from_secs(1), 7));
        assert!(!timers.is_due(id, &mut timer, entry), "it was postponed");
        assert_eq!(timers.next(), seconds(1000));
        assert_eq!(timers.pop(Duration::from_secs(999)), None);
        let (entry, id) = timers.pop(Duration::from_secs(1000)).unwrap();
        assert!(timers.is_due(id, &mut timer, entry));
        assert_eq!((timers.next(), timer), (None, Timer::default()));
    }

    #[test]
    fn an_earlier_deadline_replaces_the_entry() {
        let (mut timers, mut timer) = (Timers::default(), Timer::default());
        timers.arm(7, &mut timer, seconds(9));
        timers.arm(7, &mut timer, seconds(2));
        assert_eq!(timers.entries.len(), 1);
        let (entry, id) = timers.pop(Duration::from_secs(2)).unwrap();
        assert!(timers.is_due(id, &mut timer, entry));
        assert_eq!((timers.next(), timer), (None, Timer::default()));
    }

    #[test]
    fn forget_removes_the_entry() {
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
