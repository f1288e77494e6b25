//! Reads records one at a time.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cordboard::cue::{Record, Records};
use cordboard::{Errno, poll_or_select};
use rustix::event::{PollFd, PollFlags};
use rustix::net::{RecvFlags, recv};

/// A control descriptor from which no byte behind the last record is read: the caller may
/// read the next one by itself.
pub(crate) struct RecordReader {
    socket: OwnedFd,
    records: Records,
}

impl RecordReader {
    pub(crate) fn of(socket: OwnedFd) -> RecordReader {
        RecordReader {
            socket,
            records: Records::default(),
        }
    }

    /// Waits for a record, even if the descriptor has O_NONBLOCK.
    ///
    /// # Errors
    ///
    /// EPIPE: the service has ended. Otherwise as recv(2).
    pub(crate) fn receive(&mut self) -> Result<Record, Errno> {
        loop {
            // The decoder skips records of a later version.
            if let Some(record) = self.records.next() {
                return Ok(record);
            }
            let mut bytes = vec![0; self.records.missing()];
            match recv(&self.socket, &mut bytes[..], RecvFlags::empty()) {
                // ECONNRESET: the service has ended with commands unread.
                Ok((_, 0)) | Err(rustix::io::Errno::CONNRESET) => return Err(Errno::EPIPE),
                Ok((_, n)) => self.records.push(&bytes[..n]),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => drop(wait_for(&self.socket, PollFlags::IN)?),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl AsFd for RecordReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
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
    use std::os::unix::net::UnixStream;

    use testkit::refuse::{POLL, PPOLL, SELECT, apart, refuse};

    use super::*;

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
