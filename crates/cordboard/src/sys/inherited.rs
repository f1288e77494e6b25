//! Descriptors that a child of `fork(2)` has from its parent.

use std::os::fd::RawFd;

use rustix::io::FdFlags;

use super::identity::{Identity, identity};
use super::lend::at;

/// Closes a parent's descriptor, which is closed over `execve(2)`, if its number
/// is still that file. `dup2(2)` would have taken the flag off.
pub(crate) fn close_inherited(number: RawFd, id: Identity) {
    let Some(fd) = at(number) else { return };
    let flags = rustix::io::fcntl_getfd(fd);
    if identity(fd) == Some(id) && flags.is_ok_and(|flags| flags.contains(FdFlags::CLOEXEC)) {
        // SAFETY: nothing in this process uses it: its owner's threads are the
        // parent's, and the child leaks the owner.
        unsafe { libc::close(number) };
    }
}
