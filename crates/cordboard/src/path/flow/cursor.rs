//! The position of one end.
//!
//! `read(2)` and `write(2)` hold a lock while they use the file position, as
//! `lseek(2)` does (`fdget_pos`, fs/file.c, since Linux 3.14). `splice(2)`,
//! `sendfile(2)` and `copy_file_range(2)` do not: if another process uses the same
//! open file description meanwhile, bytes are overwritten or read twice. So the
//! position is first moved past a range, and these calls get an offset within that
//! range.

use std::os::fd::BorrowedFd;

use rustix::fs::SeekFrom;

use crate::errno::Errno;
use crate::sys::again;

/// Where an end is read or written next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cursor {
    /// Not seekable.
    Stream,
    /// At the file position, which moves along.
    Position,
    /// In a range reserved for this transfer. The file position is at its end. Not
    /// empty.
    Claimed { at: u64, end: u64 },
    /// At this offset; the file position does not move.
    At(u64),
}

impl Cursor {
    /// The offset, if not the file position.
    pub(crate) fn place(self) -> Option<u64> {
        match self {
            Cursor::At(at) | Cursor::Claimed { at, .. } => Some(at),
            Cursor::Stream | Cursor::Position => None,
        }
    }

    /// The number of bytes left of a claimed range.
    pub(crate) fn claimed(self) -> Option<u64> {
        match self {
            Cursor::Claimed { at, end } => Some(end - at),
            _ => None,
        }
    }

    /// The file position.
    pub(in crate::path) fn position(fd: BorrowedFd<'_>) -> Option<u64> {
        tell(fd).ok()
    }

    /// Advances by `bytes`, for calls that do not move the file position.
    pub(crate) fn advance(&mut self, bytes: u64) {
        match self {
            Cursor::At(at) => *at += bytes,
            Cursor::Claimed { at, end } => {
                *at += bytes;
                debug_assert!(*at <= *end, "past what was claimed");
                if *at >= *end {
                    *self = Cursor::Position;
                }
            }
            Cursor::Stream | Cursor::Position => {}
        }
    }

    /// Records that a call has moved `bytes` at this offset, without moving the file
    /// position. If the file position cannot be moved past them, the transfer
    /// continues with offsets.
    pub(in crate::path) fn used(&mut self, fd: BorrowedFd<'_>, offset: Option<u64>, bytes: u64) {
        match (*self, offset) {
            (Cursor::Position, Some(at)) => {
                if move_cursor(self, fd, bytes as i64).is_err() {
                    *self = Cursor::At(at + bytes);
                }
            }
            _ => self.advance(bytes),
        }
    }

    /// Moves the file position past the next `bytes`, which reserves them for this
    /// transfer. If that fails, as behind the end of a block device, the position stays in
    /// use.
    pub(in crate::path) fn claim(&mut self, fd: BorrowedFd<'_>, bytes: u64) {
        if *self != Cursor::Position || bytes == 0 {
            return;
        }
        let Ok(step) = i64::try_from(bytes) else {
            return;
        };
        if let Ok(end) = seek(fd, SeekFrom::Current(step))
            && let Some(at) = end.checked_sub(bytes)
        {
            *self = Cursor::Claimed { at, end };
        }
    }

    /// Claims up to `bytes` of those before `limit`. Returns whether there were none, because
    /// another process has read them.
    pub(in crate::path) fn claim_before(
        &mut self,
        fd: BorrowedFd<'_>,
        bytes: u64,
        limit: u64,
    ) -> bool {
        self.claim(fd, bytes);
        let has_claimed = matches!(self, Cursor::Claimed { .. });
        self.end_at(fd, limit);
        has_claimed && *self == Cursor::Position
    }

    /// Moves the file position back over the part of the range past `limit`, where
    /// there is nothing to read. The move is relative: other processes may also have
    /// moved the position past `limit`, and move it back by their own part.
    pub(in crate::path) fn end_at(&mut self, fd: BorrowedFd<'_>, limit: u64) {
        let Cursor::Claimed { at, end } = *self else {
            return;
        };
        let limit = limit.max(at);
        if end > limit && seek(fd, SeekFrom::Current(-((end - limit) as i64))).is_ok() {
            *self = match at < limit {
                true => Cursor::Claimed { at, end: limit },
                false => Cursor::Position,
            };
        }
    }

    /// Moves the file position back over the unused part of the range, at the end of the
    /// transfer. If another process has moved it since, the position stays. If the seek
    /// fails, or another process moves the position meanwhile, the range stays claimed.
    pub(in crate::path) fn unclaim(&mut self, fd: BorrowedFd<'_>) {
        self.give_back(fd, true);
    }

    /// As [`Cursor::unclaim`], for a transfer that goes on: if another process has moved
    /// the position since, the range stays claimed. Its bytes would otherwise be skipped.
    pub(in crate::path) fn release(&mut self, fd: BorrowedFd<'_>) {
        self.give_back(fd, false);
    }

    fn give_back(&mut self, fd: BorrowedFd<'_>, ends: bool) {
        let Cursor::Claimed { at, end } = *self else {
            return;
        };
        let rest = (end - at) as i64;
        let is_free = match tell(fd) {
            Ok(here) if here == end => match seek(fd, SeekFrom::Current(-rest)) {
                Ok(here) if here == at => true,
                // Another process moved it between the two calls.
                Ok(_) => seek(fd, SeekFrom::Current(rest)).is_err(),
                Err(_) => false,
            },
            Ok(_) => ends,
            Err(_) => false,
        };
        if is_free {
            *self = Cursor::Position;
        }
    }
}

