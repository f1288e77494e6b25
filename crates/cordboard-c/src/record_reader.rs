//! Reads records one at a time.

use std::os::fd::{AsFd, BorrowedFd};

use cordboard::cue::{Record, Records, receive_into};
use cordboard::{Errno, poll_or_select};
use rustix::event::{PollFd, PollFlags};

use crate::checked_fd::CheckedFd;

/// A control descriptor from which no byte behind the last record is read: the caller may
/// read the next one by itself.
pub(crate) struct RecordReader {
    socket: CheckedFd,
    records: Records,
}

impl RecordReader {
    pub(crate) fn of(socket: CheckedFd) -> RecordReader {
        RecordReader {
            socket,
            records: Records::default(),
        }
    }

    /// Returns the descriptor.
    ///
    /// # Errors
    ///
    /// EPIPE: the program has closed it. Its number may refer to another file.
    pub(crate) fn fd(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.socket.fd().ok_or(Errno::EPIPE)
    }

    /// Waits for a record, even if the descriptor has O_NONBLOCK.
    ///
    /// # Errors
    ///
    /// EPIPE: as [`RecordReader::fd`], or the service has ended. Otherwise as recv(2).
    pub(crate) fn receive(&mut self) -> Result<Record, Errno> {
        loop {
            // The decoder skips records of a later version.
            if let Some(record) = self.records.next() {
                return Ok(record);
            }
            let mut bytes = vec![0; self.records.missing()];
            let fd = self.fd()?;
            match receive_into(fd, &mut bytes) {
                // ECONNRESET: the service has ended with commands unread.
                Ok(0) | Err(Errno::ECONNRESET) => return Err(Errno::EPIPE),
                Ok(n) => self.records.push(&bytes[..n]),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => drop(wait_for(fd, PollFlags::IN)?),
                Err(errno) => return Err(errno),
            }
        }
    }
}

pub(crate) fn wait_for(fd: impl AsFd, events: PollFlags) -> Result<PollFlags, Errno> {
    let fd = fd.as_fd();
    let mut fds = [PollFd::from_borrowed_fd(fd, events)];
    match poll_or_select(&mut fds, None) {
        Ok(_) => Ok(fds[0].revents()),
        Err(rustix::io::Errno::INTR) => Ok(PollFlags::empty()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use cordboard::duplicate;
    use testkit::child;
    use testkit::refuse::{POLL, PPOLL, SELECT, apart, refuse};

    use super::*;

    /// The program closes all descriptors while a call waits, and opens its own.
    #[test]
    fn a_number_that_the_program_has_reused_is_left_alone() {
        assert!(child::in_a_child(|| {
            child::ends_soon();
            let (socket, _service) = UnixStream::pair().unwrap();
            let kept = CheckedFd::of_program(duplicate(socket.as_fd()).unwrap());
            let mut reader = RecordReader::of(kept);
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

    #[test]
    fn a_descriptor_is_waited_for_by_the_next_call() {
        let (socket, _other) = UnixStream::pair().unwrap();
        for errno in [libc::EPERM, libc::ENOSYS, libc::EINVAL] {
            let wait = |calls: &[&[libc::c_long]]| {
                apart(|| {
                    refuse(&calls.concat(), errno);
                    wait_for(&socket, PollFlags::OUT)
                })
            };
            for calls in [&[PPOLL][..], &[PPOLL, POLL]] {
                assert_eq!(wait(calls), Ok(PollFlags::OUT), "{errno}");
            }
            assert_eq!(wait(&[PPOLL, POLL, SELECT]), Err(Errno::from_raw(errno)));
        }
    }
}
