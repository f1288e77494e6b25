//! A descriptor that wakes another thread: `eventfd(2)`, or a pipe in its place.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::{Errno as Refused, IoSlice, IoSliceMut};
use rustix::pipe::{PipeFlags, pipe_with};

use super::again::again;
use super::close::{close, close_own};
use super::high::beyond;
use super::identity::{Identity, identity};
use super::process::Stamp;
use crate::errno::Errno;

/// A descriptor that becomes readable when it is signalled: `eventfd(2)`, since Linux
/// 2.6.27. A pipe takes its place if a filter refuses `eventfd2(2)`, or if its identity
/// matters ([`WakeFd::distinct`]).
///
/// Its descriptor numbers may refer to other files by now: the host, or a child of
/// `fork(2)`, may have closed them (`close_range(2)`). A number that no longer refers
/// to this file is not written to, not read, and not closed. All anonymous files
/// (eventfds, epoll instances, timers) share one inode, so an eventfd can be
/// distinguished only from files with an inode of their own. A pipe can be
/// distinguished from every other file. So a descriptor that a host may close and reuse
/// is made by [`WakeFd::distinct`].
#[derive(Debug)]
pub(crate) struct WakeFd {
    ends: ManuallyDrop<Ends>,
    id: Identity,
    /// The process that made it.
    home: Stamp,
    /// A filter has refused to clear it: it may stay readable.
    is_uncleared: AtomicBool,
}

#[derive(Debug)]
enum Ends {
    Event(OwnedFd),
    Pipe { reader: OwnedFd, writer: OwnedFd },
}

