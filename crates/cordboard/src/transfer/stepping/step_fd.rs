//! The descriptor by which an event loop learns that a transfer can take a step.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fs::Timespec;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::errno::Errno;
use crate::sys::{self, Origin, WakeFd, beyond};
use crate::transfer::wait::{BACKOFF, Interest, Wakeup, direction, fetch, wakeup_of};

/// The data of the events of the timer and of `due`.
const OWN: u64 = u64::MAX;

/// The time of a timer that is disarmed, or has no interval.
const NEVER: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// An epoll instance with the descriptors that a transfer waits for. It polls readable as
/// soon as one of them has an event, a time has passed, or a step is possible at once.
#[derive(Debug)]
pub(super) struct StepFd {
    /// `None` only while it is dropped.
    own: Option<Own>,
    is_due: bool,
    has_timer: bool,
    registered: Vec<(RawFd, EventFlags)>,
    /// The descriptor of the wait counts as ready: `epoll_ctl(2)` has refused it, or it is
    /// not polled.
    always_ready: bool,
    /// A descriptor of the wait is not registered.
    lacks_events: bool,
}

#[derive(Debug)]
struct Own {
    epoll: OwnedFd,
    timer: OwnedFd,
    /// Readable while a step is possible at once. A thread that closes descriptors signals it
    /// too.
    due: Arc<WakeFd>,
}

