//! Private pipes: the buffer that `splice(2)` needs between two ends of which
//! neither is a pipe.

mod aside;
mod left;
mod lent;
mod nowait;
pub(crate) mod packets;
mod pool;
mod socket_pair;
mod uncut;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

pub(crate) use aside::{Aside, Unreadable, Way};
pub(crate) use lent::Lent;
pub(crate) use nowait::NoWait;
pub(crate) use pool::{acquire, acquire_pair, release_pair};
pub(crate) use socket_pair::SocketPair;

use rustix::event::{PollFlags, Timespec};

use crate::errno::Errno;
use crate::sys::{beyond, identity, poll_now};

/// The largest private pipe: what is fastest for sockets, and what an
/// unprivileged process may have by default (`fs.pipe-max-size`).
pub(crate) const LARGEST: usize = 1 << 20;
/// What a fresh pipe has (`pipe(7)`).
pub(crate) const DEFAULT: usize = 64 << 10;

/// A pipe that knows what it holds.
///
/// Capacity is counted in pages and not in bytes: a 64 KiB pipe has been seen
/// to hold 245,760 bytes of a socket's, and one byte to take a whole page. So
/// `capacity` is a measure for step sizes and never a bound; only the kernel
/// knows when a pipe is full.
pub(crate) struct OwnedPipe {
    reader: OwnedFd,
    writer: OwnedFd,
    /// Its device and inode; `None`: not known.
    id: Option<(u64, u64)>,
    capacity: usize,
    /// What was asked for.
    wanted: usize,
    held: u64,
    /// It could have taken more the last time, as it seems.
    was_full: bool,
    share: pool::Share,
    /// `None` while nobody has it.
    user: Option<pool::User>,
}

impl OwnedPipe {
    fn open() -> Result<OwnedPipe, Errno> {
        use rustix::pipe::{PipeFlags, pipe_with};
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let (reader, writer) = (beyond(reader)?, beyond(writer)?);
        let capacity = rustix::pipe::fcntl_getpipe_size(&writer)?;
        Ok(OwnedPipe {
            id: identity(&reader),
            reader,
            writer,
            capacity,
            wanted: capacity,
            held: 0,
            was_full: false,
            share: pool::Share::none(),
            user: None,
        })
    }

    /// A pipe with all of these bytes in it; `None` where none holds so many.
    pub(crate) fn holding(bytes: &[u8]) -> Option<OwnedPipe> {
        let mut pipe = acquire(bytes.len()).ok()?;
        while pipe.held() < bytes.len() as u64 {
            let rest = &bytes[pipe.held() as usize..];
            match rustix::io::write(pipe.writer(), rest) {
                Ok(n) => pipe.filled(n),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            }
        }
        Some(pipe)
    }

    /// Takes over what is in another, as much as there is room for: as a stream,
    /// without the flags of packets, where a socket pair is available.
    pub(crate) fn append(&mut self, mut other: OwnedPipe) {
        self.resize(LARGEST);
        match acquire_pair() {
            Ok(mut pair) => {
                while self.append_by(&mut pair, &mut other) {}
                release_pair(pair);
            }
            Err(_) => while self.append_whole(&mut other) {},
        }
    }

    /// `false` once there is nothing left, or no room.
    fn append_by(&mut self, pair: &mut SocketPair, other: &mut OwnedPipe) -> bool {
        if pair.held() == 0 {
            return match pair.fill(other.reader(), other.held() as usize) {
                Ok(n) => {
                    other.drained(n);
                    n > 0
                }
                Err(errno) => errno == Errno::EINTR,
            };
        }
        match pair.drain(self.writer()) {
            Ok(n) => {
                self.filled(n);
                n > 0
            }
            Err(errno) => errno == Errno::EINTR,
        }
    }

    fn append_whole(&mut self, other: &mut OwnedPipe) -> bool {
        use rustix::pipe::{SpliceFlags, splice};
        let (rest, flags) = (other.held() as usize, SpliceFlags::NONBLOCK);
        match splice(other.reader(), None, self.writer(), None, rest, flags) {
            Ok(n) => {
                other.drained(n);
                self.filled(n);
                n > 0
            }
            Err(errno) => errno == rustix::io::Errno::INTR,
        }
    }

    /// Asks for this capacity in bytes. A refusal leaves it as it is, which
    /// works as well, only slower.
    fn resize(&mut self, capacity: usize) {
        lent::resize(
            self.writer.as_fd(),
            &mut self.capacity,
            capacity,
            &mut self.share,
        );
    }

    /// While it is empty: gives back what others are to have of it by now, or
    /// takes what they have given back.
    pub(crate) fn fit(&mut self) {
        let fair = self.wanted.min(pool::fair());
        if self.capacity > fair || self.was_full {
            self.resize(fair);
        }
    }

    /// Capacity in bytes, if every page of it were full.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes in it.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    /// The end that is read from.
    pub(crate) fn reader(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    /// The end that is written to.
    pub(crate) fn writer(&self) -> BorrowedFd<'_> {
        self.writer.as_fd()
    }

    /// Whether its numbers are still its own. They may be something else's to a
    /// thread with a descriptor table of its own (`unshare(2)`), in a child of
    /// `fork(2)`, and where the host closes what it has not opened.
    fn is_here(&self) -> bool {
        let own = |fd| self.id.is_some() && identity(fd) == self.id;
        own(&self.reader) && own(&self.writer)
    }

