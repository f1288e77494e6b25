//! Using the caller's blocking pipe without blocking on it.
//!
//! `poll(2)` before a call is not enough: another user of the pipe may take the
//! bytes, or the space, before the call. `O_NONBLOCK` would affect every
//! process that shares the description. So, in this order:
//!
//! * `RWF_NOWAIT` with `preadv2(2)` and `pwritev2(2)`: on an anonymous pipe
//!   since Linux 6.4 (`do_pipe2` in fs/pipe.c sets `FMODE_NOWAIT`); never on a
//!   FIFO, nor on a pipe that has been spliced (`pipe_clear_nowait` in
//!   fs/splice.c).
//! * A second description of the same pipe, opened through procfs with
//!   `O_NONBLOCK`.
//! * Without either (no procfs, another user's pipe, a filter), another
//!   `poll(2)` just before the call. Only here the race remains.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::{Errno as Refused, ReadWriteFlags, preadv2, pwritev2};

use super::{DEFAULT, OwnedPipe, acquire, packets};
use crate::endpoint::reopen;
use crate::errno::Errno;
use crate::sys::{again, unsent};

/// What a pipe that polls writable accepts (`PIPE_BUF` in `pipe(7)`).
const PIECE: usize = 4096;
/// The current position: pipes have no offsets.
const HERE: u64 = u64::MAX;

/// What keeps a call from blocking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Means {
    #[default]
    Flag,
    Twin,
    Look,
}

/// One side's way to use a pipe without blocking on it.
#[derive(Debug, Default)]
pub(crate) struct NoWait {
    means: Means,
    twin: Option<OwnedFd>,
}

impl NoWait {
    /// A call needs no `poll(2)` before it.
    pub(crate) fn covers(&self) -> bool {
        self.means != Means::Look
    }

    /// Gives up what can be had again.
    pub(crate) fn rest(&mut self) {
        self.twin = None;
    }

    /// Reads what is there; `EAGAIN` if there is nothing.
    pub(crate) fn read(&mut self, fd: BorrowedFd<'_>, into: &mut [u8]) -> Result<usize, Errno> {
        let done = self.unless_it_waits(fd, into);
        done.unwrap_or_else(|| look_and_read(fd, into))
    }

    /// The same; `None` if only `poll(2)` is left.
    fn unless_it_waits(
        &mut self,
        fd: BorrowedFd<'_>,
        into: &mut [u8],
    ) -> Option<Result<usize, Errno>> {
        if self.means == Means::Flag {
            let mut parts = [IoSliceMut::new(into)];
            let done = preadv2(fd, &mut parts, HERE, ReadWriteFlags::NOWAIT);
            if !self.is_refused(&done) {
                return Some(done.map_err(Errno::from));
            }
        }
        let twin = self.twin(fd, OFlags::RDONLY, false)?;
        Some(rustix::io::read(twin, into).map_err(Errno::from))
    }

