//! `close(2)` of a descriptor that the host may have closed a moment before.

use std::os::fd::{IntoRawFd, OwnedFd};

/// Closes a descriptor. `EBADF` is ignored: between the check of a number and this call,
/// another thread of the host may have closed all numbers. Dropping an [`OwnedFd`] aborts
/// the process then, in builds with debug assertions.
pub(crate) fn close(fd: OwnedFd) {
    // SAFETY: the number was owned, and nothing uses it any more.
    unsafe { libc::close(fd.into_raw_fd()) };
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
}
