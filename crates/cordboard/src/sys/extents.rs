//! The extent map of a file: `FS_IOC_FIEMAP`, since Linux 2.6.28.

use std::os::fd::{AsRawFd, BorrowedFd};

use super::last_errno::last_errno;
use crate::errno::Errno;

/// Whether the kernel has an extent map of the file: asks for a byte, without a list of the
/// extents. Most writable file systems on a disk have one;
/// vfat, exfat, ubifs, jffs2, squashfs and iso9660 do not. An overlay passes the question on to
/// the file system below (`ovl_fiemap`, fs/overlayfs/inode.c). FUSE, network file systems other
/// than SMB, tmpfs and OpenZFS have none (`EOPNOTSUPP`).
///
/// Writes nothing back, except on SMB, which asks its server (`cifs_fiemap`,
/// `smb3_fiemap`). May wait for a writer, which holds the lock of the inode
/// (`btrfs_fiemap`).
pub(crate) fn maps_extents(fd: BorrowedFd<'_>) -> bool {
    let mut map = Map::of(0, 1, 0);
    map.fill(fd).is_ok()
}

/// Whether the extent map has bytes in the range: an extent that is not preallocated only, or
/// more extents than one call returns.
///
/// # Errors
///
/// `EOPNOTSUPP`: there is no map. Others of `ioctl(2)`; that of a filter.
pub(crate) fn has_written_extent(
    fd: BorrowedFd<'_>,
    offset: u64,
    length: u64,
) -> Result<bool, Errno> {
    let mut map = Map::of(offset, length, MOST as u32);
    map.fill(fd)?;
    let mapped = map.mapped as usize;
    let extents = &map.extents[..mapped.min(MOST)];
    Ok(mapped >= MOST || extents.iter().any(|one| one.flags & UNWRITTEN == 0))
}

/// The extents that one call returns at most.
const MOST: usize = 16;
/// `FIEMAP_EXTENT_UNWRITTEN`, linux/fiemap.h.
const UNWRITTEN: u32 = 0x800;

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Default, Clone, Copy)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// `struct fiemap`, linux/fiemap.h, with its extents.
#[repr(C)]
#[derive(Default)]
struct Map {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [Extent; MOST],
}

impl Map {
    /// A question for `count` extents; 0: only for their number.
    fn of(start: u64, length: u64, count: u32) -> Map {
        Map {
            start,
            length,
            count,
            ..Map::default()
        }
    }

    fn fill(&mut self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        // The bits of the direction depend on the architecture. The size is that of the structure
        // without extents. libc does not define the number on all architectures.
        const FIEMAP: libc::Ioctl =
            rustix::ioctl::opcode::read_write::<[u64; 4]>(b'f', 11) as libc::Ioctl;
        const { assert!(std::mem::offset_of!(Map, extents) == size_of::<[u64; 4]>()) };
        debug_assert!(self.count as usize <= MOST);
        // SAFETY: FS_IOC_FIEMAP reads and writes one struct fiemap, and `count` extents behind it.
        let done = unsafe { libc::ioctl(fd.as_raw_fd(), FIEMAP, &raw mut *self) };
        match done {
            0 => Ok(()),
            _ => Err(last_errno()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn a_file_in_memory_has_no_extents() {
        let memory = rustix::fs::memfd_create("m", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert!(!maps_extents(memory.as_fd()));
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(!maps_extents(reader.as_fd()));
        let none = has_written_extent(memory.as_fd(), 0, 1);
        assert_eq!(none, Err(Errno::EOPNOTSUPP));
    }

    /// A range that is only preallocated has no bytes, and neither has a hole.
    #[test]
    fn bytes_are_told_from_preallocated_space() {
        const MIB: u64 = 1 << 20;
        let file = tempfile::tempfile().unwrap();
        if !maps_extents(file.as_fd()) {
            return testkit::skip::here("the file system of TMPDIR has no extent map");
        }
        file.set_len(4 * MIB).unwrap();
        file.write_all_at(&[1; 4096], 3 * MIB).unwrap();
        file.sync_all().unwrap();
        let has_bytes = |offset, length| has_written_extent(file.as_fd(), offset, length).unwrap();
        assert!(!has_bytes(0, 3 * MIB) && has_bytes(0, 4 * MIB));
        assert!(has_bytes(3 * MIB, 1));
        let flags = rustix::fs::FallocateFlags::KEEP_SIZE;
        if rustix::fs::fallocate(&file, flags, 0, MIB).is_err() {
            return testkit::skip::here("the file system of TMPDIR does not preallocate");
        }
        assert!(!has_bytes(0, 2 * MIB));
    }

    /// More extents than one call returns may include bytes.
    #[test]
    fn many_extents_count_as_bytes() {
        const STEP: u64 = 1 << 20;
        let file = tempfile::tempfile().unwrap();
        if !maps_extents(file.as_fd()) {
            return testkit::skip::here("the file system of TMPDIR has no extent map");
        }
        let flags = rustix::fs::FallocateFlags::KEEP_SIZE;
        let extents = MOST as u64 + 1;
        for at in 0..extents {
            if rustix::fs::fallocate(&file, flags, at * STEP, 4096).is_err() {
                return testkit::skip::here("the file system of TMPDIR does not preallocate");
            }
        }
        let has_bytes = |count| has_written_extent(file.as_fd(), 0, count * STEP).unwrap();
        assert!(has_bytes(extents));
        assert!(!has_bytes(2));
    }
}
