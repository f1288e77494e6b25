//! A read of a pipe that leaves the rest of a packet in it.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use rustix::fs::OFlags;

use super::again::again;
use super::last_errno::last_errno;
use super::limit::page_size;
use super::socket::unsent;
use crate::errno::Errno;

/// Reads up to `into.len()` bytes of a pipe, 0 at its end, and never waits. Unlike
/// `read(2)`, it continues past the end of a packet, and drops nothing of a packet that
/// it reads in part (`vmsplice_to_user`, fs/splice.c, since Linux 2.6.23). Returns 0
/// also if the next page is no longer valid (`ENODATA` in `splice_from_pipe_feed`).
///
/// # Errors
///
/// `EAGAIN`: the pipe is empty. `EBADF`: this is not a pipe, or the descriptor is not
/// open for reading only: `vmsplice(2)` writes to a descriptor that is open for writing
/// too. Any other errno: that of a page, or of a filter that refuses the call.
pub(crate) fn read_across(fd: BorrowedFd<'_>, into: &mut [u8]) -> Result<usize, Errno> {
    if rustix::fs::fcntl_getfl(fd)? & OFlags::RWMODE != OFlags::RDONLY {
        return Err(Errno::EBADF);
    }
    // SAFETY: `into` is borrowed for the call alone.
    Ok(unsafe { take(fd, into.as_mut_ptr().cast(), into.len()) }?)
}

/// Whether a pipe is empty and has no writer. The query is a read into inaccessible
/// memory, which takes no bytes. Unlike `poll(2)`, it detects the end of a FIFO that
/// was opened before it had a writer, but it takes the pipe's lock. `None`: a filter
/// refuses the query.
pub(crate) fn is_over(fd: BorrowedFd<'_>) -> Option<bool> {
    match rustix::fs::fcntl_getfl(fd) {
        Ok(flags) if flags & OFlags::RWMODE == OFlags::RDONLY => {}
        // The descriptor itself is a writer.
        Ok(_) => return Some(false),
        Err(_) => return None,
    }
    let length = page_size();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, where the kernel has room for one.
    let none = unsafe { libc::mmap(ptr::null_mut(), length, libc::PROT_NONE, flags, -1, 0) };
    if none == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the kernel may not write there either, and returns an error.
    let done = again(|| unsafe { take(fd, none, 1) });
    // SAFETY: the mapping is ours, and no pointer into it is left.
    unsafe { libc::munmap(none, length) };
    match done.map_err(Errno::from) {
        // The pipe has ended, or the next page is no longer valid.
        Ok(0) => unsent(fd).ok().map(|there| there == 0),
        Ok(_) | Err(Errno::EAGAIN | Errno::EFAULT | Errno::EIO) => Some(false),
        Err(_) => None,
    }
}

/// Reads bytes of a pipe to this address.
///
/// # Safety
///
/// The memory is valid for writes, or inaccessible to the kernel too.
unsafe fn take(
    fd: BorrowedFd<'_>,
    to: *mut libc::c_void,
    length: usize,
) -> rustix::io::Result<usize> {
    let room = libc::iovec {
        iov_base: to,
        iov_len: length,
    };
    // SAFETY: the one vector is the range that the caller vouches for.
    let done = unsafe { libc::vmsplice(fd.as_raw_fd(), &room, 1, libc::SPLICE_F_NONBLOCK) };
    usize::try_from(done).map_err(|_| rustix::io::Errno::from_raw_os_error(last_errno().raw()))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    #[test]
    fn a_packet_is_taken_in_parts() {
        let _only = testkit::child::without_children();
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

    #[test]
    fn an_end_is_told_of_and_nothing_is_taken() {
        let _only = testkit::child::without_children();
        if testkit::needs::missing("an_end", &[testkit::needs::Need::Vmsplice]) {
            return;
        }
        for (reader, writer) in [
            testkit::obstacle::fifo().unwrap(),
            rustix::pipe::pipe().unwrap(),
            pipe_with(PipeFlags::DIRECT).unwrap(),
        ] {
            assert_eq!(is_over(reader.as_fd()), Some(false));
            rustix::io::write(&writer, b"some").unwrap();
            assert_eq!(is_over(reader.as_fd()), Some(false));
            drop(writer);
            assert_eq!(is_over(reader.as_fd()), Some(false));
            assert_eq!(rustix::io::read(&reader, &mut [0; 9]), Ok(4));
            assert_eq!(is_over(reader.as_fd()), Some(true));
        }
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(is_over(file.as_fd()), None);
        refused();
    }

    fn refused() {
        testkit::refuse::apart(|| {
            let (reader, _writer) = rustix::pipe::pipe().unwrap();
            testkit::refuse::refuse(&[libc::SYS_vmsplice], libc::ENOSYS);
            assert_eq!(is_over(reader.as_fd()), None);
        });
    }

    /// Nothing is written to a pipe through a descriptor that is open for reading and
    /// writing.
    #[test]
    fn one_that_can_be_written_to_is_not_read() {
        let (reader, _writer) = testkit::obstacle::fifo().unwrap();
        let both = crate::endpoint::reopen(reader.as_fd(), OFlags::RDWR).unwrap();
        let done = read_across(both.as_fd(), &mut [7; 10]);
        assert_eq!(done, Err(Errno::EBADF));
        assert_eq!(is_over(both.as_fd()), Some(false));
        assert_eq!(crate::sys::unsent(reader.as_fd()), Ok(0));
    }
}