impl WakeFd {
    /// Makes one from an eventfd, with one descriptor; from a pipe, with two, if a
    /// filter refuses `eventfd2(2)`. The kernel returns `EINVAL` only for unknown
    /// flags (`do_eventfd`, fs/eventfd.c).
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`: no descriptor or memory is available.
    /// `EPERM`, `ENOSYS`, or another errno: a filter refuses to make it, to write
    /// to it or to read it.
    pub(crate) fn new() -> Result<WakeFd, Errno> {
        match WakeFd::event() {
            Err(errno) if errno.is_refusal_or_invalid() => WakeFd::pipe(),
            made => made,
        }
    }

    /// Makes one from an eventfd only, which the kernel can signal too.
    ///
    /// # Errors
    ///
    /// As [`WakeFd::new`].
    pub(crate) fn event() -> Result<WakeFd, Errno> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        WakeFd::of(|| Ok(Ends::Event(beyond(eventfd(0, flags)?)?)))
    }

    /// Makes one that can be distinguished from every other file: from a pipe, with two
    /// descriptors; as [`WakeFd::new`] if no pipe is available.
    ///
    /// # Errors
    ///
    /// As [`WakeFd::new`].
    pub(crate) fn distinct() -> Result<WakeFd, Errno> {
        WakeFd::pipe().or_else(|_| WakeFd::new())
    }

    fn pipe() -> Result<WakeFd, Errno> {
        WakeFd::of(|| {
            let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
            let (reader, writer) = (beyond(reader)?, beyond(writer)?);
            // It holds a few bytes, and one page of the user's limit is enough.
            let _ = rustix::pipe::fcntl_setpipe_size(&writer, 4096);
            Ok(Ends::Pipe { reader, writer })
        })
    }

    /// A child that a signal handler forks meanwhile makes its own one: it would clear signals of
    /// the parent.
    fn of(make: impl Fn() -> Result<Ends, Errno>) -> Result<WakeFd, Errno> {
        loop {
            let home = Stamp::here();
            let ends = make()?;
            let id = identity(ends.reader()).ok_or(Errno::EBADF)?;
            if !home.is_here() {
                continue;
            }
            // If it could not be signalled, a thread would wait for it forever.
            signal(ends.writer())?;
            let made = WakeFd {
                ends: ManuallyDrop::new(ends),
                id,
                home,
                is_uncleared: AtomicBool::new(false),
            };
            // If it could not be read, a thread would find it readable forever.
            if home.is_here() {
                made.read_some()?;
            }
            if home.is_here() {
                return Ok(made);
            }
        }
    }

    /// Makes the descriptor readable. `false`: failed, and no thread wakes.
    /// Async-signal-safe: calls `fstat(2)` and `write(2)`.
    pub(crate) fn signal(&self) -> bool {
        self.is_still_open() && self.signal_unchecked()
    }

    /// Whether the descriptor can be signalled: the number of its write end still
    /// refers to it. A host that closes descriptors it did not open closes both ends.
    pub(crate) fn is_still_open(&self) -> bool {
        identity(self.ends.writer()) == Some(self.id)
    }

    /// As [`WakeFd::signal`], without the check of [`WakeFd::is_still_open`], which
    /// the caller has made.
    pub(crate) fn signal_unchecked(&self) -> bool {
        match signal(self.ends.writer()) {
            // A counter at its maximum is readable, and so is a full pipe.
            Ok(()) | Err(Refused::AGAIN) => true,
            Err(_) => false,
        }
    }

    /// Makes the descriptor unreadable until it is signalled again.
    ///
    /// # Errors
    ///
    /// `EPERM`, `ENOSYS`, or another errno: a filter refuses the read. The descriptor
    /// may stay readable, and is waited for as [`WakeFd::waitable`] or
    /// [`WakeFd::events`] return from now on.
    pub(crate) fn clear(&self) -> Result<(), Refused> {
        while identity(self.ends.reader()) == Some(self.id) {
            match self.read_some() {
                Ok(true) => {}
                Ok(false) => break,
                Err(errno) => {
                    self.is_uncleared.store(true, Ordering::Relaxed);
                    return Err(errno);
                }
            }
        }
        Ok(())
    }

    /// Returns the descriptor to poll; `None` if it may stay readable, and a wait for it would
    /// return again and again.
    pub(crate) fn waitable(&self) -> Option<BorrowedFd<'_>> {
        let stays = self.is_uncleared.load(Ordering::Relaxed);
        (!stays).then(|| self.as_fd())
    }

    /// Returns the events to register in an epoll instance. If the descriptor may stay
    /// readable, only its next signal is an event.
    pub(crate) fn events(&self) -> epoll::EventFlags {
        match self.waitable() {
            Some(_) => epoll::EventFlags::IN,
            None => epoll::EventFlags::IN | epoll::EventFlags::ET,
        }
    }

    /// As [`WakeFd::clear`], for a descriptor that is registered with `data`. Registers it
    /// again if its events change.
    pub(crate) fn clear_in(&self, epoll: impl AsFd, data: epoll::EventData) {
        let before = self.events();
        // A second registration would report the known state again.
        if self.clear().is_err() && self.events() != before {
            let _ = epoll::modify(epoll, self, data, self.events());
        }
    }

    /// Reads once. True if there may be more.
    fn read_some(&self) -> Result<bool, Refused> {
        let mut bytes = [0; 512];
        match read(self.ends.reader(), &mut bytes) {
            Ok(n) => Ok(n == bytes.len()),
            Err(Refused::AGAIN) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Whether both its numbers still refer to it, as far as [`WakeFd::is_distinct`]
    /// permits.
    pub(crate) fn is_here(&self) -> bool {
        let here = |fd| identity(fd) == Some(self.id);
        here(self.ends.reader()) && here(self.ends.writer())
    }

    /// Returns its descriptors: both ends of a pipe, or an eventfd twice.
    #[cfg(test)]
    pub(crate) fn numbers(&self) -> [BorrowedFd<'_>; 2] {
        [self.ends.reader(), self.ends.writer()]
    }

    /// Whether it is a pipe, so that [`WakeFd::is_here`] is certain.
    pub(crate) fn is_distinct(&self) -> bool {
        matches!(*self.ends, Ends::Pipe { .. })
    }
}

/// `write(2)`; `writev(2)` where a filter refuses that. A filter may also return
/// `EINTR`. The kernel returns `EINVAL` only for fewer than 8 bytes or the value 2^64-1
/// (`eventfd_write`, fs/eventfd.c).
fn signal(writer: BorrowedFd<'_>) -> Result<(), Refused> {
    let one = 1u64.to_ne_bytes();
    match again(|| rustix::io::write(writer, &one)) {
        Err(errno) if Errno::from(errno).is_refusal_or_invalid() => {
            rustix::io::writev(writer, &[IoSlice::new(&one)])
        }
        done => done,
    }
    .map(drop)
}

/// `read(2)`; `readv(2)` where a filter refuses that, as in [`signal`].
fn read(reader: BorrowedFd<'_>, into: &mut [u8]) -> Result<usize, Refused> {
    match again(|| rustix::io::read(reader, &mut *into)) {
        Err(errno) if Errno::from(errno).is_refusal_or_invalid() => {
            rustix::io::readv(reader, &mut [IoSliceMut::new(into)])
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

impl Drop for WakeFd {
    fn drop(&mut self) {
        // In a child, the number of an eventfd may refer to another eventfd.
        let proven = self.is_distinct() || self.home.is_here();
        if proven && self.is_here() {
            // SAFETY: taken once, here, and not used after.
            match unsafe { ManuallyDrop::take(&mut self.ends) } {
                Ends::Event(fd) => close(fd),
                Ends::Pipe { reader, writer } => {
                    [reader, writer]
                        .into_iter()
                        .for_each(|end| close_own(end, self.id));
                }
            }
        }
    }
}

impl AsFd for WakeFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ends.reader()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use testkit::child;

    fn is_signalled(event: &WakeFd) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::new(event, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())) == Ok(1)
    }

    #[test]
    fn a_signal_stays_until_it_is_cleared() {
        for make in [WakeFd::new, WakeFd::distinct] {
            let event = make().unwrap();
            assert!(!is_signalled(&event) && event.is_here());
            assert!((0..5000).all(|_| event.signal()));
            assert!(is_signalled(&event));
            event.clear().unwrap();
            assert!(!is_signalled(&event));
        }
    }

    #[test]
    fn without_eventfds_it_is_a_pipe() {
        for errno in [libc::EPERM, libc::ENOSYS, libc::EINVAL] {
            testkit::refuse::apart(|| {
                testkit::refuse::refuse(&[libc::SYS_eventfd2], errno);
                let event = WakeFd::new().unwrap();
                assert!(event.signal() && event.is_distinct() && is_signalled(&event));
            });
        }
    }

    #[test]
    fn without_write_it_is_signalled_or_is_not_made() {
        for errno in [libc::EPERM, libc::ENOSYS, libc::EINVAL] {
            testkit::refuse::apart(|| {
                testkit::refuse::refuse(&[libc::SYS_write], errno);
                let event = WakeFd::new().unwrap();
                assert!(event.signal() && is_signalled(&event));
                testkit::refuse::refuse(&[libc::SYS_writev], errno);
                assert!(!event.signal(), "no thread wakes");
                for make in [WakeFd::new, WakeFd::distinct] {
                    assert_eq!(make().err(), Some(Errno::from_raw(errno)));
                }
            });
        }
    }

    #[test]
    fn without_read_it_is_cleared_or_is_not_made() {
        for errno in [libc::EPERM, libc::ENOSYS, libc::EINVAL] {
            testkit::refuse::apart(|| {
                testkit::refuse::refuse(&[libc::SYS_read], errno);
                let event = WakeFd::new().unwrap();
                assert!(event.signal() && is_signalled(&event));
                assert!(event.clear().is_ok() && !is_signalled(&event));
                testkit::refuse::refuse(&[libc::SYS_readv], errno);
                assert!(event.signal());
                assert_eq!(
                    event.clear().map_err(Errno::from),
                    Err(Errno::from_raw(errno))
                );
                for make in [WakeFd::new, WakeFd::distinct] {
                    assert_eq!(make().err(), Some(Errno::from_raw(errno)));
                }
            });
        }
    }

    /// Files that have taken its numbers are neither read nor written nor closed.
    #[test]
    fn what_has_its_number_is_left_alone() {
        assert!(child::in_a_child(|| {
            [WakeFd::new, WakeFd::distinct].into_iter().all(|make| {
                let event = make().unwrap();
                let file = tempfile::tempfile().unwrap();
                rustix::io::write(&file, b"host's").unwrap();
                let numbers = event.numbers().map(|fd| {
                    child::replace(fd, file.as_fd());
                    fd.as_raw_fd()
                });
                assert!(!event.signal());
                rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).unwrap();
                assert!(event.clear().is_ok());
                let untouched = rustix::fs::tell(&file) == Ok(0);
                drop(event);
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