    /// Writes what fits; `EAGAIN` if nothing does. `packets`: the pipe is in
    /// packet mode.
    pub(crate) fn write(
        &mut self,
        fd: BorrowedFd<'_>,
        parts: &[IoSlice<'_>],
        packets: bool,
    ) -> Result<usize, Errno> {
        if self.means == Means::Flag {
            let done = pwritev2(fd, parts, HERE, ReadWriteFlags::NOWAIT);
            if !self.is_refused(&done) {
                return Ok(done?);
            }
        }
        if let Some(twin) = self.twin(fd, OFlags::WRONLY, packets) {
            return Ok(rustix::io::writev(twin, parts)?);
        }
        if !is_ready(fd, PollFlags::OUT) {
            return Err(Errno::EAGAIN);
        }
        let first = parts.iter().find(|part| !part.is_empty());
        let first = first.map_or(&[][..], |part| &part[..part.len().min(PIECE)]);
        Ok(rustix::io::write(fd, first)?)
    }

    /// No such flag (`EINVAL` before Linux 4.13), no such call, or a filter
    /// that does not know it.
    fn is_refused(&mut self, done: &rustix::io::Result<usize>) -> bool {
        let refused = matches!(
            done,
            Err(Refused::OPNOTSUPP
                | Refused::INVAL
                | Refused::NOSYS
                | Refused::PERM
                | Refused::ACCESS)
        );
        if refused {
            self.means = Means::Twin;
        }
        refused
    }

    /// The second description; `None` if there can be none: for writing, also
    /// if the pipe has no reader (`ENXIO`), which a write then finds out.
    fn twin(&mut self, fd: BorrowedFd<'_>, flags: OFlags, packets: bool) -> Option<&OwnedFd> {
        if self.means == Means::Twin && self.twin.is_none() {
            self.twin = open(fd, flags, packets).ok();
            if self.twin.is_none() {
                self.means = Means::Look;
            }
        }
        self.twin.as_ref()
    }
}

fn open(fd: BorrowedFd<'_>, flags: OFlags, packets: bool) -> Result<OwnedFd, Errno> {
    let twin = reopen(fd, flags)?;
    if packets {
        // Packet mode is set after opening (`setfl` in fs/fcntl.c).
        rustix::fs::fcntl_setfl(&twin, OFlags::NONBLOCK | OFlags::DIRECT)?;
    }
    Ok(twin)
}

fn look_and_read(fd: BorrowedFd<'_>, into: &mut [u8]) -> Result<usize, Errno> {
    if !is_ready(fd, PollFlags::IN) {
        return Err(Errno::EAGAIN);
    }
    Ok(rustix::io::read(fd, into)?)
}

/// Ready at this moment, if only to give an error; `true` if that is unknown.
fn is_ready(fd: BorrowedFd<'_>, flags: PollFlags) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, flags)];
    match poll(&mut fds, Some(&Timespec::default())) {
        Ok(ready) => ready > 0,
        Err(Refused::INTR) => false,
        Err(_) => {
            let write = flags.contains(PollFlags::OUT);
            crate::sys::wait_for(&[(fd, write)], Some(&Timespec::default()))
                .map_or(true, |ready| ready[0])
        }
    }
}

/// For reading the caller's pipe. It may be in packet mode (`pipe2(2)`,
/// `O_DIRECT`), which its read end does not show, and in which `read(2)` drops
/// what a short read leaves of a packet. A packet is a page at most, and may stand
/// behind bytes of a stream. Less than what is there is taken by `splice(2)`,
/// which leaves the rest in the pipe; where that is refused, a first packet that
/// is longer stays in the pipe as a whole.
#[derive(Default)]
pub(crate) struct Aside {
    /// The pipe that it is spliced into, kept for the next time.
    pipe: Option<OwnedPipe>,
    nowait: NoWait,
}

impl Aside {
    /// Reads what is there.
    ///
    /// Without `may_wait`, a pipe whose bytes another reader has taken since is
    /// `EAGAIN`, blocking or not. An empty pipe is `EAGAIN` in any case if there
    /// is room for less than the largest packet. `whole`: what is read ends with
    /// a packet, as what `read(2)` gives does.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE`: the next packet is longer, and cannot be taken in part.
    pub(crate) fn read(
        &mut self,
        fd: BorrowedFd<'_>,
        into: &mut [u8],
        may_wait: bool,
        whole: bool,
    ) -> Result<usize, Errno> {
        let length = into.len();
        let there = unsent(fd).map_or(0, |bytes| bytes as usize);
        let plain = match there {
            0 => (length >= packets::largest()).then_some(length),
            // With all that is there, a read ends with a packet if that is the
            // last. With less it may end in the midst of one.
            _ => (there <= length).then_some(there),
        };
        if let Some(length) = plain {
            let into = &mut into[..length];
            if may_wait && there > 0 {
                return Ok(again(|| rustix::io::read(fd, &mut *into))?);
            }
            if may_wait {
                return Ok(rustix::io::read(fd, into)?);
            }
            if let Some(done) = self.nowait.unless_it_waits(fd, into) {
                return done;
            }
        }
        let into = match whole {
            true => &mut into[..packets::one_read(fd, length)],
            false => into,
        };
        match self.splice(fd, into) {
            Some(done) => done,
            None if packets::first_is_longer(fd, into.len())? => Err(Errno::EMSGSIZE),
            None if may_wait => Ok(rustix::io::read(fd, into)?),
            None => self.nowait.read(fd, into),
        }
    }

