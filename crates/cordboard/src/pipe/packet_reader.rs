//! Reading the caller's pipe, which may have packets in it.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::OFlags;
use rustix::io::Errno as Refused;

use super::capacity::{capacity, default_capacity};
use super::channel::Channel;
use super::nonblocking::NoWait;
use super::owned::OwnedPipe;
use super::packets::{self, Front};
use super::pool::acquire;
use super::state::{has_ended, shows};
use super::trial_read::{length_to_packet_end, lossless_length};
use crate::endpoint::reopen;
use crate::errno::Errno;
use crate::sys::{Shown, again, is_over, read_across, unsent};

/// For reading the caller's pipe. It may be in packet mode (`pipe2(2)`,
/// `O_DIRECT`), which its read end does not show, and in which `read(2)` drops
/// what a short read leaves of a packet. A packet is a page at most, and may stand
/// behind bytes of a stream. A writer may turn the mode on at any time, and one
/// call reads whatever has come by then; what was there before it, another reader
/// may have taken. So a pipe is read
///
/// * with as much room as it has, if it holds no more: a socket's pages may be
///   larger than those that its capacity is counted in;
/// * where the buffer is shorter, by `splice(2)` into a pipe of our own, which
///   leaves the rest of a packet where it is. What came over is all there is in
///   it, and is read to the last byte;
/// * without a second pipe, or where `splice(2)` is refused, by `vmsplice(2)`, which
///   leaves the rest of a packet too.
///
/// What is found empty is not read, since its room may grow while a read sleeps:
/// `poll(2)` waits for it. Where `vmsplice(2)` is refused as well, a first packet
/// that is longer stays in the pipe as a whole. Without an inspection either,
/// packets are known by reads that have ended with them.
#[derive(Default)]
pub(crate) struct PacketReader {
    /// The pipe that it is spliced into, kept for the next time.
    pipe: Option<OwnedPipe>,
    nowait: NoWait,
    unreadable: Option<Unreadable>,
    /// A read has ended with a packet.
    has_packets: bool,
}

/// What came over, and cannot be read: a page of a file in it is not valid any more
/// (`page_cache_pipe_buf_confirm`, fs/splice.c).
pub(crate) struct Unreadable {
    pub(crate) pipe: OwnedPipe,
    pub(crate) errno: Errno,
}

/// How the caller's pipe is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadMode {
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

