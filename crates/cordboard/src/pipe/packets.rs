//! Packets in the caller's pipe.
//!
//! A write end in packet mode (`pipe2(2)`, `O_DIRECT`) flags its buffers as
//! packets, and `read(2)` drops what a short read leaves of one (`pipe_read` in
//! fs/pipe.c). `splice(2)` and `tee(2)` keep the flag
//! (`splice_pipe_to_pipe` and `link_pipe` in fs/splice.c): a reader of the next
//! pipe that expects a stream then loses bytes.
//!
//! The flag belongs to the buffer. The mode belongs to one description of a
//! write end, which can be another process's, and can change at any time; no
//! call on the read end shows it. So the first buffer is inspected: its first
//! byte is duplicated twice into a pipe of our own, where a read of two bytes
//! stops after a packet. A pipe of our own may have one slot only
//! (`fs.pipe-max-size` of a page, or the user's share of pages before Linux
//! 5.14), which the first copy fills. There the first two bytes are duplicated
//! once, and a read of one of them drops the other if they are a packet; a
//! buffer of a single byte may be either.
//!
//! An inspection takes as long as moving a few pages, and sees one buffer. So a
//! pipe is inspected before anything is moved, and then at most once per
//! [`FRESH`]: if a writer turns packet mode on, it is noticed that much later.

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::pipe::{SpliceFlags, tee};

use super::{DEFAULT, OwnedPipe, acquire};
use crate::errno::Errno;
use crate::sys::Identity;

/// The size of the largest packet (`PIPE_BUF` in `pipe(7)`).
pub(super) const LARGEST: usize = 4096;

/// What the first buffer of a pipe is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    /// Bytes of a stream.
    Stream,
    /// A packet.
    Packet,
    /// A single byte, of a stream or as a packet. Moved alone, it is the same:
    /// no read drops a part of it.
    Byte,
    /// The pipe is empty.
    Nothing,
    /// There will be none: the pipe has no writer.
    End,
}

/// Inspects the first buffer of a pipe; everything stays in the pipe.
///
/// # Errors
///
/// `EMFILE`, `ENFILE`, `ENOMEM`: no second pipe is available. `EINVAL`: this is
/// not a pipe. Any other errno: a filter refuses `tee(2)`.
pub(crate) fn first(source: BorrowedFd<'_>) -> Result<First, Errno> {
    use rustix::io::Errno as Refused;
    let mut own = acquire(DEFAULT)?;
    if own.capacity() < 2 * crate::sys::page_size() {
        return first_by_one_slot(source, own);
    }
    for copies in 0..2 {
        match tee(source, own.writer(), 1, SpliceFlags::NONBLOCK) {
            Ok(1..) => own.filled(1),
            // Another reader has taken the byte since the first copy.
            Ok(0) | Err(Refused::AGAIN | Refused::INTR) if copies > 0 => return Ok(First::Nothing),
            // The pipe is closed with the first copy in it.
            Err(errno) if copies > 0 => return Err(errno.into()),
            Ok(0) => {
                own.release();
                return Ok(First::End);
            }
            Err(Refused::AGAIN | Refused::INTR) => {
                own.release();
                return Ok(First::Nothing);
            }
            Err(errno) => {
                own.release();
                return Err(errno.into());
            }
        }
    }
    let copies = &mut [0; 2];
    let first = rustix::io::read(own.reader(), &mut copies[..])?;
    if first == 2 {
        own.drained(2);
        own.release();
        return Ok(First::Stream);
    }
    // The pipe is closed with the second copy in it.
    Ok(First::Packet)
}

