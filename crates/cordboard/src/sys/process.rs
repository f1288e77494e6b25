//! The identity of the process, and one value per process, without a lock.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::wiped;

/// Distinguishes a process from its ancestors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp(u64);

/// Marks a stamp that is a process ID and not a count.
const NUMBER: u64 = 1 << 63;

impl Stamp {
    /// The stamp of no process.
    pub(crate) const NOBODY: Stamp = Stamp(0);

    /// Returns this process's stamp. It is the same in all threads, and differs
    /// from those of all ancestors from the process's first moment on. The
    /// process ID would not suffice: in another PID namespace (`unshare(2)`) a
    /// child can have its parent's ID.
    ///
    /// The stamp is stored in a page that `fork(2)` wipes, since Linux 4.14.
    /// Before, it is the process ID.
    pub(crate) fn here() -> Stamp {
        /// The number of stamps assigned to this process and its ancestors.
        static GIVEN: AtomicU64 = AtomicU64::new(0);
        let Some(page) = wiped::page() else {
            return Stamp(NUMBER | u64::from(std::process::id()));
        };
        let page = &page.stamp.0;
        match page.load(Ordering::Acquire) {
            0 => {
                // Counted before it is used, so that a fork in between does not
                // assign a stamp twice.
                let mine = GIVEN.fetch_add(1, Ordering::AcqRel) + 1;
                let order = (Ordering::AcqRel, Ordering::Acquire);
                // If several threads try, one succeeds.
                let before = page.compare_exchange(0, mine, order.0, order.1);
                Stamp(before.err().unwrap_or(mine))
            }
            stamp => Stamp(stamp),
        }
    }

    /// Whether it is this process's stamp.
    pub(crate) fn is_here(self) -> bool {
        self == Stamp::here()
    }
}

/// A value that is made at its first use, and made anew in a child of
/// `fork(2)`. The inherited value is only passed to `make`, since another
/// thread may have held its locks at the moment of the fork.
///
/// Public for the C library only; not part of the API.
pub struct PerProcess<T: 'static> {
    slot: AtomicPtr<Stamped<T>>,
}

struct Stamped<T> {
    process: Stamp,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    /// Makes an empty one.
    #[allow(clippy::new_without_default, reason = "for a static")]
    pub const fn new() -> PerProcess<T> {
        PerProcess {
            slot: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Returns this process's value. If several threads make one at once, one
    /// is kept. `make` gets the parent's value, and must not wait for its
    /// locks.
    pub fn get<E>(
        &self,
        make: impl Fn(Option<&'static T>) -> Result<T, E>,
    ) -> Result<&'static T, E> {
        self.get_usable(|_| true, make)
    }

    /// Returns the parent's value, if this process has none of its own yet.
    pub(crate) fn inherited(&self) -> Option<&'static T> {
        // SAFETY: null, or a leaked box that is never changed or freed.
        let found = unsafe { self.slot.load(Ordering::Acquire).as_ref() }?;
        (!found.process.is_here()).then_some(&found.value)
    }

    /// As [`PerProcess::get`], with a new value if the current one is not
    /// `usable` any more. The previous value stays valid for its users.
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
                // SAFETY: made above, and no other thread has seen it.
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

    /// In a child the stamp differs at once, and in a grandchild again. A
    /// child's result is its exit status.
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
