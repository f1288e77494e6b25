//! Reading the caller's pipe, which may have packets in it.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno as Refused;

use super::{
    DEFAULT, Kept, NoWait, OwnedPipe, acquire, capacity, has_ended, packets, shows, uncut,
};
use crate::errno::Errno;
use crate::sys::{Shown, again, unsent};

/// For reading the caller's pipe. It may be in packet mode (`pipe2(2)`,
/// `O_DIRECT`), which its read end does not show, and in which `read(2)` drops
/// what a short read leaves of a packet. A packet is a page at most, and may stand
/// behind bytes of a stream. A writer may turn the mode on at any time, and one
/// call reads whatever has come by then; what was there before it, another reader
/// may have taken. So a pipe is read
///
/// * with as much room as it has, which no contents exceed;
/// * where the buffer is shorter, by `splice(2)` into a pipe of our own, which
///   leaves the rest of a packet where it is. What came over is all there is in
///   it, and is read to the last byte.
///
/// What is found empty is not read, since its room may grow while a read sleeps:
/// `poll(2)` waits for it. Where `splice(2)` is refused, a first packet that is
/// longer stays in the pipe as a whole.
#[derive(Default)]
pub(crate) struct Aside {
    /// The pipe that it is spliced into, kept for the next time.
    pipe: Option<OwnedPipe>,
    nowait: NoWait,
    unreadable: Option<Unreadable>,
}

/// What came over, and cannot be read: a page of a file in it is not valid any more
/// (`page_cache_pipe_buf_confirm`, fs/splice.c).
pub(crate) struct Unreadable {
    pub(crate) pipe: OwnedPipe,
    pub(crate) errno: Errno,
}

/// How the caller's pipe is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    /// The call may wait, or the descriptor does not: otherwise a pipe whose bytes
    /// another reader has taken since is `EAGAIN` even if it is blocking.
    pub(crate) may_wait: bool,
    /// What is read ends with a packet, as what `read(2)` gives does.
    pub(crate) is_whole: bool,
    /// The call may wait, and `poll(2)`, which tells of an end too, was not asked
    /// before.
    pub(crate) is_unasked: bool,
    /// A FIFO, which shows no end to `poll(2)` if it was opened before it had a
    /// writer (`fifo_open`, fs/pipe.c).
    pub(crate) is_named: bool,
}

impl Aside {
    #[cfg(test)]
    pub(super) fn by(nowait: NoWait) -> Aside {
        Aside {
            nowait,
            ..Aside::default()
        }
    }

    /// What the last read has taken from the pipe and not given: the next bytes, and
    /// the last.
    pub(crate) fn unreadable(&mut self) -> Option<Unreadable> {
        self.unreadable.take()
    }

    /// Reads what is there; `EAGAIN` of an empty pipe, blocking or not.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE`: the next packet is longer, and cannot be taken in part.
    /// Of `read(2)`, also with bytes that are [unreadable](Aside::unreadable).
    pub(crate) fn read(
        &mut self,
        fd: BorrowedFd<'_>,
        into: &mut [u8],
        way: Way,
    ) -> Result<usize, Errno> {
        let length = into.len();
        let is_empty = way.is_unasked && unsent(fd).unwrap_or(0) == 0;
        if is_empty && !way.is_named {
            return Err(Errno::EAGAIN);
        }
        if !is_empty && (1..=length).contains(&capacity(fd)) {
            if way.may_wait {
                return read_what_is_there(fd, into);
            }
            if let Some(done) = self.nowait.unless_it_waits(fd, into) {
                return done;
            }
        }
        let most = match way.is_whole {
            true => uncut::one_read(fd, length),
            false => length,
        };
        match self.splice(fd, &mut into[..most]) {
            Some(done) => done,
            None => self.without_splice(fd, into, way),
        }
    }

