//! Private pipes: the buffer that `splice(2)` needs between two ends of which
//! neither is a pipe.

mod aside;
mod kept;
mod left;
mod lent;
mod nowait;
pub(crate) mod packets;
mod pool;
mod socket_pair;
mod uncut;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

pub(crate) use aside::{Aside, Unreadable, Way};
pub(crate) use kept::Kept;
pub(crate) use lent::Lent;
pub(crate) use nowait::{NoWait, is_ready, lacks_nowait};
pub(crate) use pool::{acquire, acquire_pair, release_pair};
pub(crate) use socket_pair::SocketPair;

use rustix::event::PollFlags;

use crate::errno::Errno;
use crate::sys::{Identity, Shown, beyond, identity, is_over, page_size, poll_now, unsent};

/// The largest private pipe: what is fastest for sockets, and what an
/// unprivileged process may have by default (`fs.pipe-max-size`).
pub(crate) const LARGEST: usize = 1 << 20;
/// What a fresh pipe has: 16 pages (`PIPE_DEF_BUFFERS`, include/linux/pipe_fs_i.h).
pub(crate) fn default_capacity() -> usize {
    16 * page_size()
}

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
    id: Option<Identity>,
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
        let mut pair = acquire_pair().ok();
        loop {
            let moved = match &mut pair {
                Some(pair) if pair.held() > 0 => {
                    let gone = pair.drain(self.writer());
                    gone.inspect(|n| self.filled(*n))
                }
                Some(pair) => {
                    let taken = pair.fill(other.reader(), other.held() as usize);
                    taken.inspect(|n| other.drained(*n))
                }
                None => self.take_over(&mut other),
            };
            match moved {
                Ok(1..) | Err(Errno::EINTR) => {}
                // No memory is available, or the next page cannot be read: from pipe to
                // pipe it is moved all the same.
                _ if other.held() > 0 && pair.as_ref().is_some_and(|pair| pair.held() == 0) => {
                    if let Some(refusing) = pair.take() {
                        release_pair(refusing);
                    }
                }
                _ => break,
            }
        }
        if let Some(pair) = pair {
            release_pair(pair);
        }
    }

    fn take_over(&mut self, other: &mut OwnedPipe) -> Result<usize, Errno> {
        use rustix::pipe::{SpliceFlags, splice};
        let (rest, flags) = (other.held() as usize, SpliceFlags::NONBLOCK);
        let n = splice(other.reader(), None, self.writer(), None, rest, flags)?;
        other.drained(n);
        self.filled(n);
        Ok(n)
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

    /// So many bytes went in.
    pub(crate) fn filled(&mut self, bytes: usize) {
        self.held += bytes as u64;
        self.was_full = bytes >= self.capacity / 2;
    }

    /// The read end, for handing back what is in it; its end follows the last
    /// byte, because the write end is closed. It is as small as it can be, and
    /// counts for as long as it is larger than others.
    pub(crate) fn into_reader(mut self) -> OwnedFd {
        let fd = self.writer.as_fd();
        lent::shrink(fd, &mut self.capacity, default_capacity(), &mut self.share);
        drop(self.writer);
        if !has_no_writer(&self.reader)
            && let Some(copy) = copied(&self.reader, self.held, self.capacity)
        {
            return copy.into_reader();
        }
        let large = left::Large {
            id: self.id.unwrap_or_default(),
            number: self.reader.as_raw_fd(),
            before: default_capacity(),
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

impl Kept for OwnedPipe {
    fn ends(&self) -> [(BorrowedFd<'_>, Option<Identity>); 2] {
        [&self.reader, &self.writer].map(|end| (end.as_fd(), self.id))
    }

    fn held(&self) -> u64 {
        self.held
    }

    fn drained(&mut self, bytes: usize) {
        self.held -= bytes as u64;
    }

    fn forget(self) {
        std::mem::forget((self.reader, self.writer));
    }
}

/// Whether no process has a write end of it any more. A child of `fork(2)` may
/// have one: then no end follows what is in it. `poll(2)`; where a filter
/// refuses that, nothing says otherwise.
fn has_no_writer(reader: &OwnedFd) -> bool {
    let told = |now: Shown| now.is_empty() || now.shows(PollFlags::HUP) != Some(false);
    shows(reader.as_fd()).map_or(true, told)
}

/// What `poll(2)` says of a pipe's read end at this moment: `IN` where it has
/// bytes, `HUP` where it has no writer.
fn shows(reader: BorrowedFd<'_>) -> rustix::io::Result<Shown> {
    poll_now(reader, PollFlags::IN)
}

/// Whether a pipe is empty and has no writer, as far as `poll(2)` shows it. `None`:
/// a filter refuses to tell, or `select(2)` has told, which does not tell an end from
/// bytes.
pub(crate) fn has_ended(reader: BorrowedFd<'_>) -> Option<bool> {
    let now = shows(reader).ok()?;
    match now.shows(PollFlags::IN) {
        Some(true) => Some(false),
        Some(false) => now.shows(PollFlags::HUP),
        None => match unsent(reader) {
            Ok(1..) => Some(false),
            // Another reader may have taken them.
            _ => None,
        },
    }
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

fn bytes_in(reader: BorrowedFd<'_>) -> Option<u64> {
    patiently(reader, |reader| unsent(reader).unwrap_or(0))
}

/// Whether a FIFO has no writer, and nothing to be read, also where it was opened
/// before it had one, which `poll(2)` does not show (`fifo_open`, fs/pipe.c). `None`:
/// a filter refuses to tell. One whose lock is held elsewhere has a writer.
pub(crate) fn fifo_is_over(reader: BorrowedFd<'_>) -> Option<bool> {
    match shows(reader) {
        Ok(now) if now.is_empty() => patiently(reader, is_over).unwrap_or(Some(false)),
        _ => Some(false),
    }
}

/// Has another thread wait for the lock, for a while; if no thread is available, the
/// calling thread waits.
fn patiently<T: Send + 'static>(reader: BorrowedFd<'_>, ask: fn(BorrowedFd<'_>) -> T) -> Option<T> {
    const PATIENCE: std::time::Duration = std::time::Duration::from_millis(100);
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

/// Whether somebody's pipe takes another page, or may; `false` where a filter
/// refuses to tell.
pub(crate) fn has_room(writer: BorrowedFd<'_>) -> bool {
    poll_now(writer, PollFlags::OUT).is_ok_and(|shown| shown.shows(PollFlags::OUT) != Some(false))
}
