//! The same names as the engine's `sync.rs`, from the scheduler's primitives.

use std::time::Duration;

pub(crate) use crate::scheduler::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
pub(crate) use crate::scheduler::sync::{Mutex, MutexGuard};

pub(crate) use crate::guarded::guarded as guard_callers;

use crate::scheduler::{by_chance, sync};

pub(crate) type Errno = std::convert::Infallible;

/// A flag that threads can wait for, in place of a wake descriptor.
#[derive(Debug)]
pub(crate) struct WakeFd {
    signalled: Mutex<bool>,
    /// The host has closed it.
    closed: AtomicBool,
    changed: sync::Condvar,
}

impl WakeFd {
    pub(crate) fn new() -> Result<WakeFd, Errno> {
        Ok(WakeFd {
            signalled: Mutex::new(false),
            closed: AtomicBool::new(false),
            changed: sync::Condvar::new(),
        })
    }

    pub(crate) fn distinct() -> Result<WakeFd, Errno> {
        WakeFd::new()
    }

    pub(crate) fn is_still_open(&self) -> bool {
        !self.closed.load(Ordering::SeqCst)
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn signal_unchecked(&self) -> bool {
        self.signal()
    }

    pub(crate) fn signal(&self) -> bool {
        *self.signalled.lock().unwrap() = true;
        self.changed.notify_all();
        true
    }

    /// Waits as `poll(2)` without a timeout.
    pub(crate) fn wait(&self) {
        let signalled = self.signalled.lock().unwrap();
        drop(
            self.changed
                .wait_while(signalled, |signalled| !*signalled)
                .unwrap(),
        );
    }

    pub(crate) fn clear(&self) {
        *self.signalled.lock().unwrap() = false;
    }

    pub(crate) fn is_signalled(&self) -> bool {
        *self.signalled.lock().unwrap()
    }
}

/// The value that a thread reads first is not modelled: it sleeps under a lock.
pub(crate) struct Mark;

/// A one-time event. Some of the sleeps are interrupted.
#[derive(Debug)]
pub(crate) struct Event {
    happened: Mutex<bool>,
    changed: sync::Condvar,
}

impl Event {
    pub(crate) fn new() -> Event {
        Event {
            happened: Mutex::new(false),
            changed: sync::Condvar::new(),
        }
    }

    pub(crate) fn happen(&self) {
        *self.happened.lock().unwrap() = true;
        self.changed.notify_all();
    }

    pub(crate) fn has_happened(&self) -> bool {
        *self.happened.lock().unwrap()
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark
    }

    pub(crate) fn sleep(&self, _: Mark, _: Duration) {
        let happened = self.happened.lock().unwrap();
        if !*happened && !by_chance() {
            drop(self.changed.wait(happened).unwrap());
        }
    }
}

/// The scheduler's condition variable; some timed waits time out.
#[derive(Debug)]
pub(crate) struct Condvar(sync::Condvar);

pub(crate) struct TimedOut(bool);

impl TimedOut {
    pub(crate) fn timed_out(&self) -> bool {
        self.0
    }
}

type Waited<T> = Result<T, std::sync::PoisonError<T>>;

impl Condvar {
    pub(crate) fn new() -> Condvar {
        Condvar(sync::Condvar::new())
    }

    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> Waited<MutexGuard<'a, T>> {
        self.0.wait(guard)
    }

    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        _: Duration,
    ) -> Waited<(MutexGuard<'a, T>, TimedOut)> {
        if by_chance() {
            return Ok((guard, TimedOut(true)));
        }
        Ok((self.0.wait(guard).unwrap(), TimedOut(false)))
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}
