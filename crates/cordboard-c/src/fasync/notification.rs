//! The signal that reports the end of an asynchronous splice.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use cordboard::{Errno, Origin, Refusal, Report, Side};

use super::flags::flags;
use super::suspended::Suspended;
use crate::sys::{self, Owner, OwnerEx, Target};

/// The signal of one transfer, requested by FASYNC on one or both sides. The
/// flags are suspended until it is dropped.
pub(crate) struct Notification {
    /// The source first. Not empty.
    sides: Vec<AsyncSide>,
    /// That of the call.
    origin: Origin,
}

/// A side that has FASYNC set.
struct AsyncSide {
    suspended: Suspended,
    /// The number that was passed to `cord_splice`.
    number: RawFd,
    which: Side,
    /// Its owner at the start.
    initial_owner: OwnerEx,
}

impl AsyncSide {
    fn new(fd: BorrowedFd<'_>, which: Side, origin: Origin) -> Result<AsyncSide, Errno> {
        let initial_owner = sys::owner(fd)?;
        Ok(AsyncSide {
            suspended: Suspended::new(fd, origin)?,
            number: fd.as_raw_fd(),
            which,
            initial_owner,
        })
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.suspended.fd()
    }

    /// The current owner.
    fn owner(&self) -> Option<Owner> {
        sys::owner(self.fd()?).ok().and_then(OwnerEx::owner)
    }

    /// Whether the owner has exited: the program wanted that process, and no
    /// other, to be signalled. Also true if the program has closed the duplicate.
    fn has_lost_its_owner(&self) -> bool {
        let Some(fd) = self.fd() else {
            return true;
        };
        let now = sys::owner(fd);
        now.is_ok_and(|now| now.owner().is_none() && now != self.initial_owner)
    }
}

impl Notification {
    /// Returns the notification if either side has FASYNC set, and suspends the
    /// flag.
    ///
    /// # Errors
    ///
    /// * `EBADF`: not an open descriptor.
    /// * `EMFILE`, `ENFILE`: no descriptor is available for the duplicate.
    pub(crate) fn requested(
        source: BorrowedFd<'_>,
        sink: BorrowedFd<'_>,
        origin: Origin,
    ) -> Result<Option<Notification>, Refusal> {
        let mut sides = Vec::new();
        for (fd, side) in [(source, Side::Source), (sink, Side::Sink)] {
            let unusable = |errno| Refusal::Unusable { side, errno };
            let flags = flags(fd).map_err(unusable)?;
            if flags & libc::O_ASYNC != 0 {
                let side = AsyncSide::new(fd, side, origin).map_err(|errno| match errno {
                    Errno::EMFILE | Errno::ENFILE => Refusal::NoDescriptor { errno },
                    _ => unusable(errno),
                })?;
                sides.push(side);
            }
        }
        Ok((!sides.is_empty()).then_some(Notification { sides, origin }))
    }

    /// Restores the flags and sends the signal. In a child that a signal handler has forked during
    /// the call, does neither: the transfer is the parent's.
    pub(crate) fn send(self, report: &Report) {
        if !self.origin.is_this_process() {
            return;
        }
        let target = self.target(report);
        self.restore_flags();
        if let Some(target) = target {
            // The owner may have exited; no other process expects the signal.
            let _ = sys::notify(&target);
        }
    }

    /// Returns the receiver and the signal, queried at the end, as the kernel
    /// does. If both sides have an owner, the receiver is that of the source.
    /// If neither has, it is the calling process, as in the paper. If an owner
    /// has exited, returns `None`, and no signal is sent, as by the kernel:
    /// SIGIO would end a process that does not expect it.
    fn target(&self, report: &Report) -> Option<Target> {
        let owned = |side| AsyncSide::owner(side).map(|owner| (side, owner));
        let (side, owner) = match self.sides.iter().find_map(owned) {
            Some(found) => found,
            None if self.sides.iter().any(AsyncSide::has_lost_its_owner) => return None,
            None => {
                let here = std::process::id() as libc::pid_t;
                (self.first(), Owner::Process(here))
            }
        };
        let error = report.errno.map_or(0, Errno::raw);
        let band = match side.which {
            Side::Source => libc::POLLIN,
            Side::Sink => libc::POLLOUT,
        };
        let band = if error == 0 {
            band
        } else {
            band | libc::POLLERR
        };
        Some(Target {
            owner,
            signal: match side.fd().map(sys::signal) {
                Some(Ok(signal)) if signal > 0 => signal,
                _ => libc::SIGIO,
            },
            number: side.number,
            band: band.into(),
            error,
        })
    }

    /// The source if it has FASYNC set, else the sink.
    fn first(&self) -> &AsyncSide {
        &self.sides[0]
    }

    fn restore_flags(self) {
        drop(self);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, PipeWriter};
    use std::os::fd::AsFd;

    use super::super::flags::set_flags;
    use super::*;
    use testkit::child;