    /// Reads no more than what was inspected.
    fn without_splice(
        &mut self,
        fd: BorrowedFd<'_>,
        into: &mut [u8],
        way: Way,
    ) -> Result<usize, Errno> {
        if has_ended(fd) == Some(true) {
            return Ok(0);
        }
        if !way.is_named && shows(fd).is_ok_and(Shown::is_empty) {
            return Err(Errno::EAGAIN);
        }
        let most = match uncut::uncut(fd, into.len()) {
            Ok(Some(bytes)) => bytes,
            // Without a writer a FIFO need not show its end.
            Err(Errno::EAGAIN) if way.is_named && into.len() >= packets::largest() => {
                return self.nowait.read(fd, into);
            }
            Err(errno) => return Err(errno),
            Ok(None) => match unsent(fd) {
                Ok(there @ 1..) => into.len().min(there as usize),
                _ => return self.nowait.read(fd, into),
            },
        };
        let into = &mut into[..most];
        match way.may_wait {
            true => read_what_is_there(fd, into),
            false => self.nowait.read(fd, into),
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
        let (got, done) = drain(&mut pipe, &mut into[..moved]);
        Some(match done {
            Ok(()) => {
                self.pipe = Some(pipe);
                Ok(got)
            }
            Err(errno) => {
                self.unreadable = Some(Unreadable { pipe, errno });
                match got {
                    0 => Err(errno),
                    _ => Ok(got),
                }
            }
        })
    }

    /// Gives up what can be had again.
    pub(crate) fn rest(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            pipe.release();
        }
        self.nowait.rest();
    }
}

/// A read that a signal interrupts is made again, unless another reader has
/// emptied the pipe: the read would wait, and the signal may be a cancel.
fn read_what_is_there(fd: BorrowedFd<'_>, into: &mut [u8]) -> Result<usize, Errno> {
    let done = again(|| match rustix::io::read(fd, &mut *into) {
        Err(Refused::INTR) if unsent(fd) == Ok(0) => Ok(None),
        done => done.map(Some),
    })?;
    done.ok_or(Errno::EINTR)
}

