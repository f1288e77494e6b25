//! Reads and writes of the caller's blocking pipe that do not block.
//!
//! `poll(2)` before a call is not sufficient: another user of the pipe may take the
//! bytes, or the space, before the call. `O_NONBLOCK` would affect every process that
//! shares the description. The methods, in this order:
//!
//! * `RWF_NOWAIT` with `preadv2(2)` and `pwritev2(2)`: on an anonymous pipe
//!   since Linux 6.4 (`do_pipe2` in fs/pipe.c sets `FMODE_NOWAIT`); never on a
//!   FIFO, nor on a pipe that has been spliced (`pipe_clear_nowait` in
//!   fs/splice.c).
//! * A second description of the same pipe, opened through procfs with
//!   `O_NONBLOCK`.
//! * If neither is available (no procfs, another user's pipe, a filter), `poll(2)`
//!   again just before the call. Only this method has the race.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::fs::OFlags;
use rustix::io::{Errno as Refused, ReadWriteFlags, preadv2, pwritev2};

use crate::endpoint::reopen;
use crate::errno::Errno;
use crate::sys::{HERE, poll_now};

/// The number of bytes that a pipe accepts if it polls writable (`PIPE_BUF` in
/// `pipe(7)`).
const PIECE: usize = 4096;

/// The method that keeps a call from blocking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Method {
    #[default]
    RwfNowait,
    Reopened,
    Poll,
}

/// Access to one end of a pipe without blocking on it.
#[derive(Debug, Default)]
pub(crate) struct NoWait {
    method: Method,
    reopened: Option<OwnedFd>,
}

impl NoWait {
    /// Whether calls need no `poll(2)` before them.
    pub(crate) fn covers(&self) -> bool {
        self.method != Method::Poll
    }

    /// Returns the second description, if it is open.
    pub(crate) fn second(&self) -> Option<BorrowedFd<'_>> {
        self.reopened.as_ref().map(AsFd::as_fd)
    }

    /// Closes the second description. The next call opens it again.
    pub(crate) fn rest(&mut self) {
        self.reopened = None;
    }

    /// Forgets the second description without closing it.
    pub(crate) fn forget(self) {
        std::mem::forget(self.reopened);
    }

    /// Reads what is in the pipe; `EAGAIN` if it is empty.
    pub(crate) fn read(&mut self, fd: BorrowedFd<'_>, into: &mut [u8]) -> Result<usize, Errno> {
        let done = self.read_unless_poll(fd, into);
        done.unwrap_or_else(|| poll_and_read(fd, into))
    }

    /// As [`NoWait::read`]; `None` if only the method with the race, `poll(2)`, is
    /// available.
    pub(super) fn read_unless_poll(
        &mut self,
        fd: BorrowedFd<'_>,
        into: &mut [u8],
    ) -> Option<Result<usize, Errno>> {
        if self.method == Method::RwfNowait {
            let mut parts = [IoSliceMut::new(into)];
            let done = preadv2(fd, &mut parts, HERE, ReadWriteFlags::NOWAIT);
            if !self.is_refused(&done) {
                return Some(done.map_err(Errno::from));
            }
        }
        let reopened = self.reopened(fd, OFlags::RDONLY, false)?;
        Some(rustix::io::read(reopened, into).map_err(Errno::from))
    }

    /// Writes what fits; `EAGAIN` if nothing does. `packets`: the pipe is in packet
    /// mode.
    pub(crate) fn write(
        &mut self,
        fd: BorrowedFd<'_>,
        parts: &[IoSlice<'_>],
        packets: bool,
    ) -> Result<usize, Errno> {
        if self.method == Method::RwfNowait {
            let done = pwritev2(fd, parts, HERE, ReadWriteFlags::NOWAIT);
            if !self.is_refused(&done) {
                return Ok(done?);
            }
        }
        if let Some(reopened) = self.reopened(fd, OFlags::WRONLY, packets) {
            return Ok(rustix::io::writev(reopened, parts)?);
        }
        if !is_ready(fd, PollFlags::OUT) {
            return Err(Errno::EAGAIN);
        }
        let first = parts.iter().find(|part| !part.is_empty());
        let first = first.map_or(&[][..], |part| &part[..part.len().min(PIECE)]);
        Ok(rustix::io::write(fd, first)?)
    }

    fn is_refused(&mut self, done: &rustix::io::Result<usize>) -> bool {
        let refused = lacks_nowait(done);
        if refused {
            self.method = Method::Reopened;
        }
        refused
    }

    /// Returns the second description; `None` if none can be opened: for writing, also
    /// if the pipe has no reader (`ENXIO`), which a write then detects.
    fn reopened(&mut self, fd: BorrowedFd<'_>, flags: OFlags, packets: bool) -> Option<&OwnedFd> {
        if self.method == Method::Reopened && self.reopened.is_none() {
            self.reopened = open(fd, flags, packets).ok();
            if self.reopened.is_none() {
                self.method = Method::Poll;
            }
        }
        self.reopened.as_ref()
    }
}

