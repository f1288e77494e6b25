//! One value a process, without a lock.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A value that is made at its first use, and made anew in a child of
/// `fork(2)`: what the child has inherited is only shown to whoever makes its
/// own, since another thread may have held its locks at that moment.
///
/// Public for the C library alone, and no part of the interface.
pub struct PerProcess<T: 'static> {
    slot: AtomicPtr<Stamped<T>>,
}

struct Stamped<T> {
    process: u32,
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
        let process = std::process::id();
        loop {
            let now = self.slot.load(Ordering::Acquire);
            // SAFETY: null, or a leaked box that is never changed or freed.
            let found = unsafe { now.as_ref() };
            if let Some(stamped) = found
                && stamped.process == process
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
}
