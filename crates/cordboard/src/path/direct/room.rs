//! The sink's length while blocks are written past its end.
//!
//! A direct write that makes a file longer holds the file for itself
//! (`ext4_dio_write_checks`, `xfs_file_write_checks`), so that no two are in
//! flight: the file is made as long as it is going to be beforehand. What was
//! made and not filled goes again at the end.

use std::os::fd::BorrowedFd;

use rustix::fs::{FallocateFlags, fallocate, fstat, ftruncate};

use crate::errno::Errno;

/// How long the sink was and how long it was made.
#[derive(Debug)]
pub(super) struct Room {
    before: u64,
    /// No block was to be written past this.
    reach: u64,
}

impl Room {
    pub(super) fn new(sink: BorrowedFd<'_>) -> Result<Room, Errno> {
        let before = fstat(sink)?.st_size as u64;
        Ok(Room {
            before,
            reach: before,
        })
    }

    /// Makes the sink reach to `end`, with blocks from `start` on. Where that
    /// is not to be had, the writes make it longer themselves, one at a time,
    /// and find what is in the way at the right byte.
    pub(super) fn grow(&mut self, sink: BorrowedFd<'_>, start: u64, end: u64) -> Result<(), Errno> {
        let size = fstat(sink)?.st_size as u64;
        self.reach = self.reach.max(end);
        if end <= size {
            return Ok(());
        }
        match fallocate(sink, FallocateFlags::empty(), start, end - start) {
            Ok(()) => Ok(()),
            // vfat has none for holes in between, NFS before 4.2 none at all.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                let _ = ftruncate(sink, end);
                Ok(())
            }
            Err(_) => {
                // ENOSPC may come after part of it.
                give_back(sink, size, end)
            }
        }
    }

    /// Cuts off what was made and not filled: `filled` is as far as the sink
    /// has what it is to have. Not, if somebody else has made it longer still.
    pub(super) fn trim(&self, sink: BorrowedFd<'_>, filled: u64) -> Result<(), Errno> {
        give_back(sink, self.before.max(filled), self.reach)
    }
}

/// Cuts the sink off at `size`, if it is longer, and no longer than `reach`: it
/// is not we who have written behind that.
fn give_back(sink: BorrowedFd<'_>, size: u64, reach: u64) -> Result<(), Errno> {
    let now = fstat(sink)?.st_size as u64;
    if size < now && now <= reach {
        ftruncate(sink, size)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn what_was_not_filled_goes_again() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(100).unwrap();
        let length = || file.metadata().unwrap().len();
        let mut room = Room::new(file.as_fd()).unwrap();
        room.grow(file.as_fd(), 4096, 1 << 20).unwrap();
        assert_eq!(length(), 1 << 20);
        room.trim(file.as_fd(), 8192).unwrap();
        assert_eq!(length(), 8192);
        room.trim(file.as_fd(), 0).unwrap();
        assert_eq!(length(), 100, "never shorter than it was");
        room.grow(file.as_fd(), 0, 50).unwrap();
        assert_eq!(length(), 100);
        file.set_len(2 << 20).unwrap();
        room.trim(file.as_fd(), 0).unwrap();
        assert_eq!(length(), 2 << 20, "somebody else made it longer");
        // Meanwhile, where there was no room for all of what was asked for.
        give_back(file.as_fd(), 100, 1 << 20).unwrap();
        assert_eq!(length(), 2 << 20);
        give_back(file.as_fd(), 100, 2 << 20).unwrap();
        assert_eq!(length(), 100);
    }
}