fn open(fd: BorrowedFd<'_>, flags: OFlags, packets: bool) -> Result<OwnedFd, Errno> {
    let reopened = reopen(fd, flags)?;
    if packets {
        // Packet mode is set after opening (`setfl` in fs/fcntl.c).
        rustix::fs::fcntl_setfl(&reopened, OFlags::NONBLOCK | OFlags::DIRECT)?;
    }
    Ok(reopened)
}

fn poll_and_read(fd: BorrowedFd<'_>, into: &mut [u8]) -> Result<usize, Errno> {
    if !is_ready(fd, PollFlags::IN) {
        return Err(Errno::EAGAIN);
    }
    Ok(rustix::io::read(fd, into)?)
}

/// Whether a call with `RWF_NOWAIT` failed because the flag is unknown (`EINVAL` before
/// Linux 4.13), the call does not exist, or a filter refuses it.
pub(crate) fn lacks_nowait(done: &rustix::io::Result<usize>) -> bool {
    matches!(
        done,
        Err(Refused::OPNOTSUPP | Refused::INVAL | Refused::NOSYS | Refused::PERM | Refused::ACCESS)
    )
}

/// Whether a call would return at once, with bytes, room, an end or an error; `true` if
/// that is unknown.
pub(crate) fn is_ready(fd: BorrowedFd<'_>, flags: PollFlags) -> bool {
    let told = match flags.contains(PollFlags::OUT) {
        true => flags | PollFlags::ERR | PollFlags::NVAL,
        false => flags | PollFlags::ERR | PollFlags::NVAL | PollFlags::HUP,
    };
    match poll_now(fd, flags) {
        Ok(shown) => shown.shows(told) != Some(false),
        Err(Refused::INTR) => false,
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipe::{PacketReader, ReadMode, default_capacity};

    /// The pipe is filled, emptied by another user, and filled up, with each method.
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
            for method in [Method::RwfNowait, Method::Reopened, Method::Poll] {
                let nowait = || NoWait {
                    method,
                    reopened: None,
                };
                for length in [1, 4095, 4096, 65536] {
                    let mut packets = PacketReader::by(nowait());
                    let into = &mut vec![0; length];
                    let mode = ReadMode {
                        may_wait: false,
                        is_whole: false,
                        is_unasked: false,
                        is_named: true,
                    };
                    let got = packets.read(reader.as_fd(), into, mode);
                    assert_eq!(got, Err(Errno::EAGAIN), "{method:?} {length}");
                    let got = nowait().read(reader.as_fd(), into);
                    assert_eq!(got, Err(Errno::EAGAIN), "{method:?} {length}");
                }
                let bytes = vec![7; 1 << 20];
                let (mut own, mut all) = (nowait(), 0);
                loop {
                    let parts = [IoSlice::new(&[]), IoSlice::new(&bytes)];
                    match own.write(writer.as_fd(), &parts, false) {
                        Ok(n) => all += n,
                        Err(errno) => break assert_eq!(errno, Errno::EAGAIN, "{method:?}"),
                    }
                }
                // The rest of the last page takes no further piece.
                let rest = crate::sys::page_size() - PIECE;
                assert!(all + rest >= default_capacity(), "{method:?}: {all}");
                let mut got = 0;
                while got < all {
                    let into = &mut vec![0; 1 << 20];
                    let read = nowait().read(reader.as_fd(), into).unwrap();
                    assert!(into[..read].iter().all(|byte| *byte == 7));
                    got += read;
                }
                assert_eq!(got, all, "{method:?}");
            }
        }
    }

    #[test]
    fn a_pipe_in_packet_mode_gets_packets() {
        use testkit::needs::Need::NowaitPipes;
        let flags = rustix::pipe::PipeFlags::DIRECT;
        let (reader, writer) = rustix::pipe::pipe_with(flags).unwrap();
        for method in [Method::RwfNowait, Method::Reopened, Method::Poll] {
            let name = "a_pipe_in_packet_mode_gets_packets by RWF_NOWAIT";
            if method == Method::RwfNowait && testkit::needs::missing(name, &[NowaitPipes]) {
                continue;
            }
            let mut nowait = NoWait {
                method,
                reopened: None,
            };
            for _ in 0..2 {
                let parts = [IoSlice::new(b"abc")];
                assert_eq!(nowait.write(writer.as_fd(), &parts, true), Ok(3));
            }
            for _ in 0..2 {
                assert_eq!(rustix::io::read(&reader, &mut [0; 16]), Ok(3), "{method:?}");
            }
            assert_eq!(nowait.method, method);
        }
    }

    /// As before Linux 6.4, and in a sandbox.
    #[test]
    fn the_next_method_is_taken_where_one_is_refused() {
        let nowait = &[libc::SYS_pwritev2, libc::SYS_preadv2][..];
        for (calls, method) in [
            (nowait.to_vec(), Method::Reopened),
            ([nowait, testkit::refuse::OPEN].concat(), Method::Poll),
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
                    assert_eq!((from.method, to.method), (method, method), "{errno}");
                });
            }
        }
    }
}
