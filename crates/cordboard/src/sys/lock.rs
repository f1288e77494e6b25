//! A lock that does not deadlock in a child of `fork(2)`.

use std::sync::{Mutex, MutexGuard, TryLockError};

use super::clock::sleep_a_moment;
use super::process::Stamp;

/// A lock that is held for a few instructions. A signal handler may fork in a thread
/// that is about to take the lock, or waits for it, while another thread holds it. The
/// child continues that call without the other thread, so the lock is never released in
/// the child.
///
/// Public for the C library only; not part of the API.
#[derive(Debug)]
pub struct Lock<T> {
    value: Mutex<T>,
    /// The process that made it.
    home: Stamp,
}

impl<T> Lock<T> {
    /// Makes a lock that is not held.
    pub fn new(value: T) -> Lock<T> {
        Lock {
            value: Mutex::new(value),
            home: Stamp::here(),
        }
    }

    /// Takes the lock; `None` in a child in which it is never released, since the
    /// missing thread may have been changing the value.
    ///
    /// Does not sleep in `futex(2)`: that sleep would continue in a child.
    pub fn lock(&self) -> Option<MutexGuard<'_, T>> {
        const AT_ONCE: u32 = 64;
        let mut tries = 0;
        loop {
            if let Some(held) = self.try_lock() {
                return Some(held);
            }
            if !self.home.is_here() {
                return None;
            }
            tries += 1;
            match tries < AT_ONCE {
                true => std::thread::yield_now(),
                // The holder may have a lower priority.
                false => sleep_a_moment(),
            }
        }
    }

    /// Takes the lock, unless it is held.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.value.try_lock() {
            Ok(held) => Some(held),
            Err(TryLockError::Poisoned(held)) => Some(held.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl<T: Default> Default for Lock<T> {
    fn default() -> Lock<T> {
        Lock::new(T::default())
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use testkit::child;

    #[test]
    fn those_who_come_at_once_take_turns() {
        let count = Lock::new(0);
        let add = || (0..1000).for_each(|_| *count.lock().unwrap() += 1);
        std::thread::scope(|scope| {
            (0..4).for_each(|_| drop(scope.spawn(add)));
        });
        assert_eq!(*count.lock().unwrap(), 4000);
    }

    /// Another thread holds it at the moment of the fork, or none does.
    #[test]
    fn a_child_does_not_wait_for_a_thread_that_it_does_not_have() {
        let lock = &Lock::new(7);
        let take = || lock.lock();
        child::while_held(take, || {
            assert!(lock.try_lock().is_none());
            assert!(child::in_a_child(|| {
                child::ends_soon();
                lock.lock().is_none()
            }));
        });
        assert!(child::in_a_child(|| lock.lock().as_deref() == Some(&7)));
    }

    /// If the forking thread holds the lock, it releases the lock in the child too.
    #[test]
    fn a_child_has_what_its_own_thread_has() {
        let lock = Lock::new(7);
        let held = lock.lock();
        assert!(child::in_a_child(|| {
            child::ends_soon();
            drop(held);
            lock.lock().is_some()
        }));
    }
}
