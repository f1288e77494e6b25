//! Waits for a change of a source that shows an error all the time, such as a socket with an
//! entry in its error queue: a wait for the socket itself would end at once.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use crate::errno::Errno;
use crate::sys::beyond;
use crate::transfer::fetch;

/// An epoll instance that polls readable after a change of the source.
pub(super) struct Edge(OwnedFd);

impl Edge {
    /// Also the state at this moment is a change.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`, `ENOSPC`, or the errno of a filter.
    pub(super) fn new(source: BorrowedFd<'_>) -> Result<Edge, Errno> {
        let epoll = beyond(epoll::create(CreateFlags::CLOEXEC)?)?;
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, source, EventData::new_u64(0), flags)?;
        Ok(Edge(epoll))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Takes the change, and returns the events of the source.
    pub(super) fn take(&self) -> PollFlags {
        let mut events = [const { MaybeUninit::uninit() }; 1];
        let events = fetch(self.fd(), &mut events, Some(Duration::ZERO)).unwrap_or(&[]);
        // The events are packed.
        let flags = events.iter().copied().map(|Event { flags, .. }| flags);
        flags
            .map(|flags| PollFlags::from_bits_retain(flags.bits() as u16))
            .collect()
    }
}
