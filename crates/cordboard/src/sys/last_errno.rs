//! The calling thread's `errno(3)`.

use crate::errno::Errno;

/// Returns the errno of the system call that has just failed.
pub(super) fn last_errno() -> Errno {
    Errno::from_raw(
        std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO),
    )
}
