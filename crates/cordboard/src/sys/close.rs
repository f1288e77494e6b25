//! `close(2)` of a descriptor that the host may have closed a moment before.

use std::os::fd::{IntoRawFd, OwnedFd};

use super::identity::{Identity, identity};
use crate::errno::Errno;

/// Closes a descriptor. `EBADF` is ignored: between the check of a number and this call,
/// another thread of the host may have closed all numbers. Dropping an [`OwnedFd`] aborts
/// the process then, in builds with debug assertions.
pub(crate) fn close(fd: OwnedFd) {
    let _ = close_and_report(fd);
}

/// As [`close`], and returns the error of the file system. Each close of a duplicate flushes
/// the file (`filp_flush`, fs/open.c). NFS, CIFS and FUSE may report only then that the server
/// had no space, and some of them report it once: `fuse_flush` (fs/fuse/file.c) and
/// `cifs_flush` (fs/smb/client/file.c) clear the error of the mapping.
///
/// # Errors
///
/// `EINTR`: the descriptor is closed, and it is unknown what the server has taken. The call
/// is not that of the C library, because musl hides `EINTR`.
pub(crate) fn close_and_report(fd: OwnedFd) -> Result<(), Errno> {
    // SAFETY: the number was owned, and nothing uses it any more.
    match unsafe { libc::syscall(libc::SYS_close, fd.into_raw_fd()) } {
        0 => Ok(()),
        _ => match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EBADF) | None => Ok(()),
            Some(errno) => Err(Errno::from_raw(errno)),
        },
    }
}

/// Closes a descriptor if its number still refers to this file. Otherwise the host has
/// closed it, and may have opened another file under its number.
///
/// Each descriptor is checked just before it is closed: the close of a pipe's end wakes
/// other threads, which may delay this one for milliseconds.
pub(crate) fn close_own(fd: OwnedFd, id: Identity) {
    match identity(&fd) == Some(id) {
        true => close(fd),
        false => std::mem::forget(fd),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_number_that_is_closed_already_is_no_failure() {
        assert!(testkit::child::in_a_child(|| {
            let file: OwnedFd = tempfile::tempfile().unwrap().into();
            // SAFETY: this process has no other thread, and `file` is not used as a file
            // any more.
            unsafe { libc::close(file.as_raw_fd()) };
            close(file);
            true
        }));
    }

    #[test]
    fn a_number_of_another_file_stays_open() {
        let (file, other) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let id = identity(&file).unwrap();
        let number = other.as_raw_fd();
        close_own(other.into(), id);
        assert!(crate::sys::at(number).is_some_and(|fd| identity(fd).is_some()));
        let number = file.as_raw_fd();
        close_own(file.into(), id);
        assert!(crate::sys::at(number).is_none_or(|fd| identity(fd) != Some(id)));
    }
}
