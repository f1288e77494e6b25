//! Checks whether a range that a file system reports as a hole contains only zeros.
//!
//! xfs of Linux 5.1 to 6.8 may skip bytes of a reflinked file in front of which space is
//! preallocated for a copy on write (`xfs_seek_iomap_begin`; fixed by "xfs: fix SEEK_HOLE/DATA for
//! regions with active COW extents"). Its extent map has them.
//!
//! Others report bytes as a hole that are in the page cache only:
//!
//! * FUSE passes them to its server without a writeback (`fuse_lseek`, fs/fuse/file.c), and
//!   the server does not have the bytes of a mapping, or of a write with
//!   `FUSE_WRITEBACK_CACHE`. Unmapping the file, as its probe does, writes it back, and does
//!   not wait for the server before Linux 6.16. `fdatasync(2)` does (`fuse_fsync`);
//! * OpenZFS before 2.1.14 and 2.2.2 may take a file for clean that is not
//!   (`dnode_is_dirty`, openzfs#15526). No sync prevents that;
//! * an overlay asks the file below (`ovl_llseek`), and does not sync it unless it is in the
//!   upper layer (`ovl_fsync`). Of the file systems with the attribute *nodump*, only OpenZFS
//!   reports false holes.
//!
//! Reading finds the bytes in each case. NFS and CIFS write back first
//! (`nfs42_proc_llseek`, `smb3_llseek`).

use std::os::fd::BorrowedFd;
use std::path::Path;

use crate::endpoint::{Facts, HoleReports, Kind, keeps_bytes_with_attributes};
use crate::sys::{STATX_ATTR_NODUMP, again, known_attributes, maps_extents, pread};

/// Bytes of one read.
const BLOCK: usize = 16 << 10;

/// Whether the holes of a source are trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// They are holes.
    Trusted,
    /// Those that are reported from now on are holes.
    FromNowOn,
    /// Those are holes where the extent map has no bytes; others are read.
    Unmapped,
    /// Each of them is read.
    Read,
}

/// Returns whether the holes of `source` are trusted. Called before the first hole is skipped.
/// `own`: a description that the caller does not have, if there is one. A sync reports an error
/// of writeback once for each description, and the caller's own must get it too.
pub(super) fn trust(facts: &Facts, source: BorrowedFd<'_>, own: Option<BorrowedFd<'_>>) -> Trust {
    let trusted_if = |is_so| {
        if is_so { Trust::Trusted } else { Trust::Read }
    };
    // One call suffices for most file systems.
    let unmapped_or = |other| match maps_extents(source) {
        true => Trust::Unmapped,
        false => other,
    };
    if facts.kind == Kind::Memfd {
        return Trust::Trusted;
    }
    let Some(filesystem) = facts.filesystem else {
        return unmapped_or(Trust::Read);
    };
    match filesystem.hole_reports() {
        HoleReports::True => Trust::Trusted,
        HoleReports::TrueAfterSync => match own.map(rustix::fs::fdatasync) {
            Some(Ok(())) => Trust::FromNowOn,
            _ => Trust::Read,
        },
        HoleReports::TrueIfUnmapped => Trust::Unmapped,
        HoleReports::TrueOfFixedZfs => {
            trusted_if(loaded_zfs(Path::new(MODULES)) == Some(Zfs::Fixed))
        }
        HoleReports::Unknown => match unmapped_or(Trust::Read) {
            Trust::Read => trusted_if(filesystem.is_overlay() && is_true_below(source)),
            trust => trust,
        },
    }
}

/// Whether the attributes of a file of an overlay show that holes are true: the file system
/// below is neither FUSE nor an OpenZFS without a fix.
fn is_true_below(overlay: BorrowedFd<'_>) -> bool {
    let zfs = || matches!(loaded_zfs(Path::new(MODULES)), Some(Zfs::Fixed | Zfs::None));
    known_attributes(overlay) & STATX_ATTR_NODUMP != 0
        && zfs()
        && keeps_bytes_with_attributes(overlay)
}

/// The modules of the kernel in sysfs.
const MODULES: &str = "/sys/module";

/// The OpenZFS of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Zfs {
    None,
    Old,
    /// It reports holes truly.
    Fixed,
}

/// `None`: sysfs does not show it.
fn loaded_zfs(modules: &Path) -> Option<Zfs> {
    let is_there = |name| std::fs::exists(modules.join(name)).ok();
    if let Ok(version) = std::fs::read_to_string(modules.join("zfs/version")) {
        return Some(if is_fixed_zfs(&version) {
            Zfs::Fixed
        } else {
            Zfs::Old
        });
    }
    // Each kernel has `kernel`: the parameters of its core.
    let has_no_zfs = is_there("zfs") == Some(false) && is_there("kernel") == Some(true);
    has_no_zfs.then_some(Zfs::None)
}

/// Whether it is the version of an OpenZFS that reports holes truly, such as `2.2.2-1`.
fn is_fixed_zfs(version: &str) -> bool {
    let end = version.find(|c: char| c != '.' && !c.is_ascii_digit());
    let numbers = version[..end.unwrap_or(version.len())].split('.');
    let numbers: Vec<u32> = numbers.map_while(|part| part.parse().ok()).collect();
    match numbers[..] {
        [2, 1, patch, ..] => patch >= 14,
        [major, minor, patch, ..] => (major, minor, patch) >= (2, 2, 2),
        _ => false,
    }
}