    /// Closes it, unless its numbers refer to other files by now.
    fn close(self) {
        if !self.is_here() {
            self.forget();
        }
    }

    /// Forgets its numbers without closing them.
    pub(crate) fn forget(self) {
        std::mem::forget((self.reader, self.writer));
    }

    /// So many bytes went in.
    pub(crate) fn filled(&mut self, bytes: usize) {
        self.held += bytes as u64;
        self.was_full = bytes >= self.capacity / 2;
    }

    /// So many bytes came out.
    pub(crate) fn drained(&mut self, bytes: usize) {
        self.held -= bytes as u64;
    }

    /// The read end, for handing back what is in it; its end follows the last
    /// byte, because the write end is closed. It is as small as it can be, and
    /// counts for as long as it is larger than others.
    pub(crate) fn into_reader(mut self) -> OwnedFd {
        let fd = self.writer.as_fd();
        lent::shrink(fd, &mut self.capacity, DEFAULT, &mut self.share);
        drop(self.writer);
        if !has_no_writer(&self.reader)
            && let Some(copy) = copied(&self.reader, self.held, self.capacity)
        {
            return copy.into_reader();
        }
        let large = left::Large {
            id: self.id.unwrap_or_default(),
            number: self.reader.as_raw_fd(),
            before: DEFAULT,
            now: self.capacity,
            share: self.share,
        };
        large.leave();
        self.reader
    }

    /// Gives it back. A pipe that is not empty is closed, never used again.
    pub(crate) fn release(self) {
        pool::release(self);
    }
}

/// Whether no process has a write end of it any more. A child of `fork(2)` may
/// have one: then no end follows what is in it. `poll(2)`; where a filter
/// refuses that, nothing says otherwise.
fn has_no_writer(reader: &OwnedFd) -> bool {
    shows(reader.as_fd()).map_or(true, |now| now.is_empty() || now.contains(PollFlags::HUP))
}

/// What `poll(2)` says of a pipe's read end at this moment: `IN` where it has
/// bytes, `HUP` where it has no writer.
fn shows(reader: BorrowedFd<'_>) -> rustix::io::Result<PollFlags> {
    poll_now(reader, PollFlags::IN)
}

/// A pipe with all of these bytes, that no child has yet. `None`: none that
/// takes so many is available.
fn copied(reader: &OwnedFd, bytes: u64, capacity: usize) -> Option<OwnedPipe> {
    use rustix::pipe::{SpliceFlags, tee};
    let bytes = usize::try_from(bytes).ok()?;
    let mut copy = acquire(capacity).ok()?;
    match tee(reader, copy.writer(), bytes, SpliceFlags::NONBLOCK) {
        Ok(n) if n == bytes => {
            copy.filled(n);
            Some(copy)
        }
        // Closed with what has come over.
        _ => None,
    }
}

/// Capacity of somebody's pipe in bytes; 0 where it isn't told.
pub(crate) fn capacity(fd: BorrowedFd<'_>) -> usize {
    rustix::pipe::fcntl_getpipe_size(fd).unwrap_or(0)
}

/// What is in somebody's pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Contents {
    /// Bytes to be read.
    pub(crate) bytes: u64,
    /// There is no room for another page.
    pub(crate) full: bool,
}

/// Looks into a pipe by both its ends. `ioctl(2)`, `FIONREAD`; `poll(2)`.
/// `None`: the pipe's lock is held elsewhere, and this call does not wait for
/// it.
pub(crate) fn contents(reader: BorrowedFd<'_>, writer: BorrowedFd<'_>) -> Option<Contents> {
    let bytes = match shows(reader) {
        // Takes no lock.
        Ok(now) if now.is_empty() => 0,
        _ => bytes_in(reader)?,
    };
    Some(Contents {
        bytes,
        full: !has_room(writer),
    })
}

/// Asks another thread to wait for the lock; if no thread is available, the
/// calling thread waits.
fn bytes_in(reader: BorrowedFd<'_>) -> Option<u64> {
    const PATIENCE: std::time::Duration = std::time::Duration::from_millis(100);
    let ask = |reader: BorrowedFd<'_>| rustix::io::ioctl_fionread(reader).unwrap_or(0);
    let Ok(copy) = reader.try_clone_to_owned() else {
        return Some(ask(reader));
    };
    let (sender, answer) = std::sync::mpsc::channel();
    let call = Box::new(move || {
        let _ = sender.send(ask(copy.as_fd()));
    });
    match crate::threads::spawn(call) {
        Ok(()) => answer.recv_timeout(PATIENCE).ok(),
        Err(_) => Some(ask(reader)),
    }
}

/// Whether somebody's pipe takes another page. `poll(2)`; `select(2)`, where
/// that may watch no descriptor at all.
pub(crate) fn has_room(writer: BorrowedFd<'_>) -> bool {
    match poll_now(writer, PollFlags::OUT) {
        Ok(shown) => shown.contains(PollFlags::OUT),
        Err(rustix::io::Errno::INVAL) => {
            let now = Timespec::default();
            crate::sys::wait_for(&[(writer, true)], Some(&now)).is_ok_and(|ready| ready[0])
        }
        Err(_) => false,
    }
}
