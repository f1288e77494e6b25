//! FASYNC, off for the length of a transfer.
//!
//! It belongs to the open description, which several transfers may share: it
//! goes with the first and comes back with the last, or not, if the program
//! has taken it off meanwhile (with `cord_set_flags`).

use cordboard::endpoint::same_description;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use cordboard::Errno;

use crate::sys;
use crate::table::{lock, table};

/// A flag that is off for the time.
pub(crate) struct Taken {
    /// A duplicate: what tells the description.
    fd: OwnedFd,
    users: usize,
    put_back: bool,
    /// The number under which it came, which the kernel will tell in `si_fd`.
    number: RawFd,
}

/// How many there are, or more (in a child): a splice that has nothing to do
/// with this looks at one word of memory.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn find(taken: &[Taken], fd: BorrowedFd<'_>) -> Option<usize> {
    (taken.iter()).position(|t| same_description(t.fd.as_fd(), fd))
}

/// Whether the flag is off for a transfer, and shall come back.
pub(super) fn is_taken(fd: BorrowedFd<'_>) -> bool {
    if COUNT.load(Ordering::Acquire) == 0 {
        return false;
    }
    let taken = lock(&table().taken);
    find(&taken, fd).is_some_and(|at| taken[at].put_back)
}

/// Says whether it shall come back, if it is off for a transfer.
pub(super) fn want_back(fd: BorrowedFd<'_>, wanted: bool) -> bool {
    if COUNT.load(Ordering::Acquire) == 0 {
        return false;
    }
    let mut taken = lock(&table().taken);
    match find(&taken, fd) {
        Some(at) => {
            taken[at].put_back = wanted;
            true
        }
        None => false,
    }
}

/// One of the two descriptors, which has FASYNC.
pub(super) struct Side {
    fd: OwnedFd,
    pub(super) number: RawFd,
    pub(super) is_source: bool,
}

impl Side {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// An asynchronous splice: one or both sides have asked for it. The flags come
/// back when it is dropped.
#[derive(Default)]
pub(crate) struct Asked {
    sides: Vec<Side>,
}

impl Asked {
    /// Takes the flag off this side.
    pub(super) fn take(
        &mut self,
        fd: BorrowedFd<'_>,
        flags: libc::c_int,
        is_source: bool,
    ) -> Result<(), Errno> {
        let duplicate = || rustix::io::fcntl_dupfd_cloexec(fd, 3).map_err(Errno::from);
        let (side, kept) = (duplicate()?, duplicate()?);
        let mut taken = lock(&table().taken);
        match find(&taken, fd) {
            Some(at) => taken[at].users += 1,
            None => {
                // Where the flag is only a mark, or stays on a file that was
                // opened with it, this changes nothing.
                sys::set_flags(fd, flags & !libc::O_ASYNC)?;
                taken.push(Taken {
                    fd: kept,
                    users: 1,
                    put_back: true,
                    number: fd.as_raw_fd(),
                });
                COUNT.fetch_add(1, Ordering::AcqRel);
            }
        }
        drop(taken);
        self.sides.push(Side {
            fd: side,
            number: fd.as_raw_fd(),
            is_source,
        });
        Ok(())
    }

    pub(super) fn sides(&self) -> impl Iterator<Item = &Side> {
        self.sides.iter()
    }

    /// The source, if it has asked for it.
    pub(super) fn first(&self) -> &Side {
        // Made with its first side.
        &self.sides[0]
    }

    /// The flags as they were.
    pub(super) fn put_back(self) {
        drop(self);
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        for side in &self.sides {
            release(side.fd());
        }
    }
}

fn release(fd: BorrowedFd<'_>) {
    let mut taken = lock(&table().taken);
    let Some(at) = find(&taken, fd) else {
        return;
    };
    taken[at].users -= 1;
    if taken[at].users > 0 {
        return;
    }
    let last = taken.swap_remove(at);
    COUNT.fetch_sub(1, Ordering::AcqRel);
    if !last.put_back {
        return;
    }
    let Ok(flags) = sys::flags(fd) else { return };
    // By the number it came with, if that is still the same: the kernel tells
    // the number by which the flag was set.
    let by = sys::lend(last.number)
        .ok()
        .filter(|number| same_description(*number, fd))
        .unwrap_or(fd);
    // What had it before can have it again.
    let _ = sys::set_flags(by, flags | libc::O_ASYNC);
}