/// Reads the hole from `offset` to the next data, or `most` bytes of it. Returns the next range
/// of bytes that are not all zeros; an empty one where the reading has stopped. `None`: the
/// hole cannot be read to its end.
pub(super) fn read_hole(
    fd: BorrowedFd<'_>,
    offset: u64,
    (data, end): (u64, u64),
    most: u64,
) -> Option<(u64, u64)> {
    let stop = data.min(offset.saturating_add(most));
    let mut block = [0; BLOCK];
    let mut at = offset;
    while at < stop {
        let length = usize::try_from(stop - at).map_or(BLOCK, |left| left.min(BLOCK));
        let block = &mut block[..length];
        let read = again(|| pread(fd, block, at)).ok().filter(|n| *n > 0)?;
        let next = at + read as u64;
        if !is_zero(&block[..read]) {
            return Some((at, next));
        }
        at = next;
    }
    Some(if stop == data {
        (data, end)
    } else {
        (stop, stop)
    })
}

/// Whether all these bytes are zero.
pub(in crate::path) fn is_zero(bytes: &[u8]) -> bool {
    let (parts, rest) = bytes.as_chunks::<16>();
    let is_zero = |part: &[u8; 16]| u128::from_ne_bytes(*part) == 0;
    parts.iter().all(is_zero) && rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::endpoint::Filesystem;

    #[test]
    fn zeros_are_told_from_data() {
        let mut block = [0u8; 4099];
        assert!(is_zero(&block) && is_zero(&[]));
        for at in [0, 15, 4095, 4096, 4098] {
            block[at] = 1;
            assert!(!is_zero(&block), "{at}");
            block[at] = 0;
        }
    }

    #[test]
    fn versions_of_zfs() {
        for version in [
            "2.1.14\n",
            "2.1.15-1\n",
            "2.2.2-1\n",
            "2.3.0-rc4\n",
            "3.0.0",
        ] {
            assert!(is_fixed_zfs(version), "{version}");
        }
        for version in [
            "0.8.6-1\n",
            "2.0.7\n",
            "2.1.13-1\n",
            "2.2.1\n",
            "2.2\n",
            "x",
            "",
        ] {
            assert!(!is_fixed_zfs(version), "{version}");
        }
    }

    #[test]
    fn the_zfs_that_sysfs_shows() {
        let modules = tempfile::tempdir().unwrap();
        let zfs = || loaded_zfs(modules.path());
        // Something else than sysfs.
        assert_eq!(zfs(), None);
        std::fs::create_dir(modules.path().join("kernel")).unwrap();
        assert_eq!(zfs(), Some(Zfs::None));
        std::fs::create_dir(modules.path().join("zfs")).unwrap();
        assert_eq!(zfs(), None);
        for (version, expected) in [("2.2.2-1\n", Zfs::Fixed), ("2.1.5-1\n", Zfs::Old)] {
            std::fs::write(modules.path().join("zfs/version"), version).unwrap();
            assert_eq!(zfs(), Some(expected));
        }
    }

    /// What is reported as a hole has bytes.
    #[test]
    fn a_false_hole_is_read() {
        let (block, size) = (BLOCK as u64, 10 * BLOCK as u64);
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"x", 3 * block + 7).unwrap();
        file.set_len(size).unwrap();
        let read = |offset, most| read_hole(file.as_fd(), offset, (size, u64::MAX), most);
        let all = u64::MAX;
        assert_eq!(read(0, all), Some((3 * block, 4 * block)));
        assert_eq!(
            read(3 * block + 5, all),
            Some((3 * block + 5, 4 * block + 5))
        );
        assert_eq!(read(4 * block, all), Some((size, u64::MAX)));
        assert_eq!(read(0, block), Some((block, block)));
        assert_eq!(read(0, 2 * block + 1), Some((2 * block + 1, 2 * block + 1)));
        // The file is shorter than its reported size.
        let past = read_hole(file.as_fd(), size, (size + 1, u64::MAX), all);
        assert_eq!(past, None);
    }

    #[test]
    fn what_is_trusted_without_a_call() {
        let none = std::fs::File::open("/dev/null").unwrap();
        let on = |magic| {
            let facts = Facts {
                filesystem: Some(Filesystem(magic)),
                ..Facts::plain(Kind::File)
            };
            trust(&facts, none.as_fd(), None)
        };
        // ext4, tmpfs, btrfs, NFS, CIFS.
        for magic in [0xEF53, 0x0102_1994, 0x9123_683E, 0x6969, 0xFF53_4D42] {
            assert_eq!(on(magic), Trust::Trusted, "{magic:#x}");
        }
        // xfs.
        assert_eq!(on(0x5846_5342), Trust::Unmapped);
        // FUSE, without a description of its own: nothing is synced.
        assert_eq!(on(0x6573_5546), Trust::Read);
        // overlayfs, whose mount is not known, and an unknown one, without extents.
        assert_eq!(on(0x794c_7630), Trust::Read);
        assert_eq!(on(0xdead_beef), Trust::Read);
    }
}
