//! The sink's length while blocks are written past its end.
//!
//! A direct write that lengthens a file locks the file exclusively
//! (`ext4_dio_write_checks`, `xfs_file_write_checks`), so no two would be in
//! flight. The file is therefore lengthened beforehand. The unfilled part is cut
//! off at the end.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FallocateFlags, OFlags, SeekFrom, fallocate, ftruncate, seek};

use crate::endpoint::{Facts, reopen};
use crate::errno::Errno;
use crate::path::common::hole_check::read_hole;
use crate::path::common::lengthen::lengthen;
use crate::path::common::surplus::give_back;
use crate::sys::{again, close_and_report, fstat};

/// The sink's original length, and the lengths it was given.
#[derive(Debug)]
pub(crate) struct Room {
    before: u64,
    /// The length that this transfer gave it last; 0 if none.
    given: u64,
    /// The lowest offset of a range for which it was lengthened; `u64::MAX` if none. Bytes before
    /// it, and behind the original length, are those of other processes.
    start: u64,
    /// The end of the counted bytes. The sink's position may be lower: another
    /// process may have sought back since.
    filled: u64,
    /// Blocks may have been reserved past the end.
    surplus: bool,
    ext4: bool,
    /// Whether blocks are reserved. False if the file system would not compress the sink
    /// after `fallocate(2)`; such a file system writes blocks to new places anyway.
    reserves: bool,
}

impl Room {
    pub(super) fn new(sink: BorrowedFd<'_>, facts: &Facts) -> Result<Room, Errno> {
        Ok(Room {
            before: fstat(sink)?.st_size as u64,
            given: 0,
            start: u64::MAX,
            filled: 0,
            surplus: false,
            ext4: facts.filesystem.is_some_and(|fs| fs.reserves_by_page()),
            reserves: !(facts.filesystem).is_some_and(|fs| fs.compresses_buffered_writes()),
        })
    }

    /// Lengthens the sink to `end`, with blocks allocated from `start`. Returns
    /// the length reached. If space is short, buffered I/O writes the bytes after
    /// that, and reports the error at the right byte. `closed`: as in [`lengthen`].
    ///
    /// Allocates the blocks first, and then sets the length, which takes no more
    /// blocks: a single call for both that runs out of space can leave any
    /// length.
    pub(super) fn grow(
        &mut self,
        sink: BorrowedFd<'_>,
        start: u64,
        end: u64,
        closed: &mut Option<Errno>,
    ) -> Result<u64, Errno> {
        let size = fstat(sink)?.st_size as u64;
        if end <= size {
            return Ok(end);
        }
        let reserve = |flags, from| match self.reserves {
            true => again(|| fallocate(sink, flags, from, end - from)),
            false => Err(rustix::io::Errno::OPNOTSUPP),
        };
        let reserved = reserve(FallocateFlags::KEEP_SIZE, start);
        let made = match reserved {
            // The last byte alone: xfs searches free blocks for the whole range,
            // including the blocks that the file has (`xfs_alloc_file_space`).
            Ok(()) => reserve(FallocateFlags::empty(), end - 1),
            // NFS has no KEEP_SIZE.
            Err(rustix::io::Errno::OPNOTSUPP) => reserve(FallocateFlags::empty(), start),
            done => done,
        };
        let made = match made {
            // NFS before 4.2 has neither, and a filter may refuse both.
            Err(errno) if is_refused(errno) => lengthen(sink, end, closed).is_ok(),
            done => done.is_ok(),
        };
        if made {
            self.given = end;
            self.start = self.start.min(start);
            return Ok(end);
        }
        // A call that runs out of space may have reserved a part.
        self.surplus |= !reserved.is_err_and(is_refused);
        Ok(size)
    }

    /// Records that the counted bytes reach to `end`.
    pub(super) fn fill_to(&mut self, end: u64) {
        self.filled = self.filled.max(end);
    }

    /// Records that `bytes` more were counted, after those before.
    pub(in crate::path) fn fill(&mut self, bytes: u64) {
        self.filled = self.filled.saturating_add(bytes);
    }

    /// Cuts off the unfilled part: `place` is the sink's next offset, which may be past
    /// the end of a sink that has no byte of this transfer yet. Truncates
    /// only a sink of exactly the length that this transfer gave it: at any other
    /// length, another process has written past it. No call compares and
    /// truncates atomically, so bytes that another process writes between the two
    /// calls are lost. `closed`: as in [`lengthen`].
    ///
    /// If no byte was counted, other processes may have written before the range of this
    /// transfer, which leaves the length. The sink then keeps all bytes before the range.
    pub(in crate::path) fn trim(
        &mut self,
        sink: BorrowedFd<'_>,
        place: u64,
        closed: &mut Option<Errno>,
    ) -> Result<(), Errno> {
        let reached = match self.filled {
            0 => 0,
            filled => filled.max(place),
        };
        let between = self.before < self.start && self.start < self.given;
        if self.filled == 0 && between && has_data(sink, self.before, self.start, closed) {
            self.before = self.start;
        }
        let length = self.before.max(reached);
        if length < self.given && fstat(sink)?.st_size as u64 == self.given {
            again(|| ftruncate(sink, length))?;
            (self.given, self.surplus) = (length, false);
        }
        if std::mem::take(&mut self.surplus) {
            self.release(sink, length);
        }
        Ok(())
    }

