//! Status flags, including FASYNC on files that do not keep it on Linux.

use std::ffi::c_int;

use crate::guard::guard;
use crate::{fasync, sys};

/// cord_set_flags - fcntl(fd, F_SETFL, flags) that keeps FASYNC on every file
///
/// Linux ignores O_ASYNC on regular files, without an error. This call records
/// the flag, so that cord_splice is asynchronous from and to such a file too.
/// (For such a file the call sets F_SETSIG to SIGIO if it was 0; F_SETSIG with
/// 0 clears the flag.) While an asynchronous cord_splice uses the descriptor,
/// FASYNC in `flags` takes effect at the end of the transfer.
///
/// # Returns
///
/// 0, or -1 and errno.
///
/// # Errors
///
/// Those of fcntl(2): EBADF, EINVAL, EPERM.
#[unsafe(no_mangle)]
pub extern "C" fn cord_set_flags(fd: c_int, flags: c_int) -> c_int {
    guard(-1, || {
        fasync::set_flags(sys::lend(fd)?, flags)?;
        Ok(0)
    })
}

/// cord_get_flags - fcntl(fd, F_GETFL) with FASYNC as cord_splice sees it
///
/// # Returns
///
/// The flags, or -1 and errno.
///
/// # Errors
///
/// * EBADF: `fd` is not an open descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn cord_get_flags(fd: c_int) -> c_int {
    guard(-1, || Ok(fasync::flags(sys::lend(fd)?)?))
}
