//! An event that happens once.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::futex;
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::process::Stamp;
use super::wiped::{self, WORDS};

const NOT_YET: u32 = 0;
/// A thread waits for it.
const AWAITED: u32 = 1;
const HAPPENED: u32 = 2;

/// An event that happens once, which any number of threads can wait for:
/// `futex(2)`. It needs no descriptor and no lock.
///
/// A child of `fork(2)` never sleeps on a value that its parent has read:
/// threads sleep on a word of a page that is wiped in a child. Several events
/// share a word. If the kernel has no such page, threads sleep on the event
/// itself.
#[derive(Debug)]
pub(crate) struct Event(AtomicU32);

/// The value of the word, read before the last check of whether to sleep. Never
/// 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark(u32);

impl Event {
    pub(crate) fn new() -> Event {
        Event(AtomicU32::new(NOT_YET))
    }

    /// Makes the event happen. Makes no system call if no thread waits.
    pub(crate) fn happen(&self) {
        if self.0.swap(HAPPENED, Ordering::AcqRel) != AWAITED {
            return;
        }
        let (all, flags) = (i32::MAX as u32, futex::Flags::PRIVATE);
        let _ = match self.word() {
            Some((word, bit)) => {
                word.store(fresh(), Ordering::Release);
                futex::wake_bitset(word, flags, all, bit)
            }
            None => futex::wake(&self.0, flags, all),
        };
    }

    pub(crate) fn has_happened(&self) -> bool {
        self.0.load(Ordering::Acquire) == HAPPENED
    }

    /// Reads the word. A thread calls this before it checks whether the event
    /// has happened and whether this is still its process.
    pub(crate) fn mark(&self) -> Mark {
        let Some((word, _)) = self.word() else {
            return Mark(AWAITED);
        };
        match word.load(Ordering::Acquire) {
            0 => {
                let first = fresh();
                let order = (Ordering::AcqRel, Ordering::Acquire);
                let before = word.compare_exchange(0, first, order.0, order.1);
                Mark(before.err().unwrap_or(first))
            }
            now => Mark(now),
        }
    }

    /// Sleeps until the event happens, for at most `most`. Does not sleep in
    /// another process than that of `mark`. May return earlier, and does so
    /// after a signal handler, regardless of `SA_RESTART`: the wait has a
    /// timeout (signal(7)).
    pub(crate) fn sleep(&self, mark: Mark, most: Duration) {
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let before = self.0.compare_exchange(NOT_YET, AWAITED, order.0, order.1);
        let Ok(most) = Timespec::try_from(most) else {
            return;
        };
        if before == Err(HAPPENED) {
            return;
        }
        let flags = futex::Flags::PRIVATE;
        let _ = match self.word() {
            Some((word, bit)) => {
                let until = clock_gettime(ClockId::Monotonic).checked_add(most);
                futex::wait_bitset(word, flags, mark.0, until.as_ref(), bit)
            }
            None => futex::wait(&self.0, flags, mark.0, Some(&most)),
        };
    }

    /// Waits until the event happens. `false`: this is not `process`, perhaps
    /// after a `fork(2)` in a signal handler, and the event never happens here.
    pub(crate) fn wait_in(&self, process: Stamp) -> bool {
        /// The first interval of repeated checks, which doubles: a child may sleep on a
        /// kernel without the wiped page.
        const SOON: Duration = Duration::from_millis(20);
        const LATER: Duration = Duration::from_secs(60);
        let mut most = SOON;
        loop {
            let mark = self.mark();
            if self.has_happened() {
                return true;
            }
            if !process.is_here() {
                return false;
            }
            self.sleep(mark, most);
            most = (2 * most).min(LATER);
        }
    }

    /// Returns the word on which threads sleep, and a bit that avoids most
    /// wake-ups by other events of the same word.
    fn word(&self) -> Option<(&'static AtomicU32, NonZeroU32)> {
        let page = wiped::page()?;
        // Fibonacci hashing: the high bits depend on all of the address.
        let hash = (&raw const self.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let word = (hash >> 32) as usize % WORDS;
        let bit = NonZeroU32::MIN.get() << (hash >> 59);
        Some((&page.words[word], NonZeroU32::new(bit)?))
    }
}

/// Returns a value for a word: not 0, and different from all earlier values in
/// this process and its ancestors.
fn fresh() -> u32 {
    static GIVEN: AtomicU32 = AtomicU32::new(1);
    loop {
        // Counted before it is used, so that a fork in between does not return
        // a value twice.
        let next = GIVEN.fetch_add(1, Ordering::AcqRel);
        if next != 0 {
            return next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const LONG: Duration = Duration::from_secs(3600);

    fn waits(event: &Event) {
        assert!(event.wait_in(Stamp::here()));
    }

    #[test]
    fn all_who_wait_hear_of_it() {
        let event = Arc::new(Event::new());
        event.sleep(event.mark(), Duration::ZERO);
        assert!(!event.has_happened());
        let one = || {
            let event = Arc::clone(&event);
            std::thread::spawn(move || waits(&event))
        };
        let all = [one(), one()];
        event.happen();
        for thread in all {
            thread.join().unwrap();
        }
        event.sleep(event.mark(), LONG);
    }

    /// Each waiting thread is woken by its own event, whichever happens first.
    #[test]
    fn two_that_share_a_word_both_hear_of_it() {
        for first in [0, 1] {
            // More than there are words.
            let events: Vec<Event> = (0..=WORDS).map(|_| Event::new()).collect();
            let word = |n: usize| events[n].word().map(|(word, _)| std::ptr::from_ref(word));
            let pairs = (0..events.len()).flat_map(|n| (0..n).map(move |m| [n, m]));
            let mut sharing = pairs.filter(|[n, m]| word(*n) == word(*m));
            let both = sharing.next().unwrap().map(|n| &events[n]);
            std::thread::scope(|scope| {
                let threads = both.map(|event| scope.spawn(move || waits(event)));
                for event in both {
                    while event.0.load(Ordering::Acquire) != AWAITED {
                        std::thread::yield_now();
                    }
                }
                let mut threads = threads.map(Some);
                for n in [first, 1 - first] {
                    both[n].happen();
                    threads[n].take().unwrap().join().unwrap();
                }
            });
        }
    }

    /// A signal handler may fork between a thread's last check and its sleep.
    /// No thread would wake the child.
    #[test]
    fn a_child_does_not_sleep_by_its_parents_mark() {
        if wiped::page().is_none() {
            return testkit::skip::here("no page that fork(2) leaves empty");
        }
        let event = Event::new();
        for _ in 0..3 {
            let mark = event.mark();
            assert!(testkit::child::in_a_child(|| {
                testkit::child::ends_soon();
                event.sleep(mark, LONG);
                // Nor does it sleep once the word is in use in the child.
                let child = event.mark();
                event.sleep(mark, LONG);
                // The child's own mark is valid.
                let (word, _) = event.word().unwrap();
                word.load(Ordering::Acquire) == child.0 && child.0 != mark.0
            }));
            let (word, _) = event.word().unwrap();
            word.store(fresh(), Ordering::Release);
        }
    }
}
