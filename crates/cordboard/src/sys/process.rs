//! Which process this is, and one value a process, without a lock.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::wiped;

/// Tells a process from those that it has been forked from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp(u64);

/// No stamp that is counted: a process's number.
const NUMBER: u64 = 1 << 63;

impl Stamp {
    /// That of no process.
    pub(crate) const NOBODY: Stamp = Stamp(0);

    /// This process's. The same in all of its threads, and another than in any
    /// process that this one was forked from, from the child's first moment on.
    /// The process's number alone would not do: in a PID namespace of its own
    /// (`unshare(2)`) a child can have the same one as its parent.
    ///
    /// A page that `fork(2)` leaves empty has it, since Linux 4.14. Before, it
    /// is the process's number.
    pub(crate) fn here() -> Stamp {
        /// How many have been given out, to this process or to one before it.
        static GIVEN: AtomicU64 = AtomicU64::new(0);
        let Some(page) = wiped::page() else {
            return Stamp(NUMBER | u64::from(std::process::id()));
        };
        let page = &page.stamp.0;
        match page.load(Ordering::Acquire) {
            0 => {
                // Counted before it is used: no fork in between gives it twice.
                let mine = GIVEN.fetch_add(1, Ordering::AcqRel) + 1;
                let order = (Ordering::AcqRel, Ordering::Acquire);
                // Of several that come at once, one stays.
                let before = page.compare_exchange(0, mine, order.0, order.1);
                Stamp(before.err().unwrap_or(mine))
            }
            stamp => Stamp(stamp),
        }
    }

    /// It is this process's.
    pub(crate) fn is_here(self) -> bool {
        self == Stamp::here()
    }
}

/// A value that is made at its first use, and made anew in a child of
/// `fork(2)`: what the child has inherited is only shown to whoever makes its
/// own, since another thread may have held its locks at that moment.
///
/// Public for the C library alone, and no part of the interface.
pub struct PerProcess<T: 'static> {
    slot: AtomicPtr<Stamped<T>>,
}

struct Stamped<T> {
    process: Stamp,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    /// One that no process has a value of yet.
    #[allow(clippy::new_without_default, reason = "for a static")]
    pub const fn new() -> PerProcess<T> {
        PerProcess {
            slot: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// This process's value; of several that are made at once, one stays.
    /// `make` is given the parent's, of which no lock is to be waited for.
    pub fn get<E>(
        &self,
        make: impl Fn(Option<&'static T>) -> Result<T, E>,
    ) -> Result<&'static T, E> {
        self.get_usable(|_| true, make)
    }

    /// A parent's value, where this process has none of its own yet.
    pub(crate) fn inherited(&self) -> Option<&'static T> {
        // SAFETY: null, or a leaked box that is never changed or freed.
        let found = unsafe { self.slot.load(Ordering::Acquire).as_ref() }?;
        (!found.process.is_here()).then_some(&found.value)
    }

    /// The same, made anew where it is not usable any more. What was there
    /// before stays for whoever has it.
    pub(crate) fn get_usable<E>(
        &self,
        usable: impl Fn(&T) -> bool,
        make: impl Fn(Option<&'static T>) -> Result<T, E>,
    ) -> Result<&'static T, E> {
        let process = Stamp::here();
        loop {
            let now = self.slot.load(Ordering::Acquire);
            // SAFETY: null, or a leaked box that is never changed or freed.
            let found = unsafe { now.as_ref() };
            if let Some(stamped) = found
                && stamped.process == process
                && usable(&stamped.value)
            {
                return Ok(&stamped.value);
            }
            let value = make(found.map(|inherited| &inherited.value))?;
            let fresh = Box::into_raw(Box::new(Stamped { process, value }));
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            if self
                .slot
                .compare_exchange(now, fresh, order.0, order.1)
                .is_err()
            {
                // SAFETY: made a moment ago, and nobody else has seen it.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_that_come_at_once_all_get_the_same() {
        static SLOT: PerProcess<usize> = PerProcess::new();
        let gate = std::sync::Barrier::new(8);
        let one = |n: usize| {
            gate.wait();
            *SLOT
                .get(|inherited| Ok::<_, ()>(inherited.copied().unwrap_or(n)))
                .unwrap()
        };
        let got: Vec<usize> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|n| scope.spawn(move || one(n))).collect();
            all.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(got.iter().all(|n| *n == got[0]), "{got:?}");
        assert_eq!(SLOT.get(|_| Err::<usize, _>("made anew")), Ok(&got[0]));
    }

    /// In a child the stamp is another at once, and its own children's are
    /// others again. What a child sees comes back as its exit status.
    #[test]
    fn a_child_has_a_stamp_of_its_own() {
        static SLOT: PerProcess<Stamp> = PerProcess::new();
        let kept = || SLOT.get(|_| Ok::<_, ()>(Stamp::here())).copied();
        let mine = Stamp::here();
        assert!(mine.is_here() && mine != Stamp::NOBODY && kept() == Ok(mine));
        let fine = testkit::child::in_a_child(|| {
            let child = Stamp::here();
            let fine = testkit::child::in_a_child(|| {
                !child.is_here() && !mine.is_here() && kept() == Ok(Stamp::here())
            });
            fine && child != mine && child.is_here() && kept() == Ok(child)
        });
        assert!(fine && mine.is_here() && kept() == Ok(mine));
    }
}
