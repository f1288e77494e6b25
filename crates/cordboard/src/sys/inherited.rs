//! Descriptors that a child of `fork(2)` inherits from its parent.

use std::os::fd::RawFd;

use rustix::io::FdFlags;

use super::identity::{Identity, identity};
use super::lend::at;

/// Closes an inherited close-on-exec descriptor, if its number still refers to
/// the same file. `dup2(2)` would have cleared the flag.
///
/// Public for the C library only; not part of the interface.
pub fn close_inherited_fd(number: RawFd, id: Identity) {
    let Some(fd) = at(number) else { return };
    let flags = rustix::io::fcntl_getfd(fd);
    if identity(fd) == Some(id) && flags.is_ok_and(|flags| flags.contains(FdFlags::CLOEXEC)) {
        // SAFETY: nothing in this process uses it: its owner's threads are the
        // parent's, and the child leaks the owner.
        unsafe { libc::close(number) };
    }
}
