//! A bell: a descriptor that wakes another thread.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno as Refused, IoSlice, IoSliceMut};
use rustix::pipe::{PipeFlags, pipe_with};

use super::again::again;
use super::high::beyond;
use super::identity::{Identity, identity};
use super::process::Stamp;
use crate::errno::Errno;

/// A descriptor that becomes readable when it is rung: `eventfd(2)`, since
/// Linux 2.6.27, or a pipe.
///
/// Its numbers may refer to other files by now: the host may have closed them
/// (`close_range(2)`), as may a child of `fork(2)`. A number that is no longer
/// a bell is not written to, not read, and not closed. An eventfd can only be
/// told from files with an inode of their own, since all anonymous files
/// (eventfds, epoll instances, timers) share one; a pipe can be told from any
/// other file. So what a host may close and reuse is a [`EventFd::distinct`].
#[derive(Debug)]
pub(crate) struct EventFd {
    ends: ManuallyDrop<Ends>,
    id: Identity,
    /// The process that made it.
    home: Stamp,
}

#[derive(Debug)]
enum Ends {
    Event(OwnedFd),
    Pipe { reader: OwnedFd, writer: OwnedFd },
}

impl EventFd {
    /// One descriptor; two if a filter refuses `eventfd2(2)`.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`: no descriptor or memory is available.
    /// `EPERM`, `ENOSYS`, or another errno: a filter refuses to make it, to write
    /// to it or to read it.
    pub(crate) fn new() -> Result<EventFd, Errno> {
        match EventFd::event() {
            Err(errno) if errno.is_refusal() => EventFd::pipe(),
            made => made,
        }
    }

    /// One that the kernel can ring too: `eventfd2(2)`, and no pipe instead.
    ///
    /// # Errors
    ///
    /// As [`EventFd::new`].
    pub(crate) fn event() -> Result<EventFd, Errno> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        EventFd::of(Ends::Event(beyond(eventfd(0, flags)?)?))
    }

    /// One that can be told from any other, of two descriptors; as [`EventFd::new`]
    /// if no pipe is available.
    ///
    /// # Errors
    ///
    /// As [`EventFd::new`].
    pub(crate) fn distinct() -> Result<EventFd, Errno> {
        EventFd::pipe().or_else(|_| EventFd::new())
    }

    fn pipe() -> Result<EventFd, Errno> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let (reader, writer) = (beyond(reader)?, beyond(writer)?);
        // A byte or two: of the user's share of pages it takes one.
        let _ = rustix::pipe::fcntl_setpipe_size(&writer, 4096);
        EventFd::of(Ends::Pipe { reader, writer })
    }

    fn of(ends: Ends) -> Result<EventFd, Errno> {
        let id = identity(ends.reader()).ok_or(Errno::EBADF)?;
        let bell = EventFd {
            ends: ManuallyDrop::new(ends),
            id,
            home: Stamp::here(),
        };
        // If it could not be rung, a thread would wait for it for ever.
        strike(bell.ends.writer())?;
        // If it could not be read, a thread would find it rung for ever.
        bell.clear()?;
        Ok(bell)
    }

    /// `false`: it wakes no thread. Async-signal-safe: `fstat(2)` and
    /// `write(2)`.
    pub(crate) fn ring(&self) -> bool {
        self.is_there() && self.strike()
    }

    /// It can be rung: that number is still its own. A host that closes what it
    /// did not open closes the number of the other end too.
    pub(crate) fn is_there(&self) -> bool {
        identity(self.ends.writer()) == Some(self.id)
    }

    /// Rings it if it [is there](EventFd::is_there). `false`: it wakes no thread.
    pub(crate) fn strike(&self) -> bool {
        match strike(self.ends.writer()) {
            // A counter that is already at its maximum is readable just as
            // well, and so is a full pipe.
            Ok(()) | Err(Refused::AGAIN) => true,
            Err(_) => false,
        }
    }

    /// Silent until it is rung again.
    ///
    /// # Errors
    ///
    /// `EPERM`, `ENOSYS`, or another errno: a filter refuses to read it. It may stay
    /// rung, and is not to be waited for any more.
    pub(crate) fn clear(&self) -> Result<(), Refused> {
        while identity(self.ends.reader()) == Some(self.id) && self.read_some()? {}
        Ok(())
    }

    /// True if there may be more.
    fn read_some(&self) -> Result<bool, Refused> {
        let mut rings = [0; 512];
        match hear(self.ends.reader(), &mut rings) {
            Ok(heard) => Ok(heard == rings.len()),
            Err(Refused::AGAIN) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Its numbers are still its own, as far as can be told.
    pub(crate) fn is_here(&self) -> bool {
        let here = |fd| identity(fd) == Some(self.id);
        here(self.ends.reader()) && here(self.ends.writer())
    }

    /// Both numbers, or the one.
    #[cfg(test)]
    pub(crate) fn numbers(&self) -> [BorrowedFd<'_>; 2] {
        [self.ends.reader(), self.ends.writer()]
    }

    /// So is [`EventFd::is_here`] proven.
    pub(crate) fn is_distinct(&self) -> bool {
        matches!(*self.ends, Ends::Pipe { .. })
    }
}

/// `write(2)`; `writev(2)`, where a filter refuses that. One may also say that it
/// was interrupted.
fn strike(bell: BorrowedFd<'_>) -> Result<(), Refused> {
    let one = 1u64.to_ne_bytes();
    match again(|| rustix::io::write(bell, &one)) {
        Err(errno) if Errno::from(errno).is_refusal() => {
            rustix::io::writev(bell, &[IoSlice::new(&one)])
        }
        done => done,
    }
    .map(drop)
}

/// `read(2)`; `readv(2)`, where a filter refuses that. One may also say that it was
/// interrupted.
fn hear(bell: BorrowedFd<'_>, rings: &mut [u8]) -> Result<usize, Refused> {
    match again(|| rustix::io::read(bell, &mut *rings)) {
        Err(errno) if Errno::from(errno).is_refusal() => {
            rustix::io::readv(bell, &mut [IoSliceMut::new(rings)])
        }
        done => done,
    }
}

impl Ends {
    fn reader(&self) -> BorrowedFd<'_> {
        match self {
            Ends::Event(fd) | Ends::Pipe { reader: fd, .. } => fd.as_fd(),
        }
    }

    fn writer(&self) -> BorrowedFd<'_> {
        match self {
            Ends::Event(fd) | Ends::Pipe { writer: fd, .. } => fd.as_fd(),
        }
    }
}