    /// Releases the blocks past the end, if the sink has this length. Setting the length
    /// that a file has releases them (`xfs_setattr_size`, fs/xfs/xfs_iops.c;
    /// `ext4_setattr`, fs/ext4/inode.c). On ext4, [`give_back`] cuts off nothing that
    /// another process appends meanwhile.
    fn release(&self, sink: BorrowedFd<'_>, length: u64) {
        if self.ext4 && give_back(sink).is_ok() {
            return;
        }
        if fstat(sink).is_ok_and(|stat| stat.st_size as u64 == length) {
            // The blocks stay reserved if it fails.
            let _ = again(|| ftruncate(sink, length));
        }
    }
}

/// Returns whether the sink has data between two offsets; true also if that cannot be determined, as
/// on a file system without holes. `closed`: as in [`lengthen`].
fn has_data(sink: BorrowedFd<'_>, from: u64, to: u64, closed: &mut Option<Errno>) -> bool {
    // The search moves a file position: other processes may use that of the sink.
    let Ok(own) = reopen(sink, OFlags::RDONLY) else {
        return true;
    };
    // A block has data if any of its bytes were written, also those outside of the range.
    let unit = fstat(sink).map_or(1, |stat| stat.st_blksize as u64).max(1);
    let first = from.next_multiple_of(unit).min(to);
    let last = (to - to % unit).max(first);
    let is_zero = |at: u64, end: u64| {
        let whole = (end, u64::MAX);
        at == end || read_hole(own.as_fd(), at, whole, end - at) == Some(whole)
    };
    let has_blocks = first < last
        && match again(|| seek(&own, SeekFrom::Data(first))) {
            Ok(data) => data < last,
            // No data follows: `lseek(2)`.
            Err(errno) => errno != rustix::io::Errno::NXIO,
        };
    let has_data = has_blocks || !is_zero(from, first) || !is_zero(last, to);
    if let Err(errno) = close_and_report(own) {
        closed.get_or_insert(errno);
    }
    has_data
}