impl PacketReader {
    #[cfg(test)]
    pub(super) fn by(nowait: NoWait) -> PacketReader {
        PacketReader {
            nowait,
            ..PacketReader::default()
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
    /// Of `read(2)`, also with bytes that are [unreadable](PacketReader::unreadable).
    pub(crate) fn read(
        &mut self,
        fd: BorrowedFd<'_>,
        into: &mut [u8],
        mode: ReadMode,
    ) -> Result<usize, Errno> {
        let length = into.len();
        let there = unsent(fd).ok();
        let is_empty = mode.is_unasked && there.unwrap_or(0) == 0;
        if is_empty && !mode.is_named {
            return Err(Errno::EAGAIN);
        }
        let fits = there.is_some_and(|there| there <= length as u64);
        if !is_empty
            && fits
            && let Some(done) = self.whole(fd, into, mode)
        {
            return done;
        }
        let most = match mode.is_whole {
            true => {
                // The inspection takes it, where there is no other.
                self.give_back();
                let inspected = acquire(default_capacity())
                    .ok()
                    .map(|own| length_to_packet_end(own, fd, length));
                match inspected {
                    None => None,
                    Some(Ok(most)) => Some(most),
                    // Packets that have come since are to be told apart.
                    Some(Err(Ok(Front::Nothing))) if is_over(fd) == Some(false) => {
                        return Err(Errno::EAGAIN);
                    }
                    Some(Err(told)) => {
                        // Nothing tells where a packet ends, but a read of all there is.
                        if there.is_none()
                            && told.is_err()
                            && let Some(done) = self.whole(fd, into, mode)
                        {
                            return done;
                        }
                        Some(length)
                    }
                }
            }
            false => Some(length),
        };
        let spliced = most.and_then(|most| self.splice(fd, &mut into[..most]));
        spliced.unwrap_or_else(|| self.without_splice(fd, into, mode))
    }

    /// With as much room as the pipe has. `None`: there is less, or the read might wait.
    fn whole(
        &mut self,
        fd: BorrowedFd<'_>,
        into: &mut [u8],
        mode: ReadMode,
    ) -> Option<Result<usize, Errno>> {
        if !(1..=into.len()).contains(&capacity(fd)) {
            return None;
        }
        match mode.may_wait {
            true => Some(read_what_is_there(fd, into)),
            false => self.nowait.unless_it_waits(fd, into),
        }
    }

    /// By `vmsplice(2)`, or no more than what was inspected.
    fn without_splice(
        &mut self,
        fd: BorrowedFd<'_>,
        into: &mut [u8],
        mode: ReadMode,
    ) -> Result<usize, Errno> {
        if has_ended(fd) == Some(true) {
            return Ok(0);
        }
        if !mode.is_named && shows(fd).is_ok_and(Shown::is_empty) {
            return Err(Errno::EAGAIN);
        }
        if !mode.is_whole
            && let Some(done) = across(fd, into)
        {
            return done;
        }
        let most = match lossless_length(fd, into.len()) {
            // It has ended, for all that is known.
            Ok(Some(0)) => return self.nowait.read(fd, into),
            Ok(Some(bytes)) => bytes,
            // Without a writer a FIFO need not show its end.
            Err(Errno::EAGAIN) if mode.is_named && into.len() >= packets::largest() => {
                return self.nowait.read(fd, into);
            }
            // All of this is of the first packet.
            Err(Errno::EMSGSIZE) if mode.is_whole => {
                return across(fd, into).unwrap_or(Err(Errno::EMSGSIZE));
            }
            Err(errno) => return Err(errno),
            Ok(None) => match unsent(fd) {
                Ok(0) => return self.nowait.read(fd, into),
                there => return self.unseen(fd, into, there.ok(), mode),
            },
        };
        self.plain(fd, &mut into[..most], mode)
    }

    /// Reads a pipe that holds so many bytes, if that is known, and cannot be
    /// inspected. What is read up to its last byte is not cut; nor is a first packet
    /// with room for the longest.
    fn unseen(
        &mut self,
        fd: BorrowedFd<'_>,
        into: &mut [u8],
        there: Option<u64>,
        mode: ReadMode,
    ) -> Result<usize, Errno> {
        let fits = there.is_some_and(|there| there <= into.len() as u64);
        if !fits && into.len() < packets::largest() {
            // Of packets too little is left to tell one from the next.
            if let Some(done) = across(fd, into) {
                return done;
            }
            if self.has_packets || there.is_none() {
                return Err(Errno::EMSGSIZE);
            }
        }
        let most = there.map_or(into.len(), |there| into.len().min(there as usize));
        let got = self.plain(fd, &mut into[..most], mode)?;
        self.has_packets |= there.is_some() && got < most;
        Ok(got)
    }

    fn plain(
        &mut self,
        fd: BorrowedFd<'_>,
        into: &mut [u8],
        mode: ReadMode,
    ) -> Result<usize, Errno> {
        match mode.may_wait {
            true => read_what_is_there(fd, into),
            false => self.nowait.read(fd, into),
        }
    }

    /// `None` without a second pipe, or if a filter refuses to splice.
    fn splice(&mut self, fd: BorrowedFd<'_>, into: &mut [u8]) -> Option<Result<usize, Errno>> {
        use rustix::pipe::{SpliceFlags, splice};
        let mut pipe = self
            .pipe
            .take()
            .or_else(|| acquire(default_capacity()).ok())?;
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
        self.give_back();
        self.nowait.rest();
    }

    fn give_back(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            pipe.release();
        }
    }
}

/// By `vmsplice(2)`; `None` where that is refused. A descriptor that is open for
/// writing too is opened again for it.
fn across(fd: BorrowedFd<'_>, into: &mut [u8]) -> Option<Result<usize, Errno>> {
    let mut done = read_across(fd, into);
    if done == Err(Errno::EBADF) {
        let own = reopen(fd, OFlags::RDONLY).ok()?;
        done = read_across(own.as_fd(), into);
    }
    match done {
        // Before a page that is gone: `read(2)` says so.
        Ok(0) if unsent(fd) != Ok(0) => None,
        Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => Some(done),
        Err(_) => None,
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
mod tests;