impl Drop for EventFd {
    fn drop(&mut self) {
        // Closed by number, it could be any eventfd of a child's.
        let proven = self.is_distinct() || self.home.is_here();
        if proven && self.is_here() {
            // SAFETY: dropped once, here, and not used after.
            unsafe { ManuallyDrop::drop(&mut self.ends) };
        }
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ends.reader()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use testkit::child;

    fn is_rung(bell: &EventFd) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::new(bell, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())) == Ok(1)
    }

    #[test]
    fn rings_are_heard_until_they_are_cleared() {
        for make in [EventFd::new, EventFd::distinct] {
            let bell = make().unwrap();
            assert!(!is_rung(&bell) && bell.is_here());
            assert!((0..5000).all(|_| bell.ring()));
            assert!(is_rung(&bell));
            bell.clear().unwrap();
            assert!(!is_rung(&bell));
        }
    }

    #[test]
    fn without_eventfds_it_is_a_pipe() {
        for errno in [libc::EPERM, libc::ENOSYS] {
            testkit::refuse::apart(|| {
                testkit::refuse::refuse(&[libc::SYS_eventfd2], errno);
                let bell = EventFd::new().unwrap();
                assert!(bell.ring() && bell.is_distinct() && is_rung(&bell));
            });
        }
    }

    #[test]
    fn without_write_it_rings_or_is_not_made() {
        for errno in [libc::EPERM, libc::ENOSYS] {
            testkit::refuse::apart(|| {
                testkit::refuse::refuse(&[libc::SYS_write], errno);
                let bell = EventFd::new().unwrap();
                assert!(bell.ring() && is_rung(&bell));
                testkit::refuse::refuse(&[libc::SYS_writev], errno);
                assert!(!bell.ring(), "nobody hears it");
                for make in [EventFd::new, EventFd::distinct] {
                    assert_eq!(make().err(), Some(Errno::from_raw(errno)));
                }
            });
        }
    }

    #[test]
    fn without_read_it_is_cleared_or_is_not_made() {
        for errno in [libc::EPERM, libc::ENOSYS] {
            testkit::refuse::apart(|| {
                testkit::refuse::refuse(&[libc::SYS_read], errno);
                let bell = EventFd::new().unwrap();
                assert!(bell.ring() && is_rung(&bell));
                assert!(bell.clear().is_ok() && !is_rung(&bell));
                testkit::refuse::refuse(&[libc::SYS_readv], errno);
                assert!(bell.ring());
                assert_eq!(
                    bell.clear().map_err(Errno::from),
                    Err(Errno::from_raw(errno))
                );
                for make in [EventFd::new, EventFd::distinct] {
                    assert_eq!(make().err(), Some(Errno::from_raw(errno)));
                }
            });
        }
    }

    /// Whatever its numbers are by now is neither read nor written nor closed.
    #[test]
    fn what_has_its_number_is_left_alone() {
        assert!(child::in_a_child(|| {
            [EventFd::new, EventFd::distinct].into_iter().all(|make| {
                let bell = make().unwrap();
                let file = tempfile::tempfile().unwrap();
                rustix::io::write(&file, b"host's").unwrap();
                let numbers = bell.numbers().map(|fd| {
                    child::replace(fd, file.as_fd());
                    fd.as_raw_fd()
                });
                assert!(!bell.ring());
                rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).unwrap();
                assert!(bell.clear().is_ok());
                let untouched = rustix::fs::tell(&file) == Ok(0);
                drop(bell);
                let open = |number: &i32| {
                    // SAFETY: takes any number, and changes nothing.
                    unsafe { libc::fcntl(*number, libc::F_GETFD) >= 0 }
                };
                let length = rustix::fs::fstat(&file).unwrap().st_size;
                untouched && length == 6 && numbers.iter().all(open)
            })
        }));
    }
}
