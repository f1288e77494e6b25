//! Reads of the caller's pipe, which may hold packets.

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

/// Reads the caller's pipe, which may be in packet mode (`pipe2(2)`, `O_DIRECT`). The
/// read end does not show the mode, in which `read(2)` drops the rest of a packet after
/// a short read. A packet is at most a page, and may follow bytes of a stream. A writer
/// may set the mode at any time. A call reads what is in the pipe at that moment, which
/// may differ from what an inspection has found: another reader may have taken those
/// bytes. So a pipe is read
///
/// * by `read(2)` into a buffer of the pipe's capacity, if it holds no more bytes than
///   that. (It may: pages from a socket may be larger than those that the capacity is
///   counted in.)
/// * if the buffer is shorter, by `splice(2)` into a private pipe, which leaves the
///   rest of a packet in the caller's pipe. The private pipe holds exactly the bytes to
///   read, and is read to the last byte.
/// * if no private pipe is available, or `splice(2)` is refused, by `vmsplice(2)`,
///   which leaves the rest of a packet too.
///
/// An empty pipe is not read, because its capacity may grow while a read sleeps:
/// `poll(2)` waits instead. If `vmsplice(2)` is refused as well, a first packet that is
/// longer than the buffer stays in the pipe. If the pipe cannot be inspected either,
/// only a read that ended at a packet shows that there are packets.
#[derive(Default)]
pub(crate) struct PacketReader {
    /// The private pipe, kept for the next read.
    pipe: Option<OwnedPipe>,
    nowait: NoWait,
    unreadable: Option<Unreadable>,
    /// A read has ended with a packet.
    has_packets: bool,
}

/// Bytes in the private pipe that cannot be read: a page of a file is not valid any
/// more (`page_cache_pipe_buf_confirm`, fs/splice.c).
pub(crate) struct Unreadable {
    pub(crate) pipe: OwnedPipe,
    pub(crate) errno: Errno,
}

