//! The descriptor by which an event loop learns that a transfer can take a step.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fs::Timespec;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::errno::Errno;
use crate::sys::{self, beyond};
use crate::transfer::wait::{BACKOFF, Interest};

/// The shortest time: a timer of 0 is disarmed.
const NOW: Duration = Duration::from_nanos(1);

/// An epoll instance with a timer and the descriptors that a transfer waits for. It polls
/// readable as soon as one of them does.
#[derive(Debug)]
pub(super) struct Alarm {
    /// `None` only while it is dropped.
    own: Option<[OwnedFd; 2]>,
    registered: Vec<(RawFd, EventFlags)>,
    timer: Timer,
}

/// The state of the timer.
#[derive(Debug, PartialEq, Eq)]
enum Timer {
    Disarmed,
    /// Set to [`NOW`].
    Rings,
    Armed,
}

impl Alarm {
    /// # Errors
    ///
    /// * `EMFILE`, `ENFILE`, `ENOMEM`: no descriptor or memory is available.
    /// * Any errno of a seccomp filter that refuses `epoll_create1(2)` or
    ///   `timerfd_create(2)`.
    pub(super) fn new() -> Result<Alarm, Errno> {
        let epoll = beyond(epoll::create(CreateFlags::CLOEXEC)?)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = beyond(timerfd_create(TimerfdClockId::Monotonic, flags)?)?;
        epoll::add(&epoll, &timer, EventData::new_u64(0), EventFlags::IN)?;
        Ok(Alarm {
            own: Some([epoll, timer]),
            registered: Vec::new(),
            timer: Timer::Disarmed,
        })
    }

    fn epoll(&self) -> Option<BorrowedFd<'_>> {
        self.own.as_ref().map(|[epoll, _]| epoll.as_fd())
    }

    /// Sets the timer; `None` disarms it. An expired timer is no longer readable.
    fn set_timer(&self, after: Option<Duration>) -> Result<(), Errno> {
        let value = after.map_or(Duration::ZERO, |after| after.max(NOW));
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let setting = Itimerspec {
            it_interval: zero,
            it_value: Timespec::try_from(value).unwrap_or(Timespec {
                tv_sec: i64::MAX as _,
                ..zero
            }),
        };
        if let Some([_, timer]) = &self.own {
            timerfd_settime(timer, TimerfdTimerFlags::empty(), &setting)?;
        }
        Ok(())
    }

    /// Makes it readable until the next wait.
    pub(super) fn ring(&mut self) {
        // It fails only if the host has closed the timer.
        if self.timer != Timer::Rings && self.set_timer(Some(NOW)).is_ok() {
            self.timer = Timer::Rings;
        }
    }

    /// Makes it readable once one of these descriptors is, or this time has passed.
    pub(super) fn wait(&mut self, interest: &Interest<'_>, timeout: Option<Duration>) {
        let mut wanted: Vec<(BorrowedFd<'_>, EventFlags)> = Vec::with_capacity(3);
        let edge = |edge: bool| match edge {
            true => EventFlags::ET,
            false => EventFlags::empty(),
        };
        if let Some((fd, write)) = interest.ready {
            let direction = if write {
                EventFlags::OUT
            } else {
                EventFlags::IN
            };
            wanted.push((fd, direction | edge(interest.edge_triggered[0])));
        }
        // Errors and hang-ups are always reported.
        if let Some(fd) = interest.watch {
            wanted.push((fd, edge(interest.edge_triggered[1])));
        }
        if let Some(fd) = interest.wake {
            wanted.push((fd, EventFlags::IN));
        }
        let registered = self.register(&wanted);
        // A descriptor that cannot be watched is tried at intervals.
        let retry = (!registered).then_some(BACKOFF);
        let timeout = timeout.into_iter().chain(retry).min();
        if timeout.is_some() || self.timer != Timer::Disarmed {
            let _ = self.set_timer(timeout);
            self.timer = match timeout {
                Some(_) => Timer::Armed,
                None => Timer::Disarmed,
            };
        }
    }

    /// Registers these descriptors and no others. A registration that stays is not
    /// changed: an edge-triggered one would report the known state again.
    fn register(&mut self, wanted: &[(BorrowedFd<'_>, EventFlags)]) -> bool {
        let mut all: Vec<(BorrowedFd<'_>, EventFlags)> = Vec::with_capacity(wanted.len());
        for (fd, flags) in wanted {
            match (all.iter_mut()).find(|(other, _)| other.as_raw_fd() == fd.as_raw_fd()) {
                Some((_, other)) => *other |= *flags,
                None => all.push((*fd, *flags)),
            }
        }
        let Some([epoll, _]) = &self.own else {
            return false;
        };
        self.registered.retain(|(number, _)| {
            let stays = all.iter().any(|(fd, _)| fd.as_raw_fd() == *number);
            if !stays {
                // Its descriptor may be closed already, and then it is not registered.
                sys::epoll_delete(epoll.as_fd(), *number);
            }
            stays
        });
        let mut complete = true;
        for (fd, flags) in all {
            let number = fd.as_raw_fd();
            let data = EventData::new_u64(number as u64);
            let known = (self.registered.iter_mut()).find(|(other, _)| *other == number);
            let done = match &known {
                Some((_, known)) if *known == flags => continue,
                // Another file may have got the number.
                Some(_) => match epoll::modify(epoll, fd, data, flags) {
                    Err(rustix::io::Errno::NOENT) => epoll::add(epoll, fd, data, flags),
                    done => done,
                },
                None => epoll::add(epoll, fd, data, flags),
            };
            match (done, known) {
                (Ok(()), Some((_, known))) => *known = flags,
                (Ok(()), None) => self.registered.push((number, flags)),
                (Err(_), _) => complete = false,
            }
        }
        complete
    }

    /// Makes it readable for good: the transfer has ended.
    pub(super) fn end(&mut self) {
        self.register(&[]);
        self.ring();
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll().expect("it is taken only by `drop`")
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // The host may have closed them.
        self.own.take().into_iter().flatten().for_each(sys::close);
    }
}