    /// A pipe whose read end has FASYNC, which is suspended.
    fn notification() -> (Notification, PipeReader, PipeWriter) {
        let (reader, writer) = std::io::pipe().unwrap();
        let flags = sys::flags(reader.as_fd()).unwrap();
        sys::set_flags(reader.as_fd(), flags | libc::O_ASYNC).unwrap();
        let notification = Notification::requested(reader.as_fd(), writer.as_fd(), Origin::here());
        let notification = notification.unwrap().expect("the source has FASYNC");
        (notification, reader, writer)
    }

    /// The program closes all descriptors while the flag is suspended, and
    /// opens its own under their numbers. Its descriptors keep their flags and
    /// stay open, and their owner is not signalled.
    #[test]
    fn descriptors_that_the_program_replaced_are_left_alone() {
        assert!(child::in_a_child(|| {
            let (notification, reader, _writer) = notification();
            let kept = notification.first().fd().unwrap();
            let off = sys::flags(kept).unwrap();
            let (other, _feed) = std::io::pipe().unwrap();
            let number = sys::lend(kept.as_raw_fd()).unwrap();
            child::replace(number, other.as_fd());
            child::replace(reader.as_fd(), other.as_fd());
            let replaced = notification.first().fd().is_none()
                && notification.first().owner().is_none()
                && notification.first().has_lost_its_owner();
            notification.restore_flags();
            let after = sys::flags(number);
            replaced && off & libc::O_ASYNC == 0 && after.is_ok_and(|f| f & libc::O_ASYNC == 0)
        }));
    }

    /// The same, but the program puts the same file under the number: a
    /// duplicate that it has kept.
    #[test]
    fn a_file_that_the_program_opened_again_stays_open() {
        assert!(child::in_a_child(|| {
            let (notification, reader, writer) = notification();
            let number = notification.first().fd().unwrap().as_raw_fd();
            let here = child::inode(number);
            // Number 0, which close_from(3) does not close.
            child::copy_to(reader.as_raw_fd(), 0, false);
            std::mem::forget((reader, writer));
            child::close_from(3);
            child::copy_to(0, number, true);
            let replaced = notification.first().fd().is_none();
            notification.restore_flags();
            replaced && child::inode(number) == here
        }));
    }

    /// A signal handler forks during the call.
    #[test]
    fn a_child_neither_signals_nor_restores_the_flag() {
        let (notification, reader, _writer) = notification();
        let has_flag = || sys::flags(reader.as_fd()).unwrap() & libc::O_ASYNC != 0;
        assert!(child::in_a_child(|| {
            // SIGIO would end the child.
            notification.send(&Report::default());
            !has_flag()
        }));
        assert!(has_flag());
    }

    /// A transfer ends while the program sets other flags: these and the
    /// restored flag stay set.
    #[test]
    fn flags_set_while_a_transfer_ends_are_kept() {
        for held in 0.. {
            let (reader, writer) = std::io::pipe().unwrap();
            let flags = sys::flags(reader.as_fd()).unwrap() | libc::O_ASYNC;
            sys::set_flags(reader.as_fd(), flags).unwrap();
            let notification =
                Notification::requested(reader.as_fd(), writer.as_fd(), Origin::here());
            let notification = notification.unwrap().expect("the source has FASYNC");
            let wanted = flags | libc::O_NONBLOCK;
            let sets = || set_flags(reader.as_fd(), wanted).unwrap();
            let (mut calls, mut ending) = (0, None);
            let mut ends = Some(move || notification.restore_flags());
            let made = testkit::midst::at_each(&[testkit::refuse::FCNTL], sets, || {
                if calls == held
                    && let Some(ends) = ends.take()
                {
                    ending = Some(until_it_ends_or_waits(ends));
                }
                calls += 1;
            });
            let Some(made) = made else {
                return testkit::skip::here("no seccomp_unotify(2) here");
            };
            match (ends, ending) {
                (Some(ends), _) => ends(),
                (None, ending) => ending.into_iter().for_each(|ends| ends.join().unwrap()),
            }
            assert_eq!(sys::flags(reader.as_fd()), Ok(wanted), "at call {held}");
            if held >= made {
                return assert!(made > 0, "no call was held");
            }
        }
    }

    /// Runs `what` on a thread, until it has ended or sleeps for a lock.
    fn until_it_ends_or_waits(what: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            sender.send(rustix::thread::gettid()).unwrap();
            what();
        });
        let call = format!("/proc/self/task/{}/syscall", receiver.recv().unwrap());
        // `Lock` waits by sleeping.
        let sleep = libc::SYS_clock_nanosleep.to_string();
        let waits = || {
            let call = std::fs::read_to_string(&call).unwrap_or_default();
            call.split(' ').next() == Some(&sleep)
        };
        while !thread.is_finished() && !waits() {
            std::thread::yield_now();
        }
        thread
    }
}
