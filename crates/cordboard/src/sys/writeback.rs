//! Writeback of dirty pages.

use std::os::fd::{AsRawFd, BorrowedFd};

use super::last_errno::last_errno;
use crate::errno::Errno;

/// Starts writing a range's dirty pages to the device and does not wait.
/// `sync_file_range(2)`, `SYNC_FILE_RANGE_WRITE`, since Linux 2.6.17.
pub(crate) fn start_writeback(fd: BorrowedFd<'_>, offset: u64, length: u64) -> Result<(), Errno> {
    let (Ok(offset), Ok(length)) = (i64::try_from(offset), i64::try_from(length)) else {
        return Err(Errno::EINVAL);
    };
    // SAFETY: takes integers only.
    let done = unsafe {
        libc::sync_file_range(fd.as_raw_fd(), offset, length, libc::SYNC_FILE_RANGE_WRITE)
    };
    if done == 0 { Ok(()) } else { Err(last_errno()) }
}

/// An offset behind the end of any file whose writeback [`writeback_error`] checks.
const NO_PAGES: libc::off64_t = 1 << 40;

/// Returns the error of a writeback of this file that has failed since the file was opened or the
/// last call. Does not wait: the kernel records the error before a page can leave the cache
/// (`mapping_set_error`, mm/filemap.c), so a page that was read before this call is right if
/// there is none. `sync_file_range(2)` returns the error of the whole file for any range
/// (`file_fdatawait_range`, mm/filemap.c).
///
/// # Errors
///
/// | errno | result | evidence |
/// |---|---|---|
/// | `ENOSYS`, `ESPIPE`, `EINVAL` | no such call: none | `sync_file_range(2)` |
/// | `EPERM`, `EACCES` | no such call: none | a filter; `sync_file_range(2)` gives neither |
/// | `EINTR`, `EAGAIN` | none | a server of FUSE may return them; no page is lost |
/// | anything else (`EIO`, `ENOSPC`, `EDQUOT`) | an error | |
pub(crate) fn writeback_error(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE;
    // SAFETY: takes integers only.
    let done = unsafe { libc::sync_file_range(fd.as_raw_fd(), NO_PAGES, 1, flags) };
    if done == 0 {
        return Ok(());
    }
    match last_errno() {
        Errno::ENOSYS | Errno::ESPIPE | Errno::EINVAL | Errno::EPERM | Errno::EACCES => Ok(()),
        Errno::EINTR | Errno::EAGAIN => Ok(()),
        errno => Err(errno),
    }
}
