//! Block sharing between files.

use std::os::fd::{AsRawFd, BorrowedFd};

use super::last_errno::last_errno;
use crate::errno::Errno;

/// `FICLONE`: replaces the content of `sink` by that of `source`. Since Linux 4.5
/// (`ioctl_ficlone(2)`).
pub(crate) fn clone_file(source: BorrowedFd<'_>, sink: BorrowedFd<'_>) -> Result<(), Errno> {
    Ok(rustix::fs::ioctl_ficlone(sink, source)?)
}

/// `FICLONERANGE`: replaces bytes of `sink` at offset `to` by `length` bytes (0: up to
/// the end) of `source` at offset `from`. Since Linux 4.5 (`ioctl_ficlonerange(2)`).
pub(crate) fn clone_range(
    source: BorrowedFd<'_>,
    from: u64,
    length: u64,
    sink: BorrowedFd<'_>,
    to: u64,
) -> Result<(), Errno> {
    let range = libc::file_clone_range {
        src_fd: i64::from(source.as_raw_fd()),
        src_offset: from,
        src_length: length,
        dest_offset: to,
    };
    // SAFETY: FICLONERANGE reads one struct file_clone_range, which outlives the call.
    match unsafe { libc::ioctl(sink.as_raw_fd(), libc::FICLONERANGE, &raw const range) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}
