//! The epoll instance of one reactor thread.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::epoll::{self, Event, EventData};

use crate::errno::Errno;
use crate::sys::{WakeFd, beyond};
use crate::transfer::{self, ThreadKind};

/// The token of the wake descriptor: transfer numbers do not reach it.
pub(super) const WAKE: EventData = EventData::new_u64(u64::MAX);

/// The time for which a check of the wake descriptor stays valid.
pub(super) const FRESH: Duration = Duration::from_millis(1);

/// An epoll instance, and the wake descriptor that is registered in it.
pub(super) struct Poller {
    /// `None` once it is dropped.
    epoll: Option<OwnedFd>,
    wake: Arc<WakeFd>,
    /// The number of its reactor in the engine.
    pub(super) reactor: usize,
    /// The kind of thread that waits with it.
    pub(super) thread_kind: ThreadKind,
    /// The time of the last check of the wake descriptor, in milliseconds.
    last_check: AtomicU64,
}

impl Poller {
    pub(super) fn new(
        reactor: usize,
        thread_kind: ThreadKind,
        wake: &Arc<WakeFd>,
    ) -> Result<Poller, Errno> {
        let epoll = beyond(epoll::create(epoll::CreateFlags::CLOEXEC)?)?;
        epoll::add(&epoll, wake, WAKE, wake.events())?;
        Ok(Poller {
            epoll: Some(epoll),
            wake: Arc::clone(wake),
            reactor,
            thread_kind,
            last_check: AtomicU64::new(u64::MAX),
        })
    }

    /// Clears the wake descriptor; called before the messages are read. If a filter refuses
    /// that, the wake descriptor stays readable, and an event each time would keep the thread
    /// busy.
    pub(super) fn clear_wake(&self) {
        self.wake.clear_in(self.epoll(), WAKE);
    }

    fn register_wake(&self) -> rustix::io::Result<()> {
        epoll::modify(self.epoll(), &self.wake, WAKE, self.wake.events())
    }

    pub(super) fn epoll(&self) -> BorrowedFd<'_> {
        self.epoll.as_ref().expect("it is not dropped yet").as_fd()
    }

    /// Waits for events. Returns none after `EINTR`: signals are blocked, so only a
    /// debugger causes it.
    pub(super) fn fetch<'a>(
        &self,
        events: &'a mut [MaybeUninit<Event>],
        timeout: Option<Duration>,
    ) -> Result<&'a [Event], Errno> {
        match transfer::fetch(self.epoll(), events, timeout) {
            Err(Errno::EINTR) => Ok(&[]),
            done => done,
        }
    }

    /// Returns whether the wake descriptor is open, as of the last millisecond.
    pub(super) fn was_open(&self, now: Duration) -> bool {
        let now = millisecond(now);
        self.last_check.load(Ordering::Relaxed) == now || self.check(now)
    }

    /// Returns whether the wake descriptor is open now.
    pub(super) fn is_open(&self, now: Duration) -> bool {
        self.check(millisecond(now))
    }

    fn check(&self, now: u64) -> bool {
        let open = self.wake.is_still_open();
        if open {
            self.last_check.store(now, Ordering::Relaxed);
        }
        open
    }

    /// Returns whether both descriptors still refer to the files of this poller:
    /// the host may have closed all descriptors that it did not open, and reused
    /// their numbers. The epoll instance is this poller's if the wake descriptor is
    /// registered in it. On any other, the call fails with `ENOENT` and changes
    /// nothing.
    pub(super) fn is_intact(&self) -> bool {
        use rustix::io::Errno as Refused;
        self.wake.is_here()
            && match self.register_wake() {
                Ok(()) => true,
                Err(Refused::NOENT | Refused::INVAL | Refused::BADF) => false,
                // From a seccomp filter, which says nothing about the descriptor.
                Err(_) => true,
            }
    }
}

fn millisecond(now: Duration) -> u64 {
    (now.as_nanos() / FRESH.as_nanos()) as u64
}

impl Drop for Poller {
    fn drop(&mut self) {
        if !self.is_intact() {
            // The numbers may refer to other files by now.
            std::mem::forget(self.epoll.take());
        }
    }
}
