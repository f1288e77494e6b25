//! A test whether a file system maps a file to the blocks of a disk.

use std::os::fd::{AsRawFd, BorrowedFd};

/// Whether the kernel has an extent map of the file: `FS_IOC_FIEMAP`, since Linux 2.6.28,
/// for a byte and without a list of the extents. Most writable file systems on a disk have one;
/// vfat, exfat, ubifs, jffs2, squashfs and iso9660 do not. An overlay passes the question on to
/// the file system below (`ovl_fiemap`, fs/overlayfs/inode.c). FUSE, network file systems other
/// than SMB, tmpfs and OpenZFS have none (`EOPNOTSUPP`).
///
/// Writes nothing back, except on SMB, which asks its server (`cifs_fiemap`,
/// `smb3_fiemap`). May wait for a writer, which holds the lock of the inode
/// (`btrfs_fiemap`).
pub(crate) fn maps_extents(fd: BorrowedFd<'_>) -> bool {
    /// `struct fiemap`, linux/fiemap.h.
    #[repr(C)]
    #[derive(Default)]
    struct Map {
        start: u64,
        length: u64,
        flags: u32,
        mapped: u32,
        count: u32,
        reserved: u32,
    }
    // libc does not define it on all architectures. The bits of the direction depend on the
    // architecture.
    const FIEMAP: libc::Ioctl = rustix::ioctl::opcode::read_write::<Map>(b'f', 11) as libc::Ioctl;
    let mut map = Map {
        length: 1,
        ..Map::default()
    };
    // SAFETY: FS_IOC_FIEMAP reads and writes one struct fiemap, and no extent behind it, since
    // the count is 0.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), FIEMAP, &raw mut map) };
    done == 0
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_file_in_memory_has_no_extents() {
        let memory = rustix::fs::memfd_create("m", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert!(!maps_extents(memory.as_fd()));
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(!maps_extents(reader.as_fd()));
    }
}
