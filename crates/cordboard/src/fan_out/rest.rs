//! The part of a block that a sink had no room for. A sink that has one is not
//! ready for the next block.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, Stat, major, minor, open, stat};
use rustix::pipe::{SpliceFlags, splice, tee};

use super::block::Block;
use crate::compose::read_exactly;
use crate::errno::Errno;
use crate::pipe::{self, Channel as _, OwnedPipe};
use crate::sys::{self, again, beyond};

/// The part of a block that is still to be written.
pub(super) enum Rest {
    None,
    /// All that a private pipe holds.
    Pages(OwnedPipe),
    /// The bytes from this index on.
    Bytes(Arc<Vec<u8>>, usize),
}

impl Rest {
    pub(super) fn is_none(&self) -> bool {
        matches!(self, Rest::None)
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Rest::None => 0,
            Rest::Pages(pipe) => pipe.held() as usize,
            Rest::Bytes(bytes, from) => bytes.len() - from,
        }
    }

    /// Takes the rest of a block whose first `done` bytes the sink has accepted.
    /// `moved`: those have left the first pipe. Consumes the block in that case.
    ///
    /// # Errors
    ///
    /// That of a page that cannot be read.
    pub(super) fn of(
        block: &mut Block,
        first: BorrowedFd<'_>,
        done: usize,
        moved: bool,
    ) -> Result<Rest, Errno> {
        let Block::Pages(length) = *block else {
            return Ok(Rest::Bytes(block.load(first)?, done));
        };
        if moved {
            *block = Block::Taken;
            return moved_rest(first, length - done);
        }
        match teed_rest(first, length, done) {
            Some(pipe) => Ok(Rest::Pages(pipe)),
            None => Ok(Rest::Bytes(block.load(first)?, done)),
        }
    }

    /// Reads the rest into a buffer.
    ///
    /// # Errors
    ///
    /// That of a page that cannot be read.
    pub(super) fn load(&mut self) -> Result<(), Errno> {
        if let Rest::Pages(pipe) = self {
            let bytes = read_exactly(pipe.reader(), pipe.held() as usize)?;
            *self = Rest::Bytes(Arc::new(bytes), 0);
        }
        Ok(())
    }
}

/// Moves the rest of the first pipe's content into a private pipe.
fn moved_rest(first: BorrowedFd<'_>, length: usize) -> Result<Rest, Errno> {
    let mut before = Vec::new();
    if let Ok(mut pipe) = pipe::acquire(pipe::LARGEST) {
        while (pipe.held() as usize) < length {
            let left = length - pipe.held() as usize;
            let into = pipe.writer();
            match again(|| splice(first, None, into, None, left, SpliceFlags::NONBLOCK)) {
                Ok(n @ 1..) => pipe.filled(n),
                // The pipe has fewer slots than the first one, or a filter refuses the
                // call.
                Ok(_) | Err(_) => break,
            }
        }
        if pipe.held() as usize == length {
            return Ok(Rest::Pages(pipe));
        }
        before = read_exactly(pipe.reader(), pipe.held() as usize)?;
    }
    let more = length - before.len();
    before.try_reserve_exact(more).map_err(|_| Errno::ENOMEM)?;
    before.extend(read_exactly(first, length - before.len())?);
    Ok(Rest::Bytes(Arc::new(before), 0))
}

/// Duplicates the whole block into a private pipe, which is empty, and removes its
/// first `done` bytes: `tee(2)` begins at the front of a pipe. `None`: no pipe with
/// as many slots is available.
fn teed_rest(first: BorrowedFd<'_>, length: usize, done: usize) -> Option<OwnedPipe> {
    let mut pipe = pipe::acquire(pipe::LARGEST).ok()?;
    let n = again(|| tee(first, pipe.writer(), length, SpliceFlags::NONBLOCK)).ok()?;
    pipe.filled(n);
    if n < length {
        return None;
    }
    let mut left = done;
    let null = null();
    while left > 0 {
        let gone = match &null {
            // The pages are dropped unread (`splice_write_null`, drivers/char/mem.c).
            Some(null) => again(|| {
                splice(
                    pipe.reader(),
                    None,
                    null.as_fd(),
                    None,
                    left,
                    SpliceFlags::NONBLOCK,
                )
            })
            .map_err(Errno::from),
            None => sys::discard(pipe.reader(), left),
        };
        let gone = match gone {
            Ok(gone @ 1..) => gone,
            Ok(_) | Err(_) => sys::discard(pipe.reader(), left).ok().filter(|n| *n > 0)?,
        };
        pipe.drained(gone);
        left -= gone;
    }
    Some(pipe)
}

/// Opens `/dev/null`. `None` if that is another file, as in a `chroot` without devices: the
/// bytes would be written there, or the open could wait for the reader of a FIFO.
fn null() -> Option<OwnedFd> {
    null_at("/dev/null")
}

fn null_at(path: &str) -> Option<OwnedFd> {
    // Checked before it is opened: an open of another device may have effects.
    stat(path).ok().filter(is_null)?;
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = open(path, flags, Mode::empty()).ok()?;
    let is_still = sys::fstat(&opened).is_ok_and(|stat| is_null(&stat));
    beyond(opened).ok().filter(|_| is_still)
}

/// The character device 1:3 (Documentation/admin-guide/devices.txt).
fn is_null(stat: &Stat) -> bool {
    let number = (major(stat.st_rdev), minor(stat.st_rdev));
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && number == (1, 3)
}

/// Discards the block's pages, which the sinks have or do not get.
///
/// # Errors
///
/// That of a page that cannot be read.
pub(super) fn discard(first: BorrowedFd<'_>, mut length: usize) -> Result<(), Errno> {
    let null = null();
    while length > 0 {
        let by_splice = null.as_ref().and_then(|null| {
            again(|| {
                splice(
                    first,
                    None,
                    null.as_fd(),
                    None,
                    length,
                    SpliceFlags::NONBLOCK,
                )
            })
            .ok()
        });
        match by_splice {
            Some(n @ 1..) => length -= n,
            _ => match sys::discard(first, length)? {
                0 => return Err(Errno::ENODATA),
                n => length -= n,
            },
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    /// In a container without devices, root may have redirected output to the name.
    #[test]
    fn only_the_null_device_is_opened() {
        let directory = tempfile::tempdir().unwrap();
        let (file, fifo) = (directory.path().join("null"), directory.path().join("fifo"));
        std::fs::write(&file, b"").unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, Mode::RWXU).unwrap();
        for other in [&*file, &fifo, directory.path(), "/dev/zero".as_ref()] {
            assert!(null_at(other.to_str().unwrap()).is_none(), "{other:?}");
        }
        if let Some(null) = null() {
            assert!(null.as_raw_fd() > 2);
        }
    }
}
