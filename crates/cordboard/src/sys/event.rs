//! Something that happens once.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::futex;

const NOT_YET: u32 = 0;
/// A thread waits for it.
const AWAITED: u32 = 1;
const HAPPENED: u32 = 2;

/// Something that happens once, and that any number of threads can wait for:
/// `futex(2)`. It needs no descriptor and no lock.
#[derive(Debug)]
pub(crate) struct Event(AtomicU32);

impl Event {
    pub(crate) fn new() -> Event {
        Event(AtomicU32::new(NOT_YET))
    }

    /// It happens. No system call is made where nobody waits.
    pub(crate) fn happen(&self) {
        if self.0.swap(HAPPENED, Ordering::AcqRel) == AWAITED {
            let _ = futex::wake(&self.0, futex::Flags::PRIVATE, i32::MAX as u32);
        }
    }

    pub(crate) fn has_happened(&self) -> bool {
        self.0.load(Ordering::Acquire) == HAPPENED
    }

    /// Sleeps until it happens, for so long at most. It may return earlier, and
    /// does so after a signal's handler, whatever `SA_RESTART` says: the wait
    /// has a timeout (signal(7)).
    pub(crate) fn sleep(&self, most: Duration) {
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let before = self.0.compare_exchange(NOT_YET, AWAITED, order.0, order.1);
        if before != Err(HAPPENED)
            && let Ok(most) = most.try_into()
        {
            let _ = futex::wait(&self.0, futex::Flags::PRIVATE, AWAITED, Some(&most));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn all_who_wait_hear_of_it() {
        let event = Arc::new(Event::new());
        event.sleep(Duration::ZERO);
        assert!(!event.has_happened());
        let one = || {
            let event = Arc::clone(&event);
            std::thread::spawn(move || {
                while !event.has_happened() {
                    event.sleep(LONG);
                }
            })
        };
        let all = [one(), one()];
        event.happen();
        for thread in all {
            thread.join().unwrap();
        }
        event.sleep(LONG);
    }
}