/// Returns whether `fallocate(2)` is not available, as opposed to space. An errno that a filter
/// returns may also be the file's: [`lengthen`] then fails too.
fn is_refused(errno: rustix::io::Errno) -> bool {
    let errno = Errno::from(errno);
    errno.is_refusal_or_invalid() || matches!(errno, Errno::EOPNOTSUPP | Errno::ENODEV)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Kind;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    #[test]
    fn what_was_not_filled_goes_again() {
        // In memory, so that the file system reports holes.
        let file = rustix::fs::memfd_create("m", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let file = std::fs::File::from(file);
        file.set_len(100).unwrap();
        let length = || file.metadata().unwrap().len();
        let mut room = Room::new(file.as_fd(), &Facts::plain(Kind::File)).unwrap();
        room.grow(file.as_fd(), 4096, 1 << 20, &mut None).unwrap();
        assert_eq!(length(), 1 << 20);
        room.trim(file.as_fd(), 8192, &mut None).unwrap();
        assert_eq!(
            length(),
            100,
            "no byte was written before the sink's offset"
        );
        room.grow(file.as_fd(), 0, 50, &mut None).unwrap();
        assert_eq!(length(), 100);
        room.grow(file.as_fd(), 0, 1 << 20, &mut None).unwrap();
        room.fill_to(4096);
        room.fill(100);
        room.fill_to(7);
        room.trim(file.as_fd(), 0, &mut None).unwrap();
        assert_eq!(length(), 4196, "the position is sought back");
        room.trim(file.as_fd(), 0, &mut None).unwrap();
        assert_eq!(length(), 4196, "never shorter than what was written");
        file.set_len(2 << 20).unwrap();
        room.trim(file.as_fd(), 0, &mut None).unwrap();
        assert_eq!(length(), 2 << 20, "another process has lengthened it");
    }

    /// In memory, so that the file system reports holes.
    #[test]
    fn what_others_write_before_the_range_stays() {
        use rustix::fs::{MemfdFlags, memfd_create};
        const RANGE: u64 = 8 << 20;
        let grown = |before| {
            let file = std::fs::File::from(memfd_create("m", MemfdFlags::CLOEXEC).unwrap());
            // Its last block has data.
            file.write_all_at(&vec![1; before as usize], 0).unwrap();
            let mut room = Room::new(file.as_fd(), &Facts::plain(Kind::File)).unwrap();
            room.grow(file.as_fd(), RANGE, 9 << 20, &mut None).unwrap();
            (file, room)
        };
        let length = |file: &std::fs::File| file.metadata().unwrap().len();
        for before in [0, 100] {
            // Where there is nothing, nothing stays. A write within the range is one of this
            // transfer that does not count.
            let (file, mut room) = grown(before);
            file.write_all_at(b"ours", RANGE).unwrap();
            room.trim(file.as_fd(), RANGE, &mut None).unwrap();
            assert_eq!(length(&file), before);
            for at in [before, 1 << 20, RANGE - 1] {
                let (file, mut room) = grown(before);
                file.write_all_at(b"x", at).unwrap();
                let position = rustix::fs::tell(&file);
                for _ in 0..2 {
                    room.trim(file.as_fd(), RANGE, &mut None).unwrap();
                    assert_eq!(length(&file), RANGE, "{before} {at}");
                }
                let mut byte = [0];
                file.read_exact_at(&mut byte, at).unwrap();
                assert_eq!((&byte, rustix::fs::tell(&file)), (b"x", position));
            }
            // The file cannot be searched.
            let (file, mut room) = grown(before);
            testkit::refuse::apart(|| {
                testkit::refuse::refuse(testkit::refuse::OPEN, libc::EPERM);
                room.trim(file.as_fd(), RANGE, &mut None).unwrap();
            });
            assert_eq!(length(&file), RANGE);
        }
    }

    #[test]
    fn what_others_append_where_there_is_no_room_stays() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(100).unwrap();
        let mut room = Room::new(file.as_fd(), &Facts::plain(Kind::File)).unwrap();
        testkit::refuse::apart(|| {
            testkit::refuse::refuse(&[libc::SYS_fallocate], libc::ENOSPC);
            room.grow(file.as_fd(), 0, 1 << 20, &mut None).unwrap();
        });
        file.write_all_at(b"theirs", 100).unwrap();
        room.trim(file.as_fd(), 0, &mut None).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 106);
    }

    /// The length cannot be set after the reservation, as beyond `RLIMIT_FSIZE`.
    #[test]
    fn blocks_that_were_reserved_in_vain_are_released() {
        use std::os::unix::fs::MetadataExt;
        let file = tempfile::tempfile().unwrap();
        file.set_len(100).unwrap();
        let before = file.metadata().unwrap().blocks();
        let mut room = Room::new(file.as_fd(), &Facts::plain(Kind::File)).unwrap();
        testkit::refuse::apart(|| {
            testkit::refuse::refuse_where(libc::SYS_fallocate, 1, 0, libc::EFBIG);
            assert_eq!(room.grow(file.as_fd(), 0, 1 << 20, &mut None), Ok(100));
        });
        let reserved = file.metadata().unwrap();
        if reserved.blocks() < before + 1024 {
            return testkit::skip::report("blocks_that_were_reserved", "no reservation here");
        }
        room.trim(file.as_fd(), 0, &mut None).unwrap();
        let after = file.metadata().unwrap();
        assert_eq!(after.len(), 100);
        assert!(after.blocks() <= before + 8, "{}", after.blocks());
    }

    /// `fallocate(2)` would end the compression of a file on btrfs.
    #[test]
    fn a_sink_that_may_be_compressed_is_lengthened_without_a_reservation() {
        let file = tempfile::tempfile().unwrap();
        let facts = Facts {
            filesystem: Some(crate::endpoint::Filesystem(0x9123_683e)),
            ..Facts::plain(Kind::File)
        };
        let mut room = Room::new(file.as_fd(), &facts).unwrap();
        testkit::refuse::apart(|| {
            testkit::refuse::refuse_where(libc::SYS_fallocate, 1, 1, libc::EIO);
            assert_eq!(room.grow(file.as_fd(), 0, 1 << 20, &mut None), Ok(1 << 20));
        });
        assert_eq!(file.metadata().unwrap().len(), 1 << 20);
        room.fill_to(4096);
        room.trim(file.as_fd(), 4096, &mut None).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 4096);
    }

    #[test]
    fn room_without_fallocate_is_made_by_nothing_that_could_shorten_the_file() {
        for errno in [
            libc::EOPNOTSUPP,
            libc::ENODEV,
            libc::ENOSYS,
            libc::EPERM,
            libc::EACCES,
            libc::EINVAL,
        ] {
            let file = tempfile::tempfile().unwrap();
            let mut room = Room::new(file.as_fd(), &Facts::plain(Kind::File)).unwrap();
            testkit::refuse::apart(|| {
                testkit::refuse::refuse(&[libc::SYS_fallocate], errno);
                testkit::refuse::refuse(&[libc::SYS_ftruncate], libc::EIO);
                let reached = room.grow(file.as_fd(), 0, 1 << 20, &mut None);
                assert_eq!(reached, Ok(1 << 20), "{errno}");
            });
            assert_eq!(file.metadata().unwrap().len(), 1 << 20, "{errno}");
        }
    }
}
