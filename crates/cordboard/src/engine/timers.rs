//! When a sleeping transfer is to be looked at again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Moments by transfer, the earliest first.
///
/// A transfer has at most one entry that counts, [`Alarm::set`]: one that it
/// does not need any more stays until its moment comes, so that a transfer
/// which sleeps and wakes a thousand times within its idle limit leaves one
/// entry and not a thousand.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Duration, u64)>>,
}

/// One transfer's part of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Alarm {
    /// When it is to be woken.
    pub(super) at: Option<Duration>,
    /// The entry that counts.
    set: Option<Duration>,
}

impl Timers {
    /// Wakes the transfer then, or not at all.
    pub(super) fn arm(&mut self, id: u64, alarm: &mut Alarm, at: Option<Duration>) {
        alarm.at = at;
        if let Some(at) = at
            && alarm.set.is_none_or(|set| at < set)
        {
            alarm.set = Some(at);
            self.heap.push(Reverse((at, id)));
        }
    }

    /// The transfer has been where its entry could not be heard: one whose
    /// moment has come meanwhile counts no more.
    pub(super) fn missed(alarm: &mut Alarm, now: Duration) {
        if alarm.set.is_some_and(|set| set <= now) {
            alarm.set = None;
        }
    }

    /// The next moment of any.
    pub(super) fn next(&self) -> Option<Duration> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// The transfer and the moment of an entry whose moment has come.
    pub(super) fn pop(&mut self, now: Duration) -> Option<(Duration, u64)> {
        match self.heap.peek() {
            Some(Reverse((at, _))) if *at <= now => self.heap.pop().map(|Reverse(entry)| entry),
            _ => None,
        }
    }

    /// Whether the transfer is to be woken now that this entry's moment has
    /// come; if it is to be later, it is entered again.
    pub(super) fn is_due(&mut self, id: u64, alarm: &mut Alarm, entry: Duration) -> bool {
        if alarm.set != Some(entry) {
            return false;
        }
        alarm.set = None;
        match alarm.at {
            Some(at) if at <= entry => {
                alarm.at = None;
                true
            }
            later => {
                self.arm(id, alarm, later);
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
        let (mut timers, mut alarm) = (Timers::default(), Alarm::default());
        for n in 1..1000 {
            timers.arm(7, &mut alarm, seconds(n));
            timers.arm(7, &mut alarm, None);
        }
        timers.arm(7, &mut alarm, seconds(1000));
        assert_eq!((timers.heap.len(), timers.next()), (1, seconds(1)));
        let (entry, id) = timers.pop(Duration::from_secs(2)).unwrap();
        assert_eq!((entry, id), (Duration::from_secs(1), 7));
        assert!(!timers.is_due(id, &mut alarm, entry), "it has moved on");
        assert_eq!(timers.next(), seconds(1000));
        assert_eq!(timers.pop(Duration::from_secs(999)), None);
        let (entry, id) = timers.pop(Duration::from_secs(1000)).unwrap();
        assert!(timers.is_due(id, &mut alarm, entry));
        assert_eq!((timers.next(), alarm), (None, Alarm::default()));
    }

    #[test]
    fn an_earlier_alarm_comes_first_and_the_later_entry_is_nobodys() {
        let (mut timers, mut alarm) = (Timers::default(), Alarm::default());
        timers.arm(7, &mut alarm, seconds(9));
        timers.arm(7, &mut alarm, seconds(2));
        let (entry, id) = timers.pop(Duration::from_secs(2)).unwrap();
        assert!(timers.is_due(id, &mut alarm, entry));
        let (entry, id) = timers.pop(Duration::from_secs(10)).unwrap();
        assert!(!timers.is_due(id, &mut alarm, entry));
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn an_alarm_that_rang_unheard_can_be_set_again() {
        let (mut timers, mut alarm) = (Timers::default(), Alarm::default());
        timers.arm(7, &mut alarm, seconds(1));
        // Away when its moment comes: nobody asks whether it is due.
        assert!(timers.pop(Duration::from_secs(1)).is_some());
        Timers::missed(&mut alarm, Duration::from_secs(1));
        timers.arm(7, &mut alarm, seconds(3));
        let (entry, id) = timers.pop(Duration::from_secs(3)).unwrap();
        assert!(timers.is_due(id, &mut alarm, entry));
        // Back before it comes: the entry still counts.
        timers.arm(7, &mut alarm, seconds(5));
        Timers::missed(&mut alarm, Duration::from_secs(4));
        timers.arm(7, &mut alarm, seconds(6));
        let (entry, id) = timers.pop(Duration::from_secs(5)).unwrap();
        assert!(!timers.is_due(id, &mut alarm, entry));
        assert_eq!(timers.next(), seconds(6));
    }
}