impl StepFd {
    /// # Errors
    ///
    /// * `EMFILE`, `ENFILE`, `ENOMEM`: no descriptor or memory is available.
    /// * `ENOSPC`: the limit of epoll registrations is reached.
    /// * `ECHILD`: a signal handler has forked since `origin`. The child shares what the parent
    ///   has made, and must not change it.
    /// * Any errno of a seccomp filter that refuses `epoll_create1(2)`, `epoll_ctl(2)`,
    ///   `timerfd_create(2)` or `timerfd_settime(2)`, or both `eventfd2(2)` and `pipe2(2)`.
    pub(super) fn new(origin: Origin) -> Result<StepFd, Errno> {
        let check = || match origin.is_this_process() {
            true => Ok(()),
            false => Err(Errno::ECHILD),
        };
        let epoll = beyond(epoll::create(CreateFlags::CLOEXEC)?)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = beyond(timerfd_create(TimerfdClockId::Monotonic, flags)?)?;
        let due = Arc::new(WakeFd::new()?);
        // A filter may refuse this call alone.
        let never = Itimerspec {
            it_interval: NEVER,
            it_value: NEVER,
        };
        check()?;
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &never)?;
        for own in [timer.as_fd(), due.as_fd()] {
            check()?;
            epoll::add(&epoll, own, EventData::new_u64(OWN), EventFlags::IN)?;
        }
        Ok(StepFd {
            own: Some(Own { epoll, timer, due }),
            is_due: false,
            has_timer: false,
            registered: Vec::new(),
            always_ready: false,
            lacks_events: false,
        })
    }

    /// Makes it readable until the next wait.
    pub(super) fn set_due(&mut self) {
        let Some(Own { epoll, due, .. }) = &self.own else {
            return;
        };
        if !self.is_due {
            // It fails only if the host has closed the descriptor.
            self.is_due = due.signal();
            if due.waitable().is_none() {
                let _ = epoll::add(epoll, due, EventData::new_u64(OWN), EventFlags::IN);
            }
        }
    }

    /// Whether a descriptor of the wait is not registered, so that a step must find out
    /// whether the wait is over.
    pub(super) fn lacks_events(&self) -> bool {
        self.lacks_events
    }

    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    /// Makes it readable once one of these descriptors has an event, or this time has
    /// passed.
    pub(super) fn wait(&mut self, interest: &Interest<'_>, timeout: Option<Duration>) {
        let mut wanted: Vec<(BorrowedFd<'_>, EventFlags)> = Vec::with_capacity(3);
        let edge = |edge: bool| match edge {
            true => EventFlags::ET,
            false => EventFlags::empty(),
        };
        if let Some((fd, write)) = interest.polled() {
            wanted.push((fd, direction(write) | edge(interest.edge_triggered[0])));
        }
        // Errors and hang-ups are always reported.
        if let Some(fd) = interest.watch {
            wanted.push((fd, edge(interest.edge_triggered[1])));
        }
        if let Some(fd) = interest.wake {
            wanted.push((fd, EventFlags::IN));
        }
        let refused = self.register(&wanted);
        let polled = interest.polled().map(|(fd, _)| fd.as_raw_fd());
        let has_no_poll = (refused.iter())
            .any(|&(number, errno)| Some(number) == polled && errno == Errno::EPERM)
            && interest.is_ready_now();
        self.always_ready = interest.always_ready || has_no_poll;
        // Any other refusal (no memory, no room for more watches) may pass. Meanwhile the
        // timer takes the place of events.
        self.lacks_events = !refused.is_empty() && !self.always_ready;
        if self.always_ready {
            return self.set_due();
        }
        self.clear_due();
        let retry = self.lacks_events.then_some(BACKOFF);
        if !self.set_timer(timeout.into_iter().chain(retry).min()) {
            // Nothing else may end the wait.
            self.set_due();
        }
    }

    fn clear_due(&mut self) {
        if std::mem::take(&mut self.is_due)
            && let Some(Own { epoll, due, .. }) = &self.own
            && due.clear().is_err()
        {
            // A filter refuses to read it: it stays readable.
            sys::epoll_delete(epoll.as_fd(), due.as_fd().as_raw_fd());
        }
    }

    /// Sets the timer; `None` disarms it. A timer that was set again is not readable. `false`: a
    /// filter refuses to set it.
    fn set_timer(&mut self, after: Option<Duration>) -> bool {
        if after.is_none() && !self.has_timer {
            return true;
        }
        // A timer of 0 would be disarmed.
        let value = after.map_or(Duration::ZERO, |after| after.max(Duration::from_nanos(1)));
        let setting = Itimerspec {
            it_interval: NEVER,
            it_value: Timespec::try_from(value).unwrap_or(Timespec {
                tv_sec: i32::MAX.into(),
                ..NEVER
            }),
        };
        let is_set = self.own.as_ref().is_some_and(|own| {
            timerfd_settime(&own.timer, TimerfdTimerFlags::empty(), &setting).is_ok()
        });
        if is_set {
            self.has_timer = after.is_some();
        }
        is_set || after.is_none()
    }

    /// Registers these descriptors and no others. A registration that stays is not
    /// changed: an edge-triggered one would report the known state again. Returns those that are
    /// refused.
    fn register(&mut self, wanted: &[(BorrowedFd<'_>, EventFlags)]) -> Vec<(RawFd, Errno)> {
        let mut all: Vec<(BorrowedFd<'_>, EventFlags)> = Vec::with_capacity(wanted.len());
        for (fd, flags) in wanted {
            match (all.iter_mut()).find(|(other, _)| other.as_raw_fd() == fd.as_raw_fd()) {
                Some((_, other)) => *other |= *flags,
                None => all.push((*fd, *flags)),
            }
        }
        let mut refused = Vec::new();
        let Some(Own { epoll, .. }) = &self.own else {
            return refused;
        };
        self.registered.retain(|(number, _)| {
            let stays = all.iter().any(|(fd, _)| fd.as_raw_fd() == *number);
            if !stays {
                sys::epoll_delete(epoll.as_fd(), *number);
            }
            stays
        });
        for (fd, flags) in all {
            let number = fd.as_raw_fd();
            let data = EventData::new_u64(number as u64);
            let known = (self.registered.iter()).position(|(other, _)| *other == number);
            let done = match known {
                Some(index) if self.registered[index].1 == flags => continue,
                // Another file may have got the number.
                Some(_) => match epoll::modify(epoll, fd, data, flags) {
                    Err(rustix::io::Errno::NOENT) => epoll::add(epoll, fd, data, flags),
                    done => done,
                },
                None => epoll::add(epoll, fd, data, flags),
            };
            if let Some(index) = known {
                self.registered.swap_remove(index);
            }
            match done {
                Ok(()) => self.registered.push((number, flags)),
                Err(errno) => refused.push((number, errno.into())),
            }
        }
        refused
    }

    /// Returns the events of these descriptors. An edge-triggered event is returned once.
    ///
    /// # Errors
    ///
    /// Any errno that a filter returns for `epoll_wait(2)`.
    pub(super) fn events(&self, interest: &Interest<'_>) -> Result<Wakeup, Errno> {
        let mut wakeup = Wakeup::default();
        if let Some(Own { epoll, .. }) = &self.own {
            let mut room = [const { MaybeUninit::uninit() }; 8];
            match fetch(epoll.as_fd(), &mut room, Some(Duration::ZERO)) {
                // Those of the timer and of `due` have the number of no descriptor.
                Ok(events) => wakeup = wakeup_of(interest, events),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        wakeup.ready |= self.always_ready;
        wakeup.open |= self.always_ready;
        Ok(wakeup)
    }

    /// Removes all descriptors of the transfer, which may be closed then.
    pub(super) fn forget(&mut self) {
        self.register(&[]);
        self.set_timer(None);
    }

    /// Removes all descriptors, and is not readable until a thread signals the result.
    pub(super) fn wait_for_thread(&mut self) -> Option<Arc<WakeFd>> {
        self.forget();
        self.clear_due();
        let Own { epoll, due, .. } = self.own.as_ref()?;
        if due.waitable().is_none() {
            // Its next signal is an event.
            let _ = epoll::add(epoll, due, EventData::new_u64(OWN), due.events());
            let mut present = [MaybeUninit::uninit(); 2];
            let _ = fetch(epoll.as_fd(), &mut present, Some(Duration::ZERO));
        }
        Some(Arc::clone(due))
    }

    /// Closes nothing at the drop: the numbers refer to other files in this thread, or may do so
    /// in this child of `fork(2)`.
    pub(super) fn drop_without_close(&mut self) {
        std::mem::forget(self.own.take());
    }
}

impl AsFd for StepFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let own = self.own.as_ref().expect("it is taken only by `drop`");
        own.epoll.as_fd()
    }
}

impl Drop for StepFd {
    fn drop(&mut self) {
        if let Some(Own { epoll, timer, due }) = self.own.take() {
            // A child of fork(2) may have copies of all three. An event loop in which the instance
            // is still registered would find it readable as long as the child lives.
            for own in [timer.as_fd(), due.as_fd()] {
                sys::epoll_delete(epoll.as_fd(), own.as_raw_fd());
            }
            // The host may have closed them.
            [epoll, timer].into_iter().for_each(sys::close);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::duplicate;

    /// A child of `fork(2)` has copies of the descriptors. The registrations in an event loop of
    /// the parent then stay.
    #[test]
    fn what_is_dropped_is_not_readable_by_a_copy() {
        let mut step_fd = StepFd::new(Origin::here()).unwrap();
        step_fd.set_due();
        assert!(step_fd.set_timer(Some(Duration::ZERO)));
        let own = step_fd.own.as_ref().unwrap();
        let fds = [own.epoll.as_fd(), own.timer.as_fd(), own.due.as_fd()];
        let [copy, _timer, _due] = fds.map(|fd| duplicate(fd).unwrap());
        let is_readable = || {
            let mut fds = [rustix::event::PollFd::new(
                &copy,
                rustix::event::PollFlags::IN,
            )];
            rustix::event::poll(&mut fds, Some(&NEVER)).unwrap() > 0
        };
        assert!(is_readable());
        drop(step_fd);
        assert!(!is_readable());
    }
}
