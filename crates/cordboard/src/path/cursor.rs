//! The position of a side.

use std::os::fd::BorrowedFd;

use crate::errno::Errno;

/// Where a side reads or writes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cursor {
    /// It has no positions.
    Stream,
    /// At the descriptor's own position, which moves along.
    Position,
    /// Here; the descriptor's own position stays.
    At(u64),
}

impl Cursor {
    /// For the offset argument of `splice(2)` and its like, which move it.
    pub(crate) fn offset(&mut self) -> Option<&mut u64> {
        match self {
            Cursor::At(offset) => Some(offset),
            Cursor::Stream | Cursor::Position => None,
        }
    }

    /// So many bytes on, for calls that do not move it themselves.
    pub(crate) fn advance(&mut self, bytes: u64) {
        if let Cursor::At(offset) = self {
            *offset += bytes;
        }
    }
}

pub(super) fn place_of(cursor: Cursor, fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    match cursor {
        Cursor::Stream => Err(Errno::ESPIPE),
        Cursor::Position => Ok(rustix::fs::tell(fd)?),
        Cursor::At(offset) => Ok(offset),
    }
}

pub(super) fn move_cursor(
    cursor: &mut Cursor,
    fd: BorrowedFd<'_>,
    bytes: i64,
) -> Result<(), Errno> {
    match cursor {
        Cursor::Stream => Err(Errno::ESPIPE),
        Cursor::Position => {
            rustix::fs::seek(fd, rustix::fs::SeekFrom::Current(bytes))?;
            Ok(())
        }
        Cursor::At(offset) => match offset.checked_add_signed(bytes) {
            Some(moved) => {
                *offset = moved;
                Ok(())
            }
            None => Err(Errno::EINVAL),
        },
    }
}
