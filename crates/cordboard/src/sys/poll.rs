//! Readiness of descriptors: queries and waits, even if a filter refuses some of the
//! calls.

use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno as Refused, Result};

use super::again::again;
use super::high::beyond;
use super::last_errno::last_errno;
use super::select::{poll_by_select, ready_now};
use crate::errno::Errno;

/// `ppoll(2)`. If a filter refuses it, `poll(2)`, which is a separate system call on
/// older architectures; newer ones, such as 64-bit Arm, only have `ppoll(2)`, which the
/// C library then calls.
///
/// A filter may return `EINVAL`. The kernel also returns it for more descriptors than
/// `RLIMIT_NOFILE`, and `poll(2)` then returns it too (`do_sys_poll`, fs/select.c).
///
/// # Errors
///
/// `EINTR`; `EINVAL`: more descriptors than `RLIMIT_NOFILE`; the errno of a filter.
pub fn poll_for(fds: &mut [PollFd<'_>], timeout: Option<&Timespec>) -> Result<usize> {
    match poll(fds, timeout) {
        Err(errno) if Errno::from(errno).is_refusal_or_invalid() => {
            match older_poll(fds, timeout) {
                Err(other) if Errno::from(other).is_refusal_or_invalid() => Err(errno),
                done => done,
            }
        }
        done => done,
    }
}

/// As [`poll_for`]. If that is refused, or `RLIMIT_NOFILE` is less than the number of
/// descriptors (sandboxes set it to 0), `select(2)`, which reports no errors of a descriptor
/// apart from its readiness.
///
/// Public for the C library only; not part of the API.
///
/// # Errors
///
/// `EINTR`; the errno of a filter that refuses all of these calls.
pub fn poll_or_select(fds: &mut [PollFd<'_>], timeout: Option<&Timespec>) -> Result<usize> {
    match poll_for(fds, timeout) {
        Err(errno) if Errno::from(errno).is_refusal_or_invalid() => {
            match poll_by_select(fds, timeout) {
                Ok(()) => Ok(fds.iter().filter(|fd| !fd.revents().is_empty()).count()),
                Err(Errno::EINTR) => Err(Refused::INTR),
                Err(_) => Err(errno),
            }
        }
        done => done,
    }
}

fn older_poll(fds: &mut [PollFd<'_>], timeout: Option<&Timespec>) -> Result<usize> {
    // Rounded up: a wait does not end early.
    let millis = |time: &Timespec| {
        let time = Duration::try_from(*time).unwrap_or_default();
        libc::c_int::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(libc::c_int::MAX)
    };
    const { assert!(size_of::<PollFd<'_>>() == size_of::<libc::pollfd>()) };
    let (first, count) = (fds.as_mut_ptr().cast(), fds.len() as libc::nfds_t);
    // SAFETY: a PollFd is laid out as a pollfd, of which there are so many.
    match unsafe { libc::poll(first, count, timeout.map_or(-1, millis)) } {
        ready @ 0.. => Ok(ready as usize),
        _ => Err(Refused::from_raw_os_error(last_errno().raw())),
    }
}

/// The result of a query of readiness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shown {
    sure: PollFlags,
    /// At least one of these flags is set.
    unclear: PollFlags,
}

impl Shown {
    fn clear(sure: PollFlags) -> Shown {
        let unclear = PollFlags::empty();
        Shown { sure, unclear }
    }

    /// Whether one of these flags is set. `None`: unknown.
    pub(crate) fn shows(self, flags: PollFlags) -> Option<bool> {
        match self.sure.intersects(flags) {
            false if self.unclear.intersects(flags) => None,
            shows => Some(shows),
        }
    }

    pub(crate) fn is_empty(self) -> bool {
        self.sure.is_empty() && self.unclear.is_empty()
    }

    /// Translates the result of `select(2)`. The first set has descriptors with
    /// `POLLIN`, `POLLHUP` or `POLLERR`, the second those with `POLLOUT` or `POLLERR`
    /// (`POLLIN_SET`, `POLLOUT_SET`, fs/select.c).
    fn by_select(events: PollFlags, [read, write]: [bool; 2]) -> Shown {
        let reads = events & (PollFlags::IN | PollFlags::RDHUP) | PollFlags::HUP;
        let writes = events & PollFlags::OUT;
        let none = PollFlags::empty();
        let (sure, unclear) = match (read, write) {
            (false, false) => (none, none),
            (false, true) => (writes, none),
            (true, false) => (none, reads),
            (true, true) => (none, reads | writes | PollFlags::ERR),
        };
        Shown { sure, unclear }
    }
}

/// Queries readiness by `epoll(7)`, with the same result as `poll(2)`.
///
/// # Errors
///
/// `EPERM`: the file does not support `poll`, or a filter. `EMFILE`, `ENFILE`,
/// `ENOMEM`.
fn by_epoll(fd: BorrowedFd<'_>, events: PollFlags) -> std::result::Result<PollFlags, Errno> {
    const FLAGS: [(PollFlags, EventFlags); 5] = [
        (PollFlags::IN, EventFlags::IN),
        (PollFlags::OUT, EventFlags::OUT),
        (PollFlags::RDHUP, EventFlags::RDHUP),
        (PollFlags::ERR, EventFlags::ERR),
        (PollFlags::HUP, EventFlags::HUP),
    ];
    let mut asked = EventFlags::empty();
    for (flag, other) in FLAGS {
        asked.set(other, events.contains(flag));
    }
    let epoll = beyond(epoll::create(CreateFlags::CLOEXEC)?)?;
    epoll::add(&epoll, fd, EventData::new_u64(0), asked)?;
    let (mut room, now) = ([const { MaybeUninit::uninit() }; 1], Timespec::default());
    let (told, _) = epoll::wait(&epoll, &mut room[..], Some(&now))?;
    let told = told
        .first()
        .map_or(EventFlags::empty(), |event| event.flags);
    let mut shown = PollFlags::empty();
    for (flag, other) in FLAGS {
        shown.set(flag, told.contains(other));
    }
    Ok(shown)
}

/// Returns whether a descriptor certainly shows one of these flags at this moment. `false` also
/// if that is unknown.
pub(crate) fn shows_now(fd: BorrowedFd<'_>, flags: PollFlags) -> bool {
    poll_now(fd, flags).is_ok_and(|shown| shown.shows(flags) == Some(true))
}

/// Polls without waiting. If `poll(2)` is refused, uses `select(2)`, and `epoll(7)` for
/// the flags that `select(2)` does not distinguish. If no flag is set, `poll(2)` fails
/// with `EINTR` while a signal is pending (`do_poll`, fs/select.c), and is repeated.
///
/// # Errors
///
/// The errno of a filter that refuses all of these calls.
pub(crate) fn poll_now(fd: BorrowedFd<'_>, events: PollFlags) -> Result<Shown> {
    let mut fds = [PollFd::from_borrowed_fd(fd, events)];
    match again(|| poll_for(&mut fds, Some(&Timespec::default()))) {
        Ok(_) => Ok(Shown::clear(fds[0].revents())),
        Err(errno) if Errno::from(errno).is_refusal_or_invalid() => {
            let ready = again(|| ready_now(fd)).map_err(|_| errno)?;
            let shown = Shown::by_select(events, ready);
            let clear = (!shown.unclear.is_empty()).then(|| by_epoll(fd, events));
            Ok(clear
                .and_then(|clear| clear.ok())
                .map_or(shown, Shown::clear))
        }
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use testkit::refuse;

    use super::*;

    #[test]
    fn what_a_signal_interrupts_is_asked_again() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut writer = Some(writer);
        for expected in [PollFlags::empty(), PollFlags::HUP] {
            let mut shown = None;
            let body = || shown = Some(poll_now(reader.as_fd(), PollFlags::IN));
            let signal = |count| (count == 0).then_some(libc::EINTR);
            let Some(polls) = testkit::midst::refusing(refuse::PPOLL, body, signal) else {
                return testkit::skip::report("poll", "calls of another thread cannot be held");
            };
            assert_eq!((shown, polls), (Some(Ok(Shown::clear(expected))), 2));
            drop(writer.take());
        }
    }

    /// `IN`, `OUT`, `ERR` and `HUP`.
    fn four(fd: &OwnedFd, events: PollFlags) -> [Option<bool>; 4] {
        let shown = poll_now(fd.as_fd(), events).unwrap();
        let all = [
            PollFlags::IN,
            PollFlags::OUT,
            PollFlags::ERR,
            PollFlags::HUP,
        ];
        all.map(|flag| shown.shows(flag))
    }

    #[test]
    fn the_next_call_is_made_where_one_is_refused() {
        let _only = testkit::child::without_children();
        let (yes, no) = (Some(true), Some(false));
        for errno in [libc::ENOSYS, libc::EPERM, libc::EACCES, libc::EINVAL] {
            let epoll = &[libc::SYS_epoll_create1][..];
            let calls = [refuse::PPOLL, refuse::POLL, epoll, refuse::SELECT];
            for (refused, is_exact) in [1, 2, 3].map(|n| (&calls[..n], n < 3)) {
                refuse::apart(|| {
                    refuse::refuse(&refused.concat(), errno);
                    let unless = |clear| if is_exact { clear } else { None };
                    let (reader, writer) = rustix::pipe::pipe().unwrap();
                    assert_eq!(four(&reader, PollFlags::IN), [no; 4]);
                    assert_eq!(four(&writer, PollFlags::OUT), [no, yes, no, no]);
                    assert_eq!(four(&writer, PollFlags::empty()), [no; 4]);
                    rustix::io::write(&writer, b"x").unwrap();
                    let shown = four(&reader, PollFlags::IN);
                    assert_eq!(shown, [unless(yes), no, no, unless(no)]);
                    drop(writer);
                    let shown = four(&reader, PollFlags::empty());
                    assert_eq!(shown, [no, no, no, unless(yes)]);
                    let (reader, writer) = rustix::pipe::pipe().unwrap();
                    drop(reader);
                    let shown = four(&writer, PollFlags::OUT);
                    assert_eq!(shown, [no, unless(yes), unless(yes), unless(no)]);
                });
            }
            refuse::apart(|| {
                refuse::refuse(&calls.concat(), errno);
                let (reader, _writer) = rustix::pipe::pipe().unwrap();
                let told = poll_now(reader.as_fd(), PollFlags::IN);
                assert_eq!(told, Err(Refused::from_raw_os_error(errno)));
            });
        }
    }

    /// A timeout never ends early, and never becomes infinite.
    #[test]
    fn an_older_wait_is_rounded_up() {
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
        let mut fds = [PollFd::new(&reader, PollFlags::IN)];
        for time in [time(0, 0), time(0, 1)] {
            older_poll(&mut fds, Some(&time)).unwrap();
            assert!(fds[0].revents().is_empty());
        }
        drop(_writer);
        let mut fds = [PollFd::new(&reader, PollFlags::IN)];
        for timeout in [None, Some(time(i64::MAX, 999_999_999))] {
            older_poll(&mut fds, timeout.as_ref()).unwrap();
            assert_eq!(fds[0].revents(), PollFlags::HUP);
        }
    }
}
