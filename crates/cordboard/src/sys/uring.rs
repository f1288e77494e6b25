//! Whether io_uring is to be had.

use std::os::fd::{FromRawFd, OwnedFd};

use super::last;
use crate::errno::Errno;

/// Sets up a ring of one entry and drops it. `io_uring_setup(2)`, since Linux
/// 5.1.
///
/// # Errors
///
/// `ENOSYS`: no such call. `EPERM`: `kernel.io_uring_disabled`, or a filter, as
/// most containers have. `ENOMEM`: `RLIMIT_MEMLOCK`, before Linux 5.12.
pub(crate) fn try_io_uring() -> Result<(), Errno> {
    // struct io_uring_params: 120 bytes, all zero but what the kernel fills in.
    let mut params = [0u32; 30];
    // SAFETY: the kernel reads and writes the 120 bytes that outlive the call.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1u32, params.as_mut_ptr()) };
    if fd < 0 {
        return Err(last());
    }
    // SAFETY: the call has just made it, and nobody else has it.
    drop(unsafe { OwnedFd::from_raw_fd(fd as i32) });
    Ok(())
}
