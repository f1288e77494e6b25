//! Reads records one at a time.

use std::os::fd::BorrowedFd;

use cordboard::cue::{Record, Records, receive_at_once};
use cordboard::{Errno, Origin};
use rustix::event::PollFlags;

use crate::checked_fd::CheckedFd;
use crate::patience::Patience;

/// A control descriptor from which no byte behind the last record is read: the caller may
/// read the next one by itself.
pub(crate) struct RecordReader {
    socket: CheckedFd,
    records: Records,
    origin: Origin,
}

impl RecordReader {
    /// `origin`: that of the call, whose records these are.
    pub(crate) fn of(socket: CheckedFd, origin: Origin) -> RecordReader {
        RecordReader {
            socket,
            records: Records::default(),
            origin,
        }
    }

    /// Returns the descriptor, before each call on it.
    ///
    /// # Errors
    ///
    /// * EBADF: a signal handler has forked, and this is the child. The commands and the
    ///   records are those of the parent.
    /// * EPIPE: the program has closed it. Its number may refer to another file.
    pub(crate) fn fd(&self) -> Result<BorrowedFd<'_>, Errno> {
        let fd = self.socket.fd();
        // Last: a signal is delivered when a call of the query above returns.
        match self.origin.is_this_process() {
            true => fd.ok_or(Errno::EPIPE),
            false => Err(Errno::EBADF),
        }
    }

    /// Waits until the descriptor is ready for one of these events.
    ///
    /// # Errors
    ///
    /// As [`RecordReader::fd`]. The errno of a filter that refuses `poll(2)` and `select(2)`.
    pub(crate) fn wait_for(&self, events: PollFlags) -> Result<PollFlags, Errno> {
        let mut patience = Patience::default();
        loop {
            match patience.wait(self.fd()?, events)? {
                Some(ready) if !ready.is_empty() => return Ok(ready),
                _ => {}
            }
        }
    }

    /// Waits for a record, even if the descriptor has O_NONBLOCK.
    ///
    /// # Errors
    ///
    /// EPIPE: as [`RecordReader::fd`], or the service has ended. Otherwise as
    /// [`RecordReader::wait_for`] and recv(2).
    pub(crate) fn receive(&mut self) -> Result<Record, Errno> {
        loop {
            // The decoder skips records of a later version.
            if let Some(record) = self.records.next() {
                return Ok(record);
            }
            let mut bytes = vec![0; self.records.missing()];
            let fd = self.fd()?;
            // A recv(2) that waits would continue in a child of a signal handler (SA_RESTART).
            match receive_at_once(fd, &mut bytes) {
                // ECONNRESET: the service has ended with commands unread.
                Ok(0) | Err(Errno::ECONNRESET) => return Err(Errno::EPIPE),
                Ok(n) => self.records.push(&bytes[..n]),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => drop(self.wait_for(PollFlags::IN)?),
                Err(errno) => return Err(errno),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::{AsFd, AsRawFd};
    use std::os::unix::net::UnixStream;

    use cordboard::duplicate;
    use testkit::child;

    use super::*;

    /// The program closes all descriptors while a call waits, and opens its own.
    #[test]
    fn a_number_that_the_program_has_reused_is_left_alone() {
        assert!(child::in_a_child(|| {
            child::ends_soon();
            let (socket, _service) = UnixStream::pair().unwrap();
            let kept = CheckedFd::of_program(duplicate(socket.as_fd()).unwrap());
            let mut reader = RecordReader::of(kept, Origin::here());
            let number = reader.fd().unwrap().as_raw_fd();
            let (mut feed, theirs) = UnixStream::pair().unwrap();
            feed.write_all(&[7; 64]).unwrap();
            child::replace(crate::sys::lend(number).unwrap(), theirs.as_fd());
            let received = reader.receive();
            drop(reader);
            let mut left = [0; 64];
            received == Err(Errno::EPIPE)
                && child::inode(number) == child::inode(theirs.as_raw_fd())
                && (&theirs).read_exact(&mut left).is_ok()
        }));
    }
}
