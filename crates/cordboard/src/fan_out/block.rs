//! The bytes that each sink is to receive next.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::errno::Errno;

/// The next bytes for every sink.
pub(super) enum Block {
    /// So many bytes at the front of the first pipe.
    Pages(usize),
    /// Bytes that were read from the first channel, or a whole datagram.
    Bytes(Arc<[u8]>),
    /// The last sink has taken the pages.
    Taken,
}

impl Block {
    pub(super) fn len(&self) -> usize {
        match self {
            Block::Pages(length) => *length,
            Block::Bytes(bytes) => bytes.len(),
            Block::Taken => 0,
        }
    }

    /// Reads the pages into a buffer, if they are still in the pipe.
    ///
    /// # Errors
    ///
    /// That of a page that cannot be read.
    pub(super) fn load(&mut self, first: BorrowedFd<'_>) -> Result<Arc<[u8]>, Errno> {
        let bytes: Arc<[u8]> = match self {
            Block::Bytes(bytes) => return Ok(Arc::clone(bytes)),
            Block::Pages(length) => read_exactly(first, *length)?.into(),
            Block::Taken => Arc::new([]),
        };
        *self = Block::Bytes(Arc::clone(&bytes));
        Ok(bytes)
    }
}

/// Reads so many bytes, which are in the pipe.
pub(super) fn read_exactly(pipe: BorrowedFd<'_>, length: usize) -> Result<Vec<u8>, Errno> {
    let (mut bytes, mut done) = (vec![0; length], 0);
    while done < length {
        match rustix::io::read(pipe, &mut bytes[done..]) {
            Ok(0) => return Err(Errno::ENODATA),
            Ok(n) => done += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(bytes)
}
