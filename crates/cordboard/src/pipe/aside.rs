//! Reading the caller's pipe, which may have packets in it.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno as Refused;

use super::{DEFAULT, NoWait, OwnedPipe, acquire, packets};
use crate::errno::Errno;
use crate::sys::{again, unsent};

/// For reading the caller's pipe. It may be in packet mode (`pipe2(2)`,
/// `O_DIRECT`), which its read end does not show, and in which `read(2)` drops
/// what a short read leaves of a packet. A packet is a page at most, and may stand
/// behind bytes of a stream. Less than what is there is taken by `splice(2)`,
/// which leaves the rest in the pipe; where that is refused, a first packet that
/// is longer stays in the pipe as a whole. What is less than a page is spliced
/// too: another reader may take it before a read of so many bytes.
#[derive(Default)]
pub(crate) struct Aside {
    /// The pipe that it is spliced into, kept for the next time.
    pipe: Option<OwnedPipe>,
    nowait: NoWait,
}

impl Aside {
    #[cfg(test)]
    pub(super) fn by(nowait: NoWait) -> Aside {
        Aside { pipe: None, nowait }
    }

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
            // Another reader may take it, and a longer packet come.
            1.. if there < packets::largest() && !whole => None,
            _ if there < packets::largest() => (length >= packets::largest()).then_some(length),
            // With all that is there, a read ends with a packet if that is the
            // last. With less it may end in the midst of one.
            _ => (there <= length).then_some(there),
        };
        if let Some(length) = plain {
            let into = &mut into[..length];
            if may_wait && there > 0 {
                return read_what_is_there(fd, into);
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
            None if into.len() < packets::largest()
                && packets::first_is_longer(fd, into.len())? =>
            {
                Err(Errno::EMSGSIZE)
            }
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

/// A read that a signal interrupts is made again, unless another reader has
/// emptied the pipe: the read would wait, and the signal may be a cancel.
fn read_what_is_there(fd: BorrowedFd<'_>, into: &mut [u8]) -> Result<usize, Errno> {
    let done = again(|| match rustix::io::read(fd, &mut *into) {
        Err(Refused::INTR) if unsent(fd) == Ok(0) => Ok(None),
        done => done.map(Some),
    })?;
    done.ok_or(Errno::EINTR)
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

    /// Another reader takes the short packet that was there, and a longer one
    /// comes, before any of these calls.
    #[test]
    fn a_longer_packet_that_has_come_is_read_whole() {
        let name = "a_longer_packet_that_has_come_is_read_whole";
        let _dog = testkit::watchdog::watch(name);
        if testkit::needs::missing(name, &[testkit::needs::Need::Splice]) {
            return;
        }
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
                    told = Some(aside.read(reader.as_fd(), &mut into, may_wait, whole));
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
                told = Some(aside.read(reader.as_fd(), &mut [0; 1 << 16], true, false));
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
}
