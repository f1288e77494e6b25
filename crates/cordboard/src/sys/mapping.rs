//! A test whether a file can be mapped.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use super::last_errno::last_errno;
use super::limit::page_size;
use crate::errno::Errno;

/// Maps a file's first page shared, and unmaps it; returns the result of
/// `mmap(2)`. Reads no byte.
pub(crate) fn map_shared(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let (length, fd) = (page_size(), fd.as_raw_fd());
    let flags = (libc::PROT_READ, libc::MAP_SHARED);
    // SAFETY: a new mapping, where the kernel has room for one.
    let page = unsafe { libc::mmap(ptr::null_mut(), length, flags.0, flags.1, fd, 0) };
    if page == libc::MAP_FAILED {
        return Err(last_errno());
    }
    // SAFETY: the mapping is ours, and no pointer into it exists.
    unsafe { libc::munmap(page, length) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn what_can_be_mapped_and_what_cannot() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(map_shared(file.as_fd()), Ok(()));
        let (reader, _writer) = std::io::pipe().unwrap();
        assert_eq!(map_shared(reader.as_fd()), Err(Errno::ENODEV));
    }
}