/// All that came over; how much of it, and whether that was all. `EAGAIN` is not the
/// answer of a pipe that holds something, and must not be taken for the source's.
fn drain(pipe: &mut OwnedPipe, into: &mut [u8]) -> (usize, Result<(), Errno>) {
    let (mut got, mut refused) = (0, 0);
    while got < into.len() {
        match rustix::io::read(pipe.reader().as_fd(), &mut into[got..]) {
            Ok(0) => return (got, Err(Errno::EIO)),
            Ok(more) => {
                pipe.drained(more);
                got += more;
            }
            Err(Refused::INTR) => {}
            Err(Refused::AGAIN) if refused < 100 => refused += 1,
            Err(Refused::AGAIN) => return (got, Err(Errno::EIO)),
            Err(errno) => return (got, Err(errno.into())),
        }
    }
    (got, Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A watchdog for a test of this name, where pipes can be spliced.
    fn splices(name: &'static str) -> Option<testkit::watchdog::Watched> {
        let dog = testkit::watchdog::watch(name);
        (!testkit::needs::missing(name, &[testkit::needs::Need::Splice])).then_some(dog)
    }

    fn way(may_wait: bool, is_whole: bool) -> Way {
        Way {
            may_wait,
            is_whole,
            is_unasked: false,
            is_named: false,
        }
    }

    /// Another reader takes the short packet that was there, and a longer one
    /// comes, before any of these calls.
    #[test]
    fn a_longer_packet_that_has_come_is_read_whole() {
        let Some(_dog) = splices("a_longer_packet_that_has_come_is_read_whole") else {
            return;
        };
        let flags = rustix::pipe::PipeFlags::DIRECT;
        drop(acquire(DEFAULT));
        for (short, length) in [(10, 1 << 16), (3000, 4096), (10, 1000)] {
            for (may_wait, whole) in [(true, true), (true, false), (false, true), (false, false)] {
                let case = format!("{short} {length} {may_wait} {whole}");
                let (reader, writer) = rustix::pipe::pipe_with(flags).unwrap();
                rustix::io::write(&writer, &vec![1; short]).unwrap();
                let (mut told, mut into, mut taken) = (None, vec![0; length], false);
                let body = || {
                    let mut aside = Aside::default();
                    told = Some(aside.read(reader.as_fd(), &mut into, way(may_wait, whole)));
                };
                let calls = [libc::SYS_read, libc::SYS_preadv2, libc::SYS_splice];
                let others = || {
                    if !std::mem::replace(&mut taken, true) {
                        assert_eq!(rustix::io::read(&reader, &mut [0; 4096]), Ok(short));
                        rustix::io::write(&writer, &[7; 4000]).unwrap();
                    }
                };
                let Some(held) = testkit::midst::at_each(&calls, body, others) else {
                    return testkit::skip::report(
                        "nowait",
                        "calls of another thread cannot be held",
                    );
                };
                assert!(held > 0, "{case}");
                let got = told.unwrap().unwrap();
                assert!(into[..got].iter().all(|byte| *byte == 7), "{case}");
                drop(writer);
                let rest = rustix::io::read(&reader, &mut [0; 4096]).unwrap();
                assert_eq!(got + rest, 4000, "{case}: {got} and {rest}");
            }
        }
    }

    #[test]
    fn what_came_over_is_read_whatever_the_first_call_says() {
        let Some(_dog) = splices("what_came_over_is_read_whatever_the_first_call_says") else {
            return;
        };
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&writer, &[7; 5000]).unwrap();
        let (mut told, mut into) = (None, [0; 3000]);
        let body = || {
            let mut aside = Aside::default();
            told = Some(aside.read(reader.as_fd(), &mut into, way(true, false)));
        };
        let refuse = |count| (count < 3).then_some(libc::EAGAIN);
        let Some(reads) = testkit::midst::refusing(&[libc::SYS_read], body, refuse) else {
            return testkit::skip::report("aside", "calls of another thread cannot be held");
        };
        assert_eq!((told, into), (Some(Ok(3000)), [7; 3000]));
        assert_eq!(reads, 4);
    }

    /// What was there is another reader's by now: a read that a signal interrupts
    /// is not made again, since it would wait.
    #[test]
    fn a_signal_ends_a_read_of_what_others_have_taken() {
        let _dog = testkit::watchdog::watch("a_signal_ends_a_read_of_what_others_have_taken");
        for taken in [true, false] {
            let (reader, writer) = rustix::pipe::pipe().unwrap();
            rustix::io::write(&writer, &[7; 5000]).unwrap();
            let mut told = None;
            let body = || {
                let mut aside = Aside::default();
                told = Some(aside.read(reader.as_fd(), &mut [0; 1 << 16], way(true, false)));
            };
            let signal = |count| {
                (count == 0).then(|| {
                    if taken {
                        rustix::io::read(&reader, &mut [0; 5000]).unwrap();
                    }
                    libc::EINTR
                })
            };
            let Some(reads) = testkit::midst::refusing(&[libc::SYS_read], body, signal) else {
                return testkit::skip::report("nowait", "calls of another thread cannot be held");
            };
            let expected = match taken {
                true => (Some(Err(Errno::EINTR)), 1),
                false => (Some(Ok(5000)), 2),
            };
            assert_eq!((told, reads), expected, "{taken}");
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
            let way = way(may_wait, false);
            let read = || Aside::default().read(reader.as_fd(), &mut [0; 10], way);
            let body = || {
                refuse::refuse(&[libc::SYS_splice], libc::EPERM);
                told = Some(read());
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
                read()
            });
            assert_eq!(told, Err(Errno::EMSGSIZE), "{may_wait}");
        }
    }

    /// Packets that are shorter than what is left of a limit: the pipe of our own
    /// is emptied to the last byte, and the rest of the last one stays.
    #[test]
    fn no_packet_is_cut_at_a_limit() {
        let flags = rustix::pipe::PipeFlags::DIRECT;
        for (lengths, limit) in [
            (&[1, 3000][..], 880),
            (&[3000, 1], 880),
            (&[1, 1, 1, 4096], 4097),
            (&[4096, 4096], 5000),
        ] {
            for (may_wait, whole) in [(true, true), (true, false), (false, true), (false, false)] {
                let (reader, writer) = rustix::pipe::pipe_with(flags).unwrap();
                for length in lengths {
                    rustix::io::write(&writer, &vec![7; *length]).unwrap();
                }
                drop(writer);
                let (mut aside, mut all, mut into) = (Aside::default(), 0, vec![0; limit]);
                loop {
                    match aside.read(reader.as_fd(), &mut into, way(may_wait, whole)) {
                        Ok(0) => break,
                        got => all += got.unwrap(),
                    }
                }
                assert_eq!(all, lengths.iter().sum(), "{lengths:?} {may_wait} {whole}");
            }
        }
    }

    /// An empty pipe is not read, and its end is told.
    #[test]
    fn what_is_empty_is_polled() {
        for (kind, is_named) in [("pipe", false), ("FIFO", true)] {
            let (reader, writer) = match is_named {
                true => testkit::obstacle::fifo().unwrap(),
                false => rustix::pipe::pipe().unwrap(),
            };
            for may_wait in [true, false] {
                let way = Way {
                    is_unasked: may_wait,
                    is_named,
                    ..way(may_wait, false)
                };
                let read = || Aside::default().read(reader.as_fd(), &mut [0; 1 << 16], way);
                assert_eq!(read(), Err(Errno::EAGAIN), "{kind} {may_wait}");
                rustix::io::write(&writer, b"x").unwrap();
                assert_eq!(read(), Ok(1), "{kind} {may_wait}");
            }
            drop(writer);
            let told = Aside::default().read(reader.as_fd(), &mut [0; 9], way(true, false));
            assert_eq!(told, Ok(0), "{kind}");
        }
    }

    /// Another reader takes all that was there, and a stream with a packet behind
    /// it comes, before any of the calls.
    #[test]
    fn a_packet_behind_a_stream_that_has_come_is_read_whole() {
        use rustix::fs::{OFlags, fcntl_setfl};
        let name = "a_packet_behind_a_stream_that_has_come_is_read_whole";
        let Some(_dog) = splices(name) else {
            return;
        };
        drop(acquire(DEFAULT));
        let calls = [libc::SYS_read, libc::SYS_preadv2, libc::SYS_splice];
        for (there, length) in [(5000, 9000), (9000, 9000), (9000, 1 << 16), (10, 5000)] {
            for (may_wait, whole) in [(true, true), (true, false), (false, true), (false, false)] {
                let case = format!("{there} {length} {may_wait} {whole}");
                let (reader, writer) = rustix::pipe::pipe().unwrap();
                rustix::io::write(&writer, &vec![1; there]).unwrap();
                let stream = there.min(length).max(1000) - 900;
                let (mut told, mut into, mut taken) = (None, vec![0; length], false);
                let body = || {
                    let mut aside = Aside::default();
                    told = Some(aside.read(reader.as_fd(), &mut into, way(may_wait, whole)));
                };
                let others = || {
                    if !std::mem::replace(&mut taken, true) {
                        assert_eq!(rustix::io::read(&reader, &mut vec![0; there]), Ok(there));
                        rustix::io::write(&writer, &vec![7; stream]).unwrap();
                        fcntl_setfl(&writer, OFlags::DIRECT).unwrap();
                        rustix::io::write(&writer, &[7; 4096]).unwrap();
                    }
                };
                let Some(held) = testkit::midst::at_each(&calls, body, others) else {
                    return testkit::skip::report(name, "calls of another thread cannot be held");
                };
                assert!(held > 0, "{case}");
                drop(writer);
                let mut all = told.unwrap().unwrap();
                while let Ok(more @ 1..) = rustix::io::read(&reader, &mut vec![0; 1 << 16]) {
                    all += more;
                }
                assert_eq!(all, stream + 4096, "{case}");
            }
        }
    }
}
