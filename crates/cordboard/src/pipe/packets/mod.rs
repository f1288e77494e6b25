//! Inspection of the caller's pipe for packets.
//!
//! A write end in packet mode (`pipe2(2)`, `O_DIRECT`) flags its buffers as packets,
//! and `read(2)` drops the rest of a packet after a short read (`pipe_read` in
//! fs/pipe.c). `splice(2)` and `tee(2)` keep the flag (`splice_pipe_to_pipe` and
//! `link_pipe` in fs/splice.c): if the reader of the next pipe expects a stream, it
//! then loses bytes.
//!
//! The flag belongs to the buffer. The mode belongs to one description of a write end,
//! which can be another process's, and can change at any time; no call on the read end
//! shows it. So all bytes are inspected before they are moved: they are duplicated into
//! a private pipe, and a byte is written after them. A single read of the whole then
//! stops after the first packet, if there is one. Duplication copies no bytes, and the
//! read copies them into one small buffer: an inspection takes a third of the processor
//! time of a read and a write.
//!
//! A private pipe may have one slot only (`fs.pipe-max-size` of a page, or the user's
//! share of pages before Linux 5.14). If no byte can be written after the others, they
//! are duplicated a second time, and all but one are read.

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use rustix::pipe::{SpliceFlags, tee};

use super::capacity::default_capacity;
use super::channel::Channel;
use super::owned::OwnedPipe;
use super::pool::acquire;
use super::state::has_ended;
use crate::errno::Errno;
use crate::sys::{self, Identity, again, discard, page_size};

/// Returns the size of the largest packet: a page (`pipe_write`, fs/pipe.c), whatever
/// `pipe(7)` says of `PIPE_BUF`.
pub(crate) fn largest() -> usize {
    page_size()
}

/// What the front of a pipe holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Front {
    /// The first bytes, of this number, may be moved as a stream. A single byte may be
    /// a packet, since no read can drop a part of it.
    Stream(usize),
    /// A packet is among the bytes that were inspected.
    Packets,
    /// The pipe is empty.
    Nothing,
    /// The pipe is empty and has no writer.
    End,
}

/// Inspects up to `at_most` bytes at the front of a pipe, and leaves them there.
/// Another reader of the same pipe may take them before they are moved; the bytes
/// behind them are then moved without inspection.
///
/// # Errors
///
/// `EMFILE`, `ENFILE`, `ENOMEM`: no second pipe is available. `EINVAL`: this is
/// not a pipe. Any other errno: a filter refuses `tee(2)` or `readv(2)`.
pub(crate) fn front(source: BorrowedFd<'_>, at_most: usize) -> Result<Front, Errno> {
    let own = acquire(at_most.saturating_mul(2).max(default_capacity()))?;
    inspect(source, own, at_most)
}

/// Inspects with this pipe, which is closed instead of released if bytes stay in it.
fn inspect(source: BorrowedFd<'_>, own: OwnedPipe, at_most: usize) -> Result<Front, Errno> {
    // Leaves a slot for the byte after them, if the pages are full.
    let room = own.capacity().saturating_sub(page_size());
    let length = at_most.min(room.max(page_size())).max(1);
    let (mut own, copied) = match duplicate(source, own, length) {
        Ok(done) => done,
        Err(none) => return none,
    };
    let behind = match copied {
        1 => 0,
        _ if !duplicates_stay_apart() => 0,
        // The write may fail: small buffers may have taken every slot, and a filter may
        // refuse it.
        _ => again(|| rustix::io::write(own.writer(), &[0])).unwrap_or(0),
    };
    own.filled(behind);
    let all = copied + behind;
    if discard(own.reader(), all)? < all {
        return Ok(Front::Packets);
    }
    own.drained(all);
    if behind == 0 && copied > 1 {
        return inspect_last(source, own, copied);
    }
    own.release();
    Ok(Front::Stream(copied))
}

/// Whether a write after a duplicate leaves the original unchanged, as since Linux 5.1
/// and in stable kernels with "splice: don't merge into linked buffers". In older
/// kernels it goes into the original's page, where the caller's writer may write next.
/// `false` also if that is unknown.
fn duplicates_stay_apart() -> bool {
    /// 0: not yet known; 1: no; 2: yes. Not a lock, which may be held at the moment of
    /// a fork.
    static KNOWN: AtomicU8 = AtomicU8::new(0);
    match KNOWN.load(Ordering::Relaxed) {
        0 => {
            let apart = try_a_duplicate() == Ok(true);
            KNOWN.store(1 + u8::from(apart), Ordering::Relaxed);
            apart
        }
        known => known == 2,
    }
}

