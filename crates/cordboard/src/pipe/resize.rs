//! Changes of a pipe's capacity, within the budget.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use super::budget::Share;
use super::enlarged::make_room;

/// Sets a pipe's capacity, if the budget and the kernel allow it. `EPERM`: above
/// `pipe-max-size` or the user's share; `EBUSY`: less than its content.
pub(super) fn resize(fd: BorrowedFd<'_>, now: &mut usize, capacity: usize, share: &mut Share) {
    // Memory that is not yet released must not be granted to others.
    if *now == capacity || *now < capacity && !reserve(share, capacity) {
        return;
    }
    if let Ok(made) = rustix::pipe::fcntl_setpipe_size(fd, capacity) {
        *now = made;
    }
    share.set(*now);
}

/// Reserves what this capacity needs. If the budget does not allow it, tries again
/// after [`make_room`].
fn reserve(share: &mut Share, capacity: usize) -> bool {
    share.set(capacity) || {
        make_room(Instant::now());
        share.set(capacity)
    }
}
