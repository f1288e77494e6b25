//! Reads and writes at an offset, even if a filter refuses the calls for it.

use std::io::IoSlice;
use std::os::fd::BorrowedFd;

use rustix::fs::{SeekFrom, seek, tell};
use rustix::io::{Errno, Result};

use crate::errno::Errno as Named;

/// The current position of a file in `preadv2(2)` and `pwritev2(2)`: an offset of -1. Pipes and
/// sockets have no other.
pub(crate) const HERE: u64 = u64::MAX;

/// `pread(2)`.
pub(crate) fn pread(fd: BorrowedFd<'_>, into: &mut [u8], offset: u64) -> Result<usize> {
    match rustix::io::pread(fd, &mut *into, offset) {
        Err(errno) if Named::from(errno).is_refusal() => {
            there(fd, offset, errno, || rustix::io::read(fd, &mut *into))
        }
        done => done,
    }
}

/// `pwrite(2)`.
pub(crate) fn pwrite(fd: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> Result<usize> {
    match rustix::io::pwrite(fd, bytes, offset) {
        Err(errno) if Named::from(errno).is_refusal() => {
            there(fd, offset, errno, || rustix::io::write(fd, bytes))
        }
        done => done,
    }
}

/// `pwritev(2)`.
pub(crate) fn pwritev(fd: BorrowedFd<'_>, parts: &[IoSlice<'_>], offset: u64) -> Result<usize> {
    match rustix::io::pwritev(fd, parts, offset) {
        Err(errno) if Named::from(errno).is_refusal() => {
            there(fd, offset, errno, || rustix::io::writev(fd, parts))
        }
        done => done,
    }
}

/// Makes the call at the file position instead, and restores the position. If
/// not a filter but the file has refused the call, returns the same errno.
/// Other users of the description see the position move meanwhile.
fn there(
    fd: BorrowedFd<'_>,
    offset: u64,
    refused: Errno,
    call: impl FnOnce() -> Result<usize>,
) -> Result<usize> {
    let here = tell(fd).map_err(|_| refused)?;
    seek(fd, SeekFrom::Start(offset)).map_err(|_| refused)?;
    let done = call();
    // The position was valid before.
    let _ = seek(fd, SeekFrom::Start(here));
    done
}

#[cfg(test)]
mod tests {
    use std::io::Seek;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use testkit::refuse::{apart, refuse};

    use super::*;

    #[test]
    fn the_position_comes_back() {
        let calls = [libc::SYS_pread64, libc::SYS_pwrite64, libc::SYS_pwritev];
        for errno in [libc::EPERM, libc::EACCES, libc::ENOSYS] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all_at(b"0123456789", 0).unwrap();
            file.seek(std::io::SeekFrom::Start(3)).unwrap();
            apart(|| {
                refuse(&calls, errno);
                let fd = file.as_fd();
                let mut two = [0; 2];
                assert_eq!(pread(fd, &mut two, 5), Ok(2));
                assert_eq!(&two, b"56");
                assert_eq!(pwrite(fd, b"ab", 1), Ok(2));
                assert_eq!(
                    pwritev(fd, &[IoSlice::new(b"c"), IoSlice::new(b"d")], 8),
                    Ok(2)
                );
                assert_eq!(tell(fd), Ok(3));
                let (pipe, _writer) = rustix::pipe::pipe().unwrap();
                let refused = pread(pipe.as_fd(), &mut two, 0).unwrap_err();
                assert!(Named::from(refused).is_refusal());
            });
            let mut all = [0; 10];
            file.read_exact_at(&mut all, 0).unwrap();
            assert_eq!(&all, b"0ab34567cd");
        }
    }
}