fn try_a_duplicate() -> Result<bool, Errno> {
    let (original, copy) = (OwnedPipe::open()?, OwnedPipe::open()?);
    rustix::io::write(original.writer(), b"a")?;
    tee(original.reader(), copy.writer(), 1, SpliceFlags::NONBLOCK)?;
    rustix::io::write(copy.writer(), b"b")?;
    // If the pages are shared, this overwrites the other byte.
    rustix::io::write(original.writer(), b"c")?;
    let mut both = [0; 2];
    Ok(rustix::io::read(copy.reader(), &mut both)? == 2 && both == *b"ab")
}

/// Inspects the last buffer, if no byte was written after the `bytes` bytes. If it is a
/// packet, a read of all bytes but the last drops the last.
fn inspect_last(source: BorrowedFd<'_>, own: OwnedPipe, bytes: usize) -> Result<Front, Errno> {
    let (mut own, copied) = match duplicate(source, own, bytes) {
        Ok(done) => done,
        Err(none) => return none,
    };
    if copied < bytes {
        // Another reader has taken some since.
        return Ok(Front::Nothing);
    }
    let before = discard(own.reader(), bytes - 1)?;
    if before < bytes - 1 || sys::unsent(own.reader()) != Ok(1) {
        return Ok(Front::Packets);
    }
    discard(own.reader(), 1)?;
    own.drained(bytes);
    own.release();
    Ok(Front::Stream(bytes))
}

/// Duplicates up to `at_most` bytes into the empty pipe `own`. If there are none,
/// releases `own` and returns the reason.
pub(super) fn duplicate(
    source: BorrowedFd<'_>,
    mut own: OwnedPipe,
    at_most: usize,
) -> Result<(OwnedPipe, usize), Result<Front, Errno>> {
    use rustix::io::Errno as Refused;
    let none = match again(|| tee(source, own.writer(), at_most, SpliceFlags::NONBLOCK)) {
        Ok(copied @ 1..) => {
            own.filled(copied);
            return Ok((own, copied));
        }
        // tee(2) also returns 0 if another reader empties the pipe during the call
        // (`link_pipe`, fs/splice.c). If a filter refuses the query, 0 counts as the
        // end, which no other call shows.
        Ok(0) if has_ended(source) != Some(false) => Ok(Front::End),
        // A FIFO that was opened before it had a writer.
        Ok(0) if sys::is_over(source) == Some(true) => Ok(Front::End),
        Ok(0) => Ok(Front::Nothing),
        Err(Refused::AGAIN) => Ok(Front::Nothing),
        Err(errno) => Err(errno.into()),
    };
    own.release();
    Err(none)
}

/// How long an inspection for [`is_a_stream`] is valid. If calls follow each other
/// quickly, fewer than one in a hundred makes an inspection.
const FRESH: Duration = Duration::from_micros(500);

/// The last inspection for [`is_a_stream`].
#[derive(Debug, Clone, Copy)]
struct Inspected {
    pipe: Identity,
    at: Instant,
    /// Inspected bytes of a stream that have not been moved yet.
    ahead: usize,
    /// No bytes followed them.
    all: bool,
}

thread_local! {
    /// This thread's last inspection. For calls that move few bytes an inspection takes
    /// longer than the move.
    static LAST: Cell<Option<Inspected>> = const { Cell::new(None) };
}

/// Returns how many bytes, up to `at_most`, this call may move as a stream; `None` if
/// there are none, if that is unknown, or if this is not a pipe. Bytes that arrive
/// within [`FRESH`] of an inspection count as inspected. `now`: the time of the call.
pub(crate) fn is_a_stream(source: BorrowedFd<'_>, at_most: usize, now: Instant) -> Option<usize> {
    use rustix::fs::FileType;
    let stat = sys::fstat(source).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Fifo {
        return None;
    }
    let pipe = (stat.st_dev, stat.st_ino);
    let fresh =
        |last: &Inspected| last.pipe == pipe && now.saturating_duration_since(last.at) < FRESH;
    if let Some(last) = LAST.get().filter(fresh)
        && (last.all || last.ahead >= at_most)
    {
        let ahead = last.ahead.saturating_sub(at_most);
        LAST.set(Some(Inspected { ahead, ..last }));
        return Some(at_most);
    }
    let asked = at_most.max(default_capacity());
    let found = match front(source, asked) {
        Ok(Front::Stream(bytes)) => Some(bytes),
        _ => None,
    };
    LAST.set(found.map(|bytes| Inspected {
        pipe,
        at: now,
        ahead: bytes.saturating_sub(at_most),
        all: sys::unsent(source) == Ok(bytes as u64),
    }));
    found.map(|bytes| bytes.min(at_most))
}

#[cfg(test)]
mod tests;
