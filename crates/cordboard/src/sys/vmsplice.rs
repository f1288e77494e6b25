//! A read of a pipe that leaves the rest of a packet where it is.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::OFlags;

use super::last;
use crate::errno::Errno;

/// Takes up to so many bytes out of a pipe, 0 at its end, and never waits. Unlike
/// `read(2)` it goes past the end of a packet, and drops nothing of the one that it
/// ends in (`vmsplice_to_user`, fs/splice.c, since Linux 2.6.23). 0 also before a
/// page that is gone (`ENODATA` in `splice_from_pipe_feed`).
///
/// # Errors
///
/// `EAGAIN`: the pipe is empty. `EBADF`: this is not a pipe, or the descriptor is
/// not open for reading alone: into one that is open for writing too, `vmsplice(2)`
/// would write. Any other errno: of a page, or a filter refuses the call.
pub(crate) fn read_across(fd: BorrowedFd<'_>, into: &mut [u8]) -> Result<usize, Errno> {
    if rustix::fs::fcntl_getfl(fd)? & OFlags::RWMODE != OFlags::RDONLY {
        return Err(Errno::EBADF);
    }
    let room = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    // SAFETY: the one vector names `into`, which nobody else has during the call,
    // and which the kernel writes to.
    let done = unsafe { libc::vmsplice(fd.as_raw_fd(), &room, 1, libc::SPLICE_F_NONBLOCK) };
    usize::try_from(done).map_err(|_| last())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    #[test]
    fn a_packet_is_taken_in_parts() {
        if testkit::needs::missing("a_packet", &[testkit::needs::Need::Vmsplice]) {
            return;
        }
        let (reader, writer) = pipe_with(PipeFlags::DIRECT).unwrap();
        for byte in 1..=3 {
            rustix::io::write(&writer, &[byte; 1000]).unwrap();
        }
        let mut into = [0; 2500];
        assert_eq!(read_across(reader.as_fd(), &mut into[..300]), Ok(300));
        assert_eq!(read_across(reader.as_fd(), &mut into[300..]), Ok(2200));
        let expected: Vec<u8> = (1..=3).flat_map(|byte| [byte; 1000]).collect();
        assert!(into[..] == expected[..2500]);
        assert_eq!(read_across(reader.as_fd(), &mut into), Ok(500));
        assert!(into[..500] == expected[2500..]);
        let none = read_across(reader.as_fd(), &mut into);
        assert_eq!(none, Err(Errno::EAGAIN));
        drop(writer);
        assert_eq!(read_across(reader.as_fd(), &mut into), Ok(0));
        let file = tempfile::tempfile().unwrap();
        assert_eq!(read_across(file.as_fd(), &mut into), Err(Errno::EBADF));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(read_across(file.as_fd(), &mut into), Err(Errno::EBADF));
    }

    /// Nothing is written into a pipe by a descriptor that is open for both.
    #[test]
    fn one_that_can_be_written_to_is_not_read() {
        let (reader, _writer) = testkit::obstacle::fifo().unwrap();
        let both = crate::endpoint::reopen(reader.as_fd(), OFlags::RDWR).unwrap();
        let done = read_across(both.as_fd(), &mut [7; 10]);
        assert_eq!(done, Err(Errno::EBADF));
        assert_eq!(crate::sys::unsent(reader.as_fd()), Ok(0));
    }
}
