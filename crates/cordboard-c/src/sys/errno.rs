//! The results of system calls, and the caller's errno.

use cordboard::Errno;

/// Returns the errno of the call that just failed.
pub(super) fn last() -> Errno {
    Errno::from_raw(
        std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO),
    )
}

/// Returns the result of a call, or its errno.
pub(super) fn result(returned: libc::c_int) -> Result<libc::c_int, Errno> {
    match returned {
        -1 => Err(last()),
        value => Ok(value),
    }
}

/// Sets the `errno` that the caller reads.
pub(crate) fn set_errno(errno: Errno) {
    // SAFETY: always the address of this thread's errno.
    let address = unsafe { libc::__errno_location() };
    // SAFETY: valid for writing.
    unsafe { address.write(errno.raw()) };
}
