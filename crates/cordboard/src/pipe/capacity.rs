//! The capacity of pipes.

use std::os::fd::BorrowedFd;

use crate::sys::{Known, number, page_size};

/// The size of the largest private pipe, in bytes: the fastest size for sockets,
/// and the default maximum of an unprivileged process (`fs.pipe-max-size`).
pub(crate) const LARGEST: usize = 1 << 20;

/// Returns the capacity of a new pipe in bytes: 16 pages (`PIPE_DEF_BUFFERS`,
/// include/linux/pipe_fs_i.h).
pub(crate) fn default_capacity() -> usize {
    16 * page_size()
}

/// Returns a pipe's capacity in bytes; 0 if it is unknown. `fcntl(2)`,
/// `F_GETPIPE_SZ`.
pub(crate) fn capacity(fd: BorrowedFd<'_>) -> usize {
    rustix::pipe::fcntl_getpipe_size(fd).unwrap_or(0)
}

/// Returns the largest capacity that an unprivileged process may set, in bytes
/// (`fs.pipe-max-size`).
pub(super) fn max_capacity() -> usize {
    static MAX: Known = Known::not_yet();
    MAX.get(|| {
        let told = number("/proc/sys/fs/pipe-max-size").unwrap_or(LARGEST);
        // No pipe has less, whatever the file contains (`round_pipe_size`,
        // fs/pipe.c).
        told.max(page_size())
    })
}
