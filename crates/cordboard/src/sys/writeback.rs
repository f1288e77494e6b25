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
