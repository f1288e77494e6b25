//! Waits for a change of a descriptor for which `poll(2)` would return
//! immediately.
//!
//! An entry in a socket's error queue (a transmit timestamp, a `MSG_ZEROCOPY`
//! notification) shows as `POLLERR` until the program that requested it reads
//! it. The library leaves it there, so a level-triggered wait would be a busy
//! loop. `EPOLLET` reports each change once. Since Linux 2.6.9.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use super::{Interest, Wakeup, interrupted};
use crate::errno::Errno;
use crate::sys::beyond;

/// The epoll instance of one transfer, with its registrations.
pub(super) struct Edges {
    epoll: OwnedFd,
    registered: Vec<(RawFd, EventFlags)>,
}

impl Edges {
    pub(super) fn new() -> Result<Edges, Errno> {
        Ok(Edges {
            epoll: beyond(epoll::create(CreateFlags::CLOEXEC)?)?,
            registered: Vec::new(),
        })
    }

    /// Waits for a change of a descriptor since its first wait. The caller polls
    /// with `poll(2)` before: a wait for another descriptor may already have
    /// reported the change.
    pub(super) fn wait(
        &mut self,
        interest: &Interest<'_>,
        timeout: Option<Duration>,
    ) -> Result<Wakeup, Errno> {
        let ready = interest.ready.map(|(fd, write)| (fd, direction(write)));
        let ready_number = number(interest.ready.map(|(fd, _)| fd));
        let watch_number = number(interest.watch);
        // For a descriptor that is both, errors and hang-ups are reported anyway.
        let watch = interest.watch.filter(|_| watch_number != ready_number);
        let none = EventFlags::empty();
        for (fd, flags) in [ready, watch.map(|fd| (fd, none))].into_iter().flatten() {
            self.register(fd, flags | EventFlags::ET)?;
        }
        if let Some(fd) = interest.wake {
            self.register(fd, EventFlags::IN)?;
        }
        let mut events = [const { MaybeUninit::uninit() }; 4];
        let events = match fetch(self.epoll.as_fd(), &mut events, timeout) {
            Ok(events) => events,
            Err(Errno::EINTR) => return Ok(interrupted()),
            Err(errno) => return Err(errno),
        };
        Ok(wakeup_of(interest, events))
    }

    /// Registers a descriptor once: each registration reports the present state.
    fn register(&mut self, fd: BorrowedFd<'_>, flags: EventFlags) -> Result<(), Errno> {
        let number = fd.as_raw_fd();
        let data = EventData::new_u64(number as u64);
        match self
            .registered
            .iter_mut()
            .find(|(other, _)| *other == number)
        {
            Some((_, known)) if *known == flags => {}
            Some((_, known)) => {
                epoll::modify(&self.epoll, fd, data, flags)?;
                *known = flags;
            }
            None => {
                epoll::add(&self.epoll, fd, data, flags)?;
                self.registered.push((number, flags));
            }
        }
        Ok(())
    }
}

/// Returns the event of readiness, for reading or for writing.
pub(in crate::transfer) fn direction(write: bool) -> EventFlags {
    if write {
        EventFlags::OUT
    } else {
        EventFlags::IN
    }
}

/// Returns what these events mean for a wait. The data of an event is the number of its
/// descriptor.
pub(in crate::transfer) fn wakeup_of(interest: &Interest<'_>, events: &[Event]) -> Wakeup {
    let ready = interest.ready.map(|(fd, _)| fd);
    let open = interest.ready.map(|(_, write)| direction(write));
    let open = open.unwrap_or(EventFlags::empty()) | EventFlags::HUP;
    let mut wakeup = Wakeup::default();
    for Event { data, flags } in events.iter().copied() {
        let id = Some(data.u64());
        if id == number(ready) {
            wakeup.ready = true;
            wakeup.open |= flags.intersects(open);
        }
        if id == number(interest.watch) {
            wakeup.error |= flags.contains(EventFlags::ERR);
            wakeup.hang_up |= flags.contains(EventFlags::HUP);
        }
        wakeup.woken |= id == number(interest.wake);
    }
    wakeup
}

fn number(fd: Option<BorrowedFd<'_>>) -> Option<u64> {
    fd.map(|fd| fd.as_raw_fd() as u64)
}

/// Waits for events.
///
/// # Errors
///
/// `EINTR`; any errno that a filter returns.
pub(crate) fn fetch<'a>(
    epoll: BorrowedFd<'_>,
    events: &'a mut [MaybeUninit<Event>],
    timeout: Option<Duration>,
) -> Result<&'a [Event], Errno> {
    // Rounded up to whole milliseconds, the resolution before `epoll_pwait2(2)`
    // (Linux 5.11): a wait must not end before its timeout.
    let timeout = timeout.map(|timeout| {
        let millis = timeout.as_nanos().div_ceil(1_000_000);
        let millis = i64::try_from(millis).unwrap_or(i64::MAX).min(86_400_000);
        Timespec {
            tv_sec: millis / 1000,
            tv_nsec: (millis % 1000 * 1_000_000) as _,
        }
    });
    Ok(epoll::wait(epoll, events, timeout.as_ref())?.0)
}
