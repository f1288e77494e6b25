//! A read that discards the bytes.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::again::again;
use super::last_errno::last_errno;
use crate::errno::Errno;

/// The size of the buffer, which each part of the bytes overwrites. It stays in the
/// processor's first-level cache, and is small enough for any stack.
const PIECE: usize = 4 << 10;
/// The maximum number of pieces of one call.
const MOST: usize = 257;

/// Reads up to `length` bytes by one `readv(2)`, at most 1028 KiB, and discards them.
pub(crate) fn discard(fd: BorrowedFd<'_>, length: usize) -> Result<usize, Errno> {
    let mut piece = [MaybeUninit::<u8>::uninit(); PIECE];
    let each = libc::iovec {
        iov_base: piece.as_mut_ptr().cast(),
        iov_len: PIECE,
    };
    let mut all = [each; MOST];
    let length = length.min(MOST * PIECE);
    let used = length.div_ceil(PIECE);
    if let Some(last) = used.checked_sub(1) {
        all[last].iov_len = length - last * PIECE;
    }
    // `EINTR` only: the bytes are in the pipe, so the call does not wait.
    Ok(again(|| {
        // SAFETY: each vector names the buffer, which lives until the call returns
        // and is not read; the kernel writes to it in turn.
        let done = unsafe { libc::readv(fd.as_raw_fd(), all.as_ptr(), used as libc::c_int) };
        usize::try_from(done).map_err(|_| rustix::io::Errno::from_raw_os_error(last_errno().raw()))
    })?)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn so_many_bytes_are_gone() {
        let _only = testkit::child::without_children();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        rustix::pipe::fcntl_setpipe_size(&writer, 1 << 20).unwrap();
        let there = rustix::pipe::fcntl_getpipe_size(&writer).unwrap();
        let lengths = [1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE];
        for length in lengths.into_iter().filter(|length| *length <= there) {
            rustix::io::write(&writer, &vec![7; length]).unwrap();
            assert_eq!(discard(reader.as_fd(), length - 1), Ok(length - 1));
            // No more than there is.
            assert_eq!(discard(reader.as_fd(), usize::MAX), Ok(1));
        }
        assert_eq!(discard(reader.as_fd(), 0), Ok(0));
        rustix::io::write(&writer, &vec![7; there]).unwrap();
        assert_eq!(discard(reader.as_fd(), there), Ok(there));
        drop(writer);
        assert_eq!(discard(reader.as_fd(), 1), Ok(0));
        let writing = std::fs::File::create("/dev/null").unwrap();
        assert_eq!(discard(writing.as_fd(), 1), Err(Errno::EBADF));
    }
}
