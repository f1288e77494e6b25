//! Checks whether a range that a file system reports as a hole contains only zeros.
//!
//! `SEEK_DATA` and `SEEK_HOLE` may report bytes as a hole:
//!
//! * FUSE passes the calls to its server without a writeback (`fuse_lseek`, fs/fuse/file.c),
//!   and the server does not have the bytes of a mapping, or of a write with
//!   `FUSE_WRITEBACK_CACHE`. Unmapping the file, as its probe does, writes it back, and does
//!   not wait for the server before Linux 6.16. `fdatasync(2)` does (`fuse_fsync`);
//! * OpenZFS before 2.1.14 and 2.2.2 may take a file for clean that is not
//!   (`dnode_is_dirty`, openzfs#15526). No sync prevents that;
//! * f2fs before Linux 6.9 has no bytes where it stores the end of a compressed cluster
//!   (`__found_offset`, fs/f2fs/file.c). Compression exists since Linux 5.6, and the attribute
//!   *compressed* shows it a few versions later;
//! * an overlay asks the file below (`ovl_llseek`), and does not sync it unless it is in the
//!   upper layer (`ovl_fsync`). Of the file systems with the attribute *nodump*, only OpenZFS and
//!   f2fs report false holes;
//! * xfs of Linux 5.1 to 6.8 may skip bytes of a reflinked file in front of which space is
//!   preallocated for a copy on write (`xfs_seek_iomap_begin`; fixed by "xfs: fix SEEK_HOLE/DATA
//!   for regions with active COW extents"). Its extent map has them.
//!
//! Reading finds the bytes in each case. NFS and CIFS write back first
//! (`nfs42_proc_llseek`, `smb3_llseek`).

use std::os::fd::BorrowedFd;
use std::path::Path;

use crate::endpoint::{Facts, HoleReports, Kind, keeps_bytes_with_attributes};
use crate::sys::{
    Attributes, STATX_ATTR_COMPRESSED, STATX_ATTR_ENCRYPTED, STATX_ATTR_NODUMP, again, attributes,
    maps_extents, pread,
};

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
    let unmapped_or_read = || match maps_extents(source) {
        true => Trust::Unmapped,
        false => Trust::Read,
    };
    if facts.kind == Kind::Memfd {
        return Trust::Trusted;
    }
    let Some(filesystem) = facts.filesystem else {
        return match is_plain(attributes(source)) {
            true => unmapped_or_read(),
            false => Trust::Read,
        };
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
        HoleReports::TrueUnlessCompressed => trusted_if(is_plain(attributes(source))),
        HoleReports::Unknown if filesystem.is_overlay() => trust_below(source),
        HoleReports::Unknown => unmapped_or_read(),
    }
}

/// Returns whether the holes of a file of an overlay are trusted: its file system is neither FUSE,
/// nor an OpenZFS without a fix, nor an f2fs that compresses the file. Two calls suffice for most.
fn trust_below(overlay: BorrowedFd<'_>) -> Trust {
    let attributes = attributes(overlay);
    let zfs = || matches!(loaded_zfs(Path::new(MODULES)), Some(Zfs::Fixed | Zfs::None));
    let knows_nodump = || attributes.known & STATX_ATTR_NODUMP != 0;
    let keeps_bytes = || keeps_bytes_with_attributes(overlay);
    if !is_plain(attributes) {
        return Trust::Read;
    }
    match maps_extents(overlay) {
        true if !may_have_f2fs(Path::new(SYSFS)) || keeps_bytes() => Trust::Unmapped,
        false if knows_nodump() && zfs() && keeps_bytes() => Trust::Trusted,
        _ => Trust::Read,
    }
}

/// Whether the file is not one that f2fs compresses, by its attributes. f2fs knows *encrypted*, and
/// a few versions after its compression also *compressed*. Files that btrfs compresses on request
/// are not plain either, which costs time only.
fn is_plain(of: Attributes) -> bool {
    match of.known & STATX_ATTR_COMPRESSED {
        0 => of.known != 0 && of.known & STATX_ATTR_ENCRYPTED == 0,
        _ => of.set & STATX_ATTR_COMPRESSED == 0,
    }
}

/// The mount of sysfs.
const SYSFS: &str = "/sys";
/// The modules of the kernel in sysfs.
const MODULES: &str = "/sys/module";

/// Whether the kernel has f2fs (`f2fs_init_sysfs`, fs/f2fs/sysfs.c); true also if sysfs does not
/// show it.
fn may_have_f2fs(sysfs: &Path) -> bool {
    let is_there = |name| std::fs::exists(sysfs.join(name)).ok();
    is_there("fs/f2fs") != Some(false) || is_there("module/kernel") != Some(true)
}

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
pub(in crate::path) fn read_hole(
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

    #[test]
    fn the_f2fs_that_sysfs_shows() {
        let sysfs = tempfile::tempdir().unwrap();
        // Something else than sysfs.
        assert!(may_have_f2fs(sysfs.path()));
        for (name, expected) in [("module/kernel", false), ("fs/f2fs", true)] {
            std::fs::create_dir_all(sysfs.path().join(name)).unwrap();
            assert_eq!(may_have_f2fs(sysfs.path()), expected);
        }
    }

    #[test]
    fn files_that_f2fs_may_compress_are_not_plain() {
        const COMPRESSED: u64 = STATX_ATTR_COMPRESSED;
        const ENCRYPTED: u64 = STATX_ATTR_ENCRYPTED;
        for (known, set, expected) in [
            // Without statx(2).
            (0, 0, false),
            // f2fs, before and after it knows the attribute.
            (STATX_ATTR_NODUMP | ENCRYPTED, 0, false),
            (
                STATX_ATTR_NODUMP | ENCRYPTED | COMPRESSED,
                COMPRESSED,
                false,
            ),
            (STATX_ATTR_NODUMP | ENCRYPTED | COMPRESSED, ENCRYPTED, true),
            // tmpfs.
            (STATX_ATTR_NODUMP, 0, true),
        ] {
            assert_eq!(is_plain(Attributes { known, set }), expected, "{known:#x}");
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
        // f2fs: the attributes decide.
        let f2fs = on(0xF2F5_2010);
        assert_eq!(f2fs == Trust::Trusted, is_plain(attributes(none.as_fd())));
        let hidden = testkit::refuse::apart(|| {
            testkit::refuse::refuse(&[libc::SYS_statx], libc::EPERM);
            on(0xF2F5_2010)
        });
        assert_eq!(hidden, Trust::Read);
        // overlayfs, whose mount is not known, and an unknown one, without extents.
        assert_eq!(on(0x794c_7630), Trust::Read);
        assert_eq!(on(0xdead_beef), Trust::Read);
    }
}
