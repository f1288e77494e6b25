//! Facts that direct I/O depends on: the alignment, and the content of the page
//! cache.

use std::os::fd::BorrowedFd;

use super::facts::{Alignment, Facts};
use crate::errno::Errno;
use crate::sys;

/// Returns the alignment of `STATX_DIOALIGN` (since Linux 6.1); 4096, a multiple of
/// the usual logical block sizes, if the kernel does not report one. `None` if the
/// file does not support direct I/O.
pub(crate) fn direct_alignment(fd: BorrowedFd<'_>) -> Option<Alignment> {
    match sys::direct_alignment(fd) {
        Ok(Some((memory, offset))) => Some(Alignment { memory, offset }),
        Ok(None) => None,
        Err(_) => Some(Alignment {
            memory: 4096,
            offset: 4096,
        }),
    }
}

/// Returns the percentage of a range's pages that are in the page cache, rounded up.
pub(super) fn cached_percent(fd: BorrowedFd<'_>, start: u64, length: u64) -> Result<u8, Errno> {
    let cached = sys::cached_pages(fd, start, length)?;
    // For a length of 0, cachestat(2) counts the whole file.
    let pages = length.div_ceil(sys::page_size() as u64).max(1);
    Ok((cached * 100).div_ceil(pages).min(100) as u8)
}

/// Returns the share of a file's pages that are in the page cache, 0 to 1.
pub(super) fn cached_share(fd: BorrowedFd<'_>, facts: &Facts) -> Option<f64> {
    let size = facts.size.filter(|size| *size > 0)?;
    let cached = sys::cached_pages(fd, 0, size).ok()?;
    let pages = size.div_ceil(sys::page_size() as u64);
    Some((cached as f64 / pages as f64).min(1.0))
}
