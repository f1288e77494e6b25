//! Where one thread of an engine waits for transfers.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::epoll::{self, Event, EventData, EventFlags};

use super::inbox::Inbox;
use super::message::Message;
use super::reactor::Reactor;
use super::seat::Seat;
use crate::errno::Errno;
use crate::sys::beyond;
use crate::transfer::{self, Home};

/// The token of the inbox's bell: transfers' numbers do not reach it.
pub(super) const BELL: EventData = EventData::new_u64(u64::MAX);

/// How long a check of the bell is trusted.
pub(super) const FRESH: Duration = Duration::from_millis(1);

/// An epoll instance, and an inbox whose bell is registered in it.
pub(super) struct Station {
    /// `None` once it is dropped.
    epoll: Option<OwnedFd>,
    inbox: Arc<Inbox<Message>>,
    /// Its thread's state, while the thread is in a step or sleeps.
    seat: Arc<Seat<Box<Reactor>>>,
    /// Whose home it is.
    pub(super) place: Home,
    /// The time of the last check of the bell, in milliseconds.
    looked: AtomicU64,
}

impl Station {
    pub(super) fn new(place: Home) -> Result<Arc<Station>, Errno> {
        let epoll = beyond(epoll::create(epoll::CreateFlags::CLOEXEC)?)?;
        let inbox = Arc::new(Inbox::new()?);
        epoll::add(&epoll, inbox.bell(), BELL, EventFlags::IN)?;
        Ok(Arc::new(Station {
            epoll: Some(epoll),
            inbox,
            seat: Arc::new(Seat::new()),
            place,
            looked: AtomicU64::new(u64::MAX),
        }))
    }

    pub(super) fn epoll(&self) -> BorrowedFd<'_> {
        self.epoll.as_ref().expect("it is not dropped yet").as_fd()
    }

    /// The events that have come by then; none where a signal has, of which only
    /// a debugger's comes here.
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

    pub(super) fn inbox(&self) -> &Arc<Inbox<Message>> {
        &self.inbox
    }

    pub(super) fn seat(&self) -> &Arc<Seat<Box<Reactor>>> {
        &self.seat
    }

    /// Its bell is there, as of the last millisecond.
    pub(super) fn was_here(&self, now: Duration) -> bool {
        let now = millisecond(now);
        self.looked.load(Ordering::Relaxed) == now || self.looks(now)
    }

    /// The same at this moment.
    pub(super) fn is_here(&self, now: Duration) -> bool {
        self.looks(millisecond(now))
    }

    fn looks(&self, now: u64) -> bool {
        let here = self.inbox.bell().is_still_open();
        if here {
            self.looked.store(now, Ordering::Relaxed);
        }
        here
    }

    /// Whether its descriptors are still its own: the host may have closed all
    /// that it did not open, and reused their numbers. The epoll instance is
    /// this station's if the bell is registered in it; any other says `ENOENT`,
    /// and is not changed.
    pub(super) fn is_intact(&self) -> bool {
        use rustix::io::Errno as Refused;
        let bell = self.inbox.bell();
        bell.is_here()
            && match epoll::modify(self.epoll(), bell, BELL, EventFlags::IN) {
                Ok(()) => true,
                Err(Refused::NOENT | Refused::INVAL | Refused::BADF) => false,
                // From a filter: it says nothing about the descriptor.
                Err(_) => true,
            }
    }
}

fn millisecond(now: Duration) -> u64 {
    (now.as_nanos() / FRESH.as_nanos()) as u64
}

impl Drop for Station {
    fn drop(&mut self) {
        if !self.is_intact() {
            // The numbers may be other files by now.
            std::mem::forget(self.epoll.take());
        }
    }
}