/// How the caller's pipe is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadMode {
    /// The call may wait, or the descriptor is nonblocking. Otherwise, if another
    /// reader has taken the bytes, the read returns `EAGAIN` even if the descriptor is
    /// blocking.
    pub(crate) may_wait: bool,
    /// A read ends with a packet, as `read(2)` does.
    pub(crate) is_whole: bool,
    /// The call may wait, and the pipe was not polled before. A poll would also have
    /// shown the end.
    pub(crate) is_unasked: bool,
    /// A FIFO, whose end `poll(2)` does not show if it was opened before it had a
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

    /// Returns the second description of the pipe, if it is open.
    pub(crate) fn second(&self) -> Option<BorrowedFd<'_>> {
        self.nowait.second()
    }

    /// Takes the bytes that the last read has removed from the pipe and could not
    /// return. They follow the returned bytes, and no more can be read.
    pub(crate) fn unreadable(&mut self) -> Option<Unreadable> {
        self.unreadable.take()
    }

    /// Reads what is in the pipe; `EAGAIN` if the pipe is empty, whether it is blocking
    /// or not.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE`: the next packet is longer than the buffer, and cannot be read in
    /// part. Those of `read(2)`; the bytes may then be
    /// [unreadable](PacketReader::unreadable).
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
            && let Some(done) = self.read_whole(fd, into, mode)
        {
            return done;
        }
        let most = match mode.is_whole {
            true => {
                // Released first: it may be the only pipe available for the inspection.
                self.give_back();
                let inspected = acquire(default_capacity())
                    .ok()
                    .map(|own| length_to_packet_end(own, fd, length));
                match inspected {
                    None => None,
                    Some(Ok(most)) => Some(most),
                    // Not read now: packets that have arrived since would not be kept
                    // apart.
                    Some(Err(Ok(Front::Nothing))) => match is_over(fd) {
                        Some(false) => return Err(Errno::EAGAIN),
                        // A filter refuses vmsplice(2). A packet fits, so a read ends with
                        // the first one.
                        None if length >= packets::largest() => None,
                        _ => Some(length),
                    },
                    Some(Err(told)) => {
                        // Only a read of all bytes ends where a packet ends.
                        if there.is_none()
                            && told.is_err()
                            && let Some(done) = self.read_whole(fd, into, mode)
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

    /// Reads with a buffer of the pipe's capacity. `None`: the buffer is shorter, or
    /// the read might wait.
    fn read_whole(
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
            false => self.nowait.read_unless_poll(fd, into),
        }
    }

    /// Reads by `vmsplice(2)`, or reads no more than was inspected.
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
            && let Some(done) = read_part(fd, into)
        {
            return done;
        }
        let most = match lossless_length(fd, into.len()) {
            // The pipe has ended, as far as is known.
            Ok(Some(0)) => return self.nowait.read(fd, into),
            Ok(Some(bytes)) => bytes,
            // Without a writer a FIFO need not show its end.
            Err(Errno::EAGAIN) if mode.is_named && into.len() >= packets::largest() => {
                return self.nowait.read(fd, into);
            }
            // The whole buffer is filled from the first packet.
            Err(Errno::EMSGSIZE) if mode.is_whole => {
                return read_part(fd, into).unwrap_or(Err(Errno::EMSGSIZE));
            }
            Err(errno) => return Err(errno),
            Ok(None) => match unsent(fd) {
                Ok(0) => return self.nowait.read(fd, into),
                there => return self.read_uninspected(fd, into, there.ok(), mode),
            },
        };
        self.plain(fd, &mut into[..most], mode)
    }

    /// Reads a pipe that cannot be inspected; `there`: the bytes it holds, if known. A
    /// read of all its bytes truncates no packet, and neither does a read of a first
    /// packet into a buffer for the longest packet.
    fn read_uninspected(
        &mut self,
        fd: BorrowedFd<'_>,
        into: &mut [u8],
        there: Option<u64>,
        mode: ReadMode,
    ) -> Result<usize, Errno> {
        let fits = there.is_some_and(|there| there <= into.len() as u64);
        if !fits && into.len() < packets::largest() {
            // The buffer is too short to tell one packet from the next.
            if let Some(done) = read_part(fd, into) {
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

    /// Reads by `splice(2)`. `None` if no private pipe is available, or a filter
    /// refuses the call.
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

    /// Releases the private pipe and the second description.
    pub(crate) fn rest(&mut self) {
        self.give_back();
        self.nowait.rest();
    }

    /// Forgets its descriptors without closing them.
    pub(crate) fn forget(self) {
        let unread = self.unreadable.map(|rest| rest.pipe);
        [self.pipe, unread]
            .into_iter()
            .flatten()
            .for_each(Channel::forget);
        self.nowait.forget();
    }

    fn give_back(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            pipe.release();
        }
    }
}

/// Reads by `vmsplice(2)`; `None` if the call is refused. A descriptor that is open for
/// writing too is opened again for reading only.
fn read_part(fd: BorrowedFd<'_>, into: &mut [u8]) -> Option<Result<usize, Errno>> {
    let mut done = read_across(fd, into);
    if done == Err(Errno::EBADF) {
        let own = reopen(fd, OFlags::RDONLY).ok()?;
        done = read_across(own.as_fd(), into);
    }
    match done {
        // The next page is no longer valid: `read(2)` returns the error.
        Ok(0) if unsent(fd) != Ok(0) => None,
        Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => Some(done),
        Err(_) => None,
    }
}

/// Reads, and repeats an interrupted read unless another reader has emptied the pipe:
/// the read would then wait, and the signal may be a cancel.
fn read_what_is_there(fd: BorrowedFd<'_>, into: &mut [u8]) -> Result<usize, Errno> {
    let done = again(|| match rustix::io::read(fd, &mut *into) {
        Err(Refused::INTR) if unsent(fd) == Ok(0) => Ok(None),
        done => done.map(Some),
    })?;
    done.ok_or(Errno::EINTR)
}

/// Reads all bytes of the private pipe. Returns their number, and whether these were
/// all. An `EAGAIN` of the private pipe, which is not empty, must not be taken for one
/// of the source.
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