/// The same with a pipe that is full with one buffer in it.
fn first_by_one_slot(source: BorrowedFd<'_>, mut own: OwnedPipe) -> Result<First, Errno> {
    use rustix::io::Errno as Refused;
    let found = match tee(source, own.writer(), 2, SpliceFlags::NONBLOCK) {
        Ok(copied @ 1..) => {
            own.filled(copied);
            rustix::io::read(own.reader(), &mut [0; 1][..])?;
            own.drained(copied);
            match rustix::io::read(own.reader(), &mut [0; 1][..]) {
                _ if copied == 1 => First::Byte,
                Ok(_) => First::Stream,
                // The first read has dropped the rest.
                Err(Refused::AGAIN) => First::Packet,
                // The pipe is closed with the second byte in it.
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(0) => First::End,
        Err(Refused::AGAIN | Refused::INTR) => First::Nothing,
        Err(errno) => {
            own.release();
            return Err(errno.into());
        }
    };
    own.release();
    Ok(found)
}

/// Whether the first buffer is a packet of more bytes than this; `false` also
/// if that is unknown.
///
/// # Errors
///
/// `EAGAIN`: the pipe is empty. Whatever comes next, a read that waits for it
/// may be too short.
pub(super) fn first_is_longer(source: BorrowedFd<'_>, than: usize) -> Result<bool, Errno> {
    use rustix::io::Errno as Refused;
    match first(source) {
        Ok(First::Packet) => {}
        Ok(First::Nothing) => return Err(Errno::EAGAIN),
        Ok(First::Stream | First::Byte | First::End) | Err(_) => return Ok(false),
    }
    let Ok(mut own) = acquire(DEFAULT) else {
        return Ok(false);
    };
    match tee(source, own.writer(), LARGEST, SpliceFlags::NONBLOCK) {
        // The pipe is closed with what is left in it.
        Ok(copied @ 1..) => own.filled(copied),
        // Another reader has taken the packet.
        Ok(0) | Err(Refused::AGAIN | Refused::INTR) => return Err(Errno::EAGAIN),
        Err(_) => return Ok(false),
    }
    let length = rustix::io::read(own.reader(), &mut [0; LARGEST][..]);
    Ok(length.is_ok_and(|length| length > than))
}

/// How long a stream counts as one.
pub(crate) const FRESH: Duration = Duration::from_millis(1);
/// Steps without a wait after which the clock is read.
const STEPS: u32 = 16;

/// When one pipe was last seen to be a stream.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    at: Option<Instant>,
    steps: u32,
}

impl Seen {
    /// What this thread knows of a pipe from the transfer before.
    pub(crate) fn of(id: Option<Identity>) -> Seen {
        let last = LAST.get().filter(|(last, _)| Some(*last) == id);
        Seen {
            at: last.map(|(_, at)| at),
            // The clock is read at once.
            steps: STEPS,
        }
    }

    /// Whether the pipe is to be inspected before the next step. `waited`: it
    /// was empty before, so its contents are new.
    pub(crate) fn is_stale(&mut self, waited: bool, now: impl FnOnce() -> Instant) -> bool {
        let Some(at) = self.at else {
            return true;
        };
        self.steps += 1;
        if !waited && self.steps < STEPS {
            return false;
        }
        self.steps = 0;
        now().saturating_duration_since(at) >= FRESH
    }

    /// The pipe of this identity is a stream.
    pub(crate) fn is_a_stream(&mut self, id: Option<Identity>, now: Instant) {
        (self.at, self.steps) = (Some(now), 0);
        if let Some(id) = id {
            LAST.set(Some((id, now)));
        }
    }
}

thread_local! {
    /// The last pipe that this thread found to be a stream, for transfers that
    /// move so little that an inspection would take longer.
    static LAST: Cell<Option<(Identity, Instant)>> = const { Cell::new(None) };
}

/// Whether this is a pipe that holds a stream; `false` also if that is unknown.
/// `now`: the time of the call.
pub(crate) fn is_a_stream(source: BorrowedFd<'_>, now: Instant) -> bool {
    use rustix::fs::FileType;
    let Ok(stat) = rustix::fs::fstat(source) else {
        return false;
    };
    if FileType::from_raw_mode(stat.st_mode) != FileType::Fifo {
        return false;
    }
    let id = (stat.st_dev, stat.st_ino);
    let fresh = |(last, at)| last == id && now.saturating_duration_since(at) < FRESH;
    if LAST.get().is_some_and(fresh) {
        return true;
    }
    let stream = first(source) == Ok(First::Stream);
    LAST.set(stream.then_some((id, now)));
    stream
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use rustix::pipe::{PipeFlags, pipe, pipe_with};

    use super::*;

    fn packets() -> (OwnedFd, OwnedFd) {
        pipe_with(PipeFlags::DIRECT).unwrap()
    }

    #[test]
    fn the_first_buffer_tells_and_stays() {
        for length in [1, 2, 3, 4096] {
            for ((source, feed), expected) in
                [(pipe().unwrap(), First::Stream), (packets(), First::Packet)]
            {
                assert_eq!(first(source.as_fd()), Ok(First::Nothing));
                rustix::io::write(&feed, &vec![7; length]).unwrap();
                // The same from a second one on.
                for _ in 0..2 {
                    assert_eq!(first(source.as_fd()), Ok(expected), "{length}");
                }
                rustix::io::write(&feed, &vec![8; length]).unwrap();
                assert_eq!(first(source.as_fd()), Ok(expected), "{length}");
                let there = rustix::io::ioctl_fionread(&source);
                assert_eq!(there, Ok(2 * length as u64));
            }
        }
        let (source, feed) = packets();
        for length in [1000, 4096] {
            rustix::io::write(&feed, &vec![7; length]).unwrap();
            rustix::io::write(&feed, &[8; 4096]).unwrap();
            for than in [1, 999, 1000, 4095, 4096] {
                let longer = first_is_longer(source.as_fd(), than);
                assert_eq!(longer, Ok(length > than), "{length} {than}");
            }
            for length in [length, 4096] {
                assert_eq!(rustix::io::read(&source, &mut [0; 4096]), Ok(length));
            }
        }
        assert_eq!(first_is_longer(source.as_fd(), 1), Err(Errno::EAGAIN));
        drop(feed);
        assert_eq!(first_is_longer(source.as_fd(), 1), Ok(false));
        assert_eq!(first(source.as_fd()), Ok(First::End));
        let file = tempfile::tempfile().unwrap();
        assert_eq!(first(file.as_fd()), Err(Errno::EINVAL));
    }

    #[test]
    fn a_pipe_of_one_slot_tells_as_much() {
        let look = |source: &OwnedFd| {
            let own = acquire(crate::sys::page_size()).unwrap();
            assert_eq!(own.capacity(), crate::sys::page_size());
            first_by_one_slot(source.as_fd(), own)
        };
        for length in [1, 2, 3, 4096] {
            for ((source, feed), expected) in
                [(pipe().unwrap(), First::Stream), (packets(), First::Packet)]
            {
                assert_eq!(look(&source), Ok(First::Nothing));
                rustix::io::write(&feed, &vec![7; length]).unwrap();
                let expected = if length == 1 { First::Byte } else { expected };
                // The pipe is kept, and empty each time.
                for _ in 0..3 {
                    assert_eq!(look(&source), Ok(expected), "{length}");
                }
                let there = rustix::io::ioctl_fionread(&source);
                assert_eq!(there, Ok(length as u64));
                drop(feed);
                rustix::io::read(&source, &mut vec![0; length]).unwrap();
                assert_eq!(look(&source), Ok(First::End));
            }
        }
        let file = tempfile::tempfile().unwrap();
        assert_eq!(look(&file.into()), Err(Errno::EINVAL));
    }

    #[test]
    fn a_stream_counts_as_one_for_a_while() {
        let start = Instant::now();
        let later = |share| start + FRESH.mul_f64(share);
        let mut seen = Seen::default();
        assert!(seen.is_stale(false, || start), "not looked at yet");
        seen.is_a_stream(None, start);
        assert!(!seen.is_stale(true, || later(0.9)));
        assert!(seen.is_stale(true, || later(1.0)));
        seen.is_a_stream(None, start);
        let never = || panic!("the time is asked for seldom");
        for _ in 1..STEPS {
            assert!(!seen.is_stale(false, never));
        }
        assert!(seen.is_stale(false, || later(1.0)));
    }

    #[test]
    fn what_is_remembered_is_one_pipe_s() {
        let now = Instant::now();
        let (stream, feed) = pipe().unwrap();
        rustix::io::write(&feed, b"stream").unwrap();
        assert!(is_a_stream(stream.as_fd(), now));
        let (other, other_feed) = packets();
        rustix::io::write(&other_feed, b"packet").unwrap();
        assert!(!is_a_stream(other.as_fd(), now));
        assert!(is_a_stream(stream.as_fd(), now));
        // Remembered: nothing is looked at.
        rustix::io::read(&stream, &mut [0; 6]).unwrap();
        assert!(is_a_stream(stream.as_fd(), now));
        assert!(!is_a_stream(stream.as_fd(), now + FRESH));
        assert!(!is_a_stream(tempfile::tempfile().unwrap().as_fd(), now));
    }
}
