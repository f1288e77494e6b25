//! The bytes that each sink is to receive next.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::compose::{Channel, Intake, read_exactly, receive};
use crate::errno::Errno;
use crate::sys::page_size;

/// The next bytes for every sink.
pub(super) enum Block {
    /// So many bytes at the front of the first pipe.
    Pages(usize),
    /// Bytes that were read from the first channel, or a whole datagram.
    Bytes(Arc<Vec<u8>>),
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
    /// That of a page that cannot be read, or `ENOMEM`.
    pub(super) fn load(&mut self, first: BorrowedFd<'_>) -> Result<Arc<Vec<u8>>, Errno> {
        let bytes = Arc::new(match self {
            Block::Bytes(bytes) => return Ok(Arc::clone(bytes)),
            Block::Pages(length) => read_exactly(first, *length)?,
            Block::Taken => Vec::new(),
        });
        *self = Block::Bytes(Arc::clone(&bytes));
        Ok(bytes)
    }
}

/// Returns the next block: a datagram, or all bytes that have arrived in the channel.
///
/// # Errors
///
/// A page of the source cannot be read.
pub(super) fn next(intake: &mut Intake<'_>, first: &Channel) -> Result<Option<Block>, Errno> {
    if first.keeps_messages() {
        let message = receive(first.reader())?;
        return Ok(message.map(|bytes| Block::Bytes(Arc::new(bytes))));
    }
    let length = intake.arrived();
    if length == 0 {
        return Ok(None);
    }
    let mut block = Block::Pages(length as usize);
    // Less than a page would use up a slot of each pipe; a write continues in the
    // pipe's last page.
    if (length as usize) < page_size() {
        block.load(first.reader())?;
    }
    Ok(Some(block))
}
