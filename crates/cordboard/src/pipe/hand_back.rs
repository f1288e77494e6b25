//! Bytes that were read and not written, returned to the caller in a pipe.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::buffer::spare_capacity;

use super::capacity::{LARGEST, default_capacity};
use super::channel::Channel;
use super::enlarged::{Enlarged, shrink};
use super::owned::OwnedPipe;
use super::pool::{acquire, acquire_pair, release_pair};
use super::state::has_no_writer;
use crate::errno::Errno;

impl OwnedPipe {
    /// Returns a pipe that holds all of these bytes; `None` if no pipe can.
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

    /// Moves the content of another pipe into this one, as far as there is room. If a
    /// socket pair is available, the bytes become a stream, without packet flags. Returns
    /// the bytes for which there is no room, up to the first that cannot be read.
    #[must_use]
    pub(crate) fn append(&mut self, mut other: OwnedPipe) -> Vec<u8> {
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
                // No memory is available, or the next page cannot be read: a splice
                // from pipe to pipe moves that page nevertheless.
                _ if other.held() > 0 && pair.as_ref().is_some_and(|pair| pair.held() == 0) => {
                    if let Some(refusing) = pair.take() {
                        release_pair(refusing);
                    }
                }
                _ => break,
            }
        }
        let mut rest = Vec::new();
        let mut is_whole = true;
        if let Some(mut pair) = pair {
            is_whole = read_out(&mut pair, &mut rest).is_ok();
            release_pair(pair);
        }
        if is_whole {
            let _ = read_out(&mut other, &mut rest);
        }
        rest
    }

    fn take_over(&mut self, other: &mut OwnedPipe) -> Result<usize, Errno> {
        use rustix::pipe::{SpliceFlags, splice};
        let (rest, flags) = (other.held() as usize, SpliceFlags::NONBLOCK);
        let n = splice(other.reader(), None, self.writer(), None, rest, flags)?;
        other.drained(n);
        self.filled(n);
        Ok(n)
    }

    /// Closes the write end and returns the read end for the caller: the end of file
    /// follows the last byte. Shrinks the pipe as far as possible; it counts against
    /// the budget while it is larger than the default.
    pub(crate) fn into_reader(mut self) -> OwnedFd {
        let fd = self.writer.as_fd();
        shrink(fd, &mut self.capacity, default_capacity(), &mut self.share);
        drop(self.writer);
        if !has_no_writer(&self.reader)
            && let Some(copy) = copied(&self.reader, self.held, self.capacity)
        {
            return copy.into_reader();
        }
        let large = Enlarged {
            id: self.id.unwrap_or_default(),
            number: self.reader.as_raw_fd(),
            before: default_capacity(),
            now: self.capacity,
            share: self.share,
        };
        large.leave();
        self.reader
    }
}

/// Reads the content of a channel, up to the first byte that cannot be read.
///
/// # Errors
///
/// `ENOMEM`: nothing was read. Any other: that of a page that cannot be read.
pub(crate) fn read_out(channel: &mut impl Channel, into: &mut Vec<u8>) -> Result<(), Errno> {
    let held = usize::try_from(channel.held()).map_err(|_| Errno::ENOMEM)?;
    into.try_reserve_exact(held).map_err(|_| Errno::ENOMEM)?;
    while channel.held() > 0 {
        match rustix::io::read(channel.reader(), spare_capacity(into)) {
            Ok(0) => return Err(Errno::EIO),
            Ok(n) => channel.drained(n),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Duplicates all of these bytes into a new pipe, whose write end no child has.
/// `None`: no pipe that can hold them is available.
fn copied(reader: &OwnedFd, bytes: u64, capacity: usize) -> Option<OwnedPipe> {
    use rustix::pipe::{SpliceFlags, tee};
    let bytes = usize::try_from(bytes).ok()?;
    let mut copy = acquire(capacity).ok()?;
    match tee(reader, copy.writer(), bytes, SpliceFlags::NONBLOCK) {
        Ok(n) if n == bytes => {
            copy.filled(n);
            Some(copy)
        }
        // Closes the copy and its partial content.
        _ => None,
    }
}