pub(in crate::path) fn place_of(cursor: Cursor, fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    match cursor {
        Cursor::Stream => Err(Errno::ESPIPE),
        Cursor::Position => Ok(tell(fd)?),
        Cursor::At(at) | Cursor::Claimed { at, .. } => Ok(at),
    }
}

/// Moves the cursor by `bytes` and returns the new offset.
pub(in crate::path) fn move_cursor(
    cursor: &mut Cursor,
    fd: BorrowedFd<'_>,
    bytes: i64,
) -> Result<u64, Errno> {
    let moved = |at: u64| at.checked_add_signed(bytes).ok_or(Errno::EINVAL);
    match *cursor {
        Cursor::Stream => Err(Errno::ESPIPE),
        Cursor::Position => Ok(seek(fd, SeekFrom::Current(bytes))?),
        Cursor::At(at) => {
            let at = moved(at)?;
            *cursor = Cursor::At(at);
            Ok(at)
        }
        Cursor::Claimed { at, end } => {
            let at = moved(at)?;
            if at > end {
                seek(fd, SeekFrom::Current((at - end) as i64))?;
            }
            *cursor = match at < end {
                true => Cursor::Claimed { at, end },
                false => Cursor::Position,
            };
            Ok(at)
        }
    }
}

/// `lseek(2)`. A seccomp filter may return EINTR.
fn seek(fd: BorrowedFd<'_>, to: SeekFrom) -> rustix::io::Result<u64> {
    again(|| rustix::fs::seek(fd, to))
}

fn tell(fd: BorrowedFd<'_>) -> rustix::io::Result<u64> {
    again(|| rustix::fs::tell(fd))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn what_is_claimed_is_used_or_given_back() {
        let file = tempfile::tempfile().unwrap();
        let fd = file.as_fd();
        seek(fd, SeekFrom::Start(100)).unwrap();
        let mut cursor = Cursor::Position;
        cursor.claim(fd, 0);
        assert_eq!(cursor, Cursor::Position);
        cursor.claim(fd, 50);
        assert_eq!(cursor, Cursor::Claimed { at: 100, end: 150 });
        assert_eq!((tell(fd), cursor.claimed()), (Ok(150), Some(50)));
        cursor.advance(20);
        // No second claim before the first is used.
        cursor.claim(fd, 1000);
        assert_eq!(place_of(cursor, fd), Ok(120));
        move_cursor(&mut cursor, fd, -10).unwrap();
        assert_eq!(cursor.place(), Some(110));
        cursor.unclaim(fd);
        assert_eq!((cursor, tell(fd)), (Cursor::Position, Ok(110)));
        cursor.claim(fd, 10);
        cursor.advance(10);
        assert_eq!((cursor, tell(fd)), (Cursor::Position, Ok(120)));
        cursor.claim(fd, 10);
        move_cursor(&mut cursor, fd, 15).unwrap();
        assert_eq!((cursor, tell(fd)), (Cursor::Position, Ok(135)));
    }

    #[test]
    fn what_another_has_taken_since_is_not_given_back() {
        let file = tempfile::tempfile().unwrap();
        let (fd, other) = (file.as_fd(), file.try_clone().unwrap());
        let mut cursor = Cursor::Position;
        cursor.claim(fd, 50);
        rustix::io::write(&other, b"theirs").unwrap();
        let claimed = cursor;
        cursor.release(fd);
        assert_eq!((cursor, tell(fd)), (claimed, Ok(56)), "it goes on");
        cursor.unclaim(fd);
        assert_eq!((cursor, tell(fd)), (Cursor::Position, Ok(56)));
        // Past the end there is nothing to read.
        for (limit, rest) in [(70, Some(14)), (60, None)] {
            let before = tell(fd).unwrap();
            cursor.claim(fd, 30);
            rustix::fs::seek(&other, SeekFrom::Current(5)).unwrap();
            cursor.end_at(fd, limit);
            assert_eq!(cursor.claimed(), rest);
            let moved = tell(fd).unwrap() - before;
            assert_eq!(moved, rest.unwrap_or(0) + 5);
            cursor.unclaim(fd);
        }
        seek(fd, SeekFrom::Start(56)).unwrap();
        let mut far = Cursor::Position;
        far.claim(fd, u64::MAX);
        far.claim(fd, i64::MAX as u64);
        assert_eq!((far, tell(fd)), (Cursor::Position, Ok(56)));
    }

    /// Another process moves the position between the two calls that release a range.
    #[test]
    fn what_another_takes_meanwhile_is_not_given_back() {
        let file = tempfile::tempfile().unwrap();
        let (fd, mut other) = (file.as_fd(), file.try_clone().unwrap());
        let mut cursor = Cursor::Position;
        cursor.claim(fd, 50);
        let claimed = Cursor::Claimed { at: 0, end: 50 };
        assert_eq!(cursor, claimed);
        let mut calls = 0;
        let writes = || {
            calls += 1;
            if calls == 2 {
                std::io::Write::write_all(&mut other, b"theirs").unwrap();
            }
        };
        let Some(held) =
            testkit::midst::at_each(&[testkit::refuse::SEEK], || cursor.unclaim(fd), writes)
        else {
            return testkit::skip::here("no seccomp_unotify(2) here");
        };
        assert!(held > 1, "nothing came between");
        assert_eq!((cursor, tell(fd)), (claimed, Ok(56)));
    }
}