    /// `None` without a second pipe, or if a filter refuses to splice.
    fn splice(&mut self, fd: BorrowedFd<'_>, into: &mut [u8]) -> Option<Result<usize, Errno>> {
        use rustix::pipe::{SpliceFlags, splice};
        let mut pipe = self.pipe.take().or_else(|| acquire(DEFAULT).ok())?;
        let flags = SpliceFlags::NONBLOCK;
        let moved = match splice(fd, None, pipe.writer(), None, into.len(), flags) {
            Ok(n) => {
                pipe.filled(n);
                n
            }
            Err(errno) => {
                self.pipe = Some(pipe);
                return match errno {
                    Refused::AGAIN | Refused::INTR => Some(Err(errno.into())),
                    _ => None,
                };
            }
        };
        let done = drain(&mut pipe, &mut into[..moved]);
        if done.is_ok() {
            self.pipe = Some(pipe);
        }
        Some(done.map(|()| moved))
    }

    /// Gives up what can be had again.
    pub(crate) fn rest(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            pipe.release();
        }
        self.nowait.rest();
    }
}

fn drain(pipe: &mut OwnedPipe, into: &mut [u8]) -> Result<(), Errno> {
    let mut got = 0;
    while got < into.len() {
        match rustix::io::read(pipe.reader().as_fd(), &mut into[got..]) {
            Ok(0) => return Err(Errno::EIO),
            Ok(more) => {
                pipe.drained(more);
                got += more;
            }
            Err(Refused::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Filled, emptied by somebody else, filled up; with each means.
    #[test]
    fn what_others_have_taken_is_not_waited_for() {
        let _dog = testkit::watchdog::watch("what_others_have_taken_is_not_waited_for");
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &name,
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        let blocking = |flags| {
            let flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let end = rustix::fs::open(&name, flags, rustix::fs::Mode::empty()).unwrap();
            rustix::fs::fcntl_setfl(&end, OFlags::empty()).unwrap();
            end
        };
        let fifo = (blocking(OFlags::RDONLY), blocking(OFlags::WRONLY));
        for (reader, writer) in [rustix::pipe::pipe().unwrap(), fifo] {
            rustix::io::write(&writer, b"mine").unwrap();
            rustix::io::read(&reader, &mut [0; 4]).unwrap();
            for means in [Means::Flag, Means::Twin, Means::Look] {
                let nowait = || NoWait { means, twin: None };
                for length in [1, 4095, 4096, 65536] {
                    let mut aside = Aside {
                        pipe: None,
                        nowait: nowait(),
                    };
                    let into = &mut vec![0; length];
                    let got = aside.read(reader.as_fd(), into, false, false);
                    assert_eq!(got, Err(Errno::EAGAIN), "{means:?} {length}");
                    let got = nowait().read(reader.as_fd(), into);
                    assert_eq!(got, Err(Errno::EAGAIN), "{means:?} {length}");
                }
                let bytes = vec![7; 1 << 20];
                let (mut own, mut all) = (nowait(), 0);
                loop {
                    let parts = [IoSlice::new(&[]), IoSlice::new(&bytes)];
                    match own.write(writer.as_fd(), &parts, false) {
                        Ok(n) => all += n,
                        Err(errno) => break assert_eq!(errno, Errno::EAGAIN, "{means:?}"),
                    }
                }
                assert!(all >= DEFAULT, "{means:?}: {all}");
                let mut got = 0;
                while got < all {
                    let into = &mut vec![0; 1 << 20];
                    let read = nowait().read(reader.as_fd(), into).unwrap();
                    assert!(into[..read].iter().all(|byte| *byte == 7));
                    got += read;
                }
                assert_eq!(got, all, "{means:?}");
            }
        }
    }

    #[test]
    fn a_pipe_in_packet_mode_gets_packets() {
        use testkit::needs::Need::NowaitPipes;
        let flags = rustix::pipe::PipeFlags::DIRECT;
        let (reader, writer) = rustix::pipe::pipe_with(flags).unwrap();
        for means in [Means::Flag, Means::Twin, Means::Look] {
            let name = "a_pipe_in_packet_mode_gets_packets by RWF_NOWAIT";
            if means == Means::Flag && testkit::needs::missing(name, &[NowaitPipes]) {
                continue;
            }
            let mut nowait = NoWait { means, twin: None };
            for _ in 0..2 {
                let parts = [IoSlice::new(b"abc")];
                assert_eq!(nowait.write(writer.as_fd(), &parts, true), Ok(3));
            }
            for _ in 0..2 {
                assert_eq!(rustix::io::read(&reader, &mut [0; 16]), Ok(3), "{means:?}");
            }
            assert_eq!(nowait.means, means);
        }
    }

    /// A packet that comes only after the pipe was found empty.
    #[test]
    fn no_short_read_waits_for_a_packet() {
        use testkit::{midst, refuse};
        let _dog = testkit::watchdog::watch("no_short_read_waits_for_a_packet");
        let flags = rustix::pipe::PipeFlags::DIRECT;
        // What is found out once a process is read before the calls are held.
        drop(acquire(DEFAULT));
        for may_wait in [true, false] {
            let (reader, writer) = rustix::pipe::pipe_with(flags).unwrap();
            let mut told = None;
            let body = || {
                refuse::refuse(&[libc::SYS_splice], libc::EPERM);
                told = Some(Aside::default().read(reader.as_fd(), &mut [0; 10], may_wait, false));
            };
            let calls = [libc::SYS_read, libc::SYS_preadv2];
            let come = || _ = rustix::io::write(&writer, &[7; 100]).unwrap();
            let Some(reads) = midst::at_each(&calls, body, come) else {
                return testkit::skip::report("nowait", "calls of another thread cannot be held");
            };
            assert_eq!((told, reads), (Some(Err(Errno::EAGAIN)), 0), "{may_wait}");
            come();
            let told = testkit::refuse::apart(|| {
                refuse::refuse(&[libc::SYS_splice], libc::EPERM);
                Aside::default().read(reader.as_fd(), &mut [0; 10], may_wait, false)
            });
            assert_eq!(told, Err(Errno::EMSGSIZE), "{may_wait}");
        }
    }

    /// Before Linux 6.4, and in a sandbox.
    #[test]
    fn the_next_means_is_taken_where_one_is_refused() {
        let nowait = &[libc::SYS_pwritev2, libc::SYS_preadv2][..];
        for (calls, means) in [
            (nowait.to_vec(), Means::Twin),
            ([nowait, testkit::refuse::OPEN].concat(), Means::Look),
        ] {
            for errno in [
                libc::EOPNOTSUPP,
                libc::EINVAL,
                libc::ENOSYS,
                libc::EPERM,
                libc::EACCES,
            ] {
                let (reader, writer) = rustix::pipe::pipe().unwrap();
                testkit::refuse::apart(|| {
                    testkit::refuse::refuse(&calls, errno);
                    let (mut from, mut to) = (NoWait::default(), NoWait::default());
                    let parts = [IoSlice::new(b"abc")];
                    assert_eq!(to.write(writer.as_fd(), &parts, false), Ok(3));
                    assert_eq!(from.read(reader.as_fd(), &mut [0; 9]), Ok(3));
                    let none = from.read(reader.as_fd(), &mut [0; 9]);
                    assert_eq!(none, Err(Errno::EAGAIN));
                    assert_eq!((from.means, to.means), (means, means), "{errno}");
                });
            }
        }
    }
}
