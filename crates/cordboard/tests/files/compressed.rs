//! Sinks that the file system compresses. After `fallocate(2)` of any part of a file, btrfs
//! does not compress what is written to it from then on.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use crate::common::mount::Mount;
use crate::common::{any, content, only, run, watchdog};
use cordboard::DataPath::{CopyFileRange, ReadWrite};
use cordboard::{DataPath, Direct, Ended, Request, Sparse};
use testkit::refuse::{apart, refuse};

const MIB: usize = 1 << 20;

/// The ranges of a file in `ioctl(FS_IOC_FIEMAP)`, linux/fiemap.h.
#[repr(C)]
struct Map {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [Extent; 64],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    places: [u64; 5],
    flags: u32,
    reserved: [u32; 3],
}

const FS_IOC_FIEMAP: libc::Ioctl = 0xC020_660B_u32 as libc::Ioctl;
const FIEMAP_FLAG_SYNC: u32 = 1;
const FIEMAP_EXTENT_ENCODED: u32 = 8;

/// Returns whether all extents of the file within this MiB are compressed.
fn is_compressed(file: &File, number: u64) -> bool {
    let mut map = Map {
        start: number << 20,
        length: MIB as u64,
        flags: FIEMAP_FLAG_SYNC,
        mapped: 0,
        count: 64,
        reserved: 0,
        extents: [Extent::default(); 64],
    };
    // SAFETY: the map has room for `count` extents.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut map) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    assert!(map.mapped > 0);
    map.extents[..map.mapped as usize]
        .iter()
        .all(|extent| extent.flags & FIEMAP_EXTENT_ENCODED != 0)
}

/// Mounts a btrfs that compresses. `None`: the test is skipped.
fn compressing() -> Option<Mount> {
    let mount = Mount::new("btrfs", 256 << 20)?;
    let at = mount.path();
    let how = ["-o", "remount,compress=lzo", at.to_str().unwrap()];
    assert!(Mount::run("mount", &how));
    let file = mount.file("whether");
    file.write_all_at(&text(MIB), 0).unwrap();
    if !is_compressed(&file, 0) {
        testkit::skip::here("btrfs does not compress here");
        return None;
    }
    Some(mount)
}

fn text(length: usize) -> Vec<u8> {
    b"to be compressed ".repeat(length / 17 + 1)[..length].to_vec()
}

/// The sink is lengthened before the bytes behind a hole are written, or for a hole at the
/// end.
#[test]
fn a_copy_with_holes_is_compressed() {
    let _dog = watchdog("a_copy_with_holes_is_compressed");
    let Some(mount) = compressing() else {
        return;
    };
    let source = tempfile::tempfile().unwrap();
    let text = text(MIB);
    for at in [1, 3] {
        source.write_all_at(&text, at << 20).unwrap();
    }
    source.set_len((5 << 20) + 5).unwrap();
    for path in [
        ReadWrite,
        CopyFileRange,
        DataPath::Sendfile,
        DataPath::Splice,
    ] {
        for (sparse, older) in [Sparse::Auto, Sparse::Always]
            .into_iter()
            .flat_map(|sparse| [(sparse, false), (sparse, true)])
        {
            let sink = mount.file("sink");
            let request = Request {
                sparse,
                source_offset: Some(0),
                ..only(&[path, ReadWrite])
            };
            let report = apart(|| {
                if older {
                    // No RWF_NOAPPEND, before Linux 6.9.
                    refuse(&[libc::SYS_pwritev2], libc::EOPNOTSUPP);
                }
                run(&source, &sink, request).report
            });
            let what = format!("{path} {sparse:?} {older}: {report:?}");
            assert_eq!(report.ended, Ended::Eof, "{what}");
            assert!(content(&sink) == content(&source), "{what}");
            sink.write_all_at(&text, 6 << 20).unwrap();
            assert!(is_compressed(&sink, 6), "{what}");
            assert!([1, 3].iter().all(|at| is_compressed(&sink, *at)), "{what}");
        }
    }
}

/// Direct I/O bypasses compression before Linux 6.15, and reserves the blocks of its sink.
#[test]
fn a_large_copy_that_is_synced_is_compressed() {
    let _dog = watchdog("a_large_copy_that_is_synced_is_compressed");
    let Some(mount) = compressing() else {
        return;
    };
    let text = text(17 * MIB);
    let source = tempfile::tempfile().unwrap();
    source.write_all_at(&text, 0).unwrap();
    source.sync_all().unwrap();
    let cold = || rustix::fs::fadvise(&source, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    for direct in [Direct::Auto, Direct::Always] {
        cold();
        let sink = mount.file("sink");
        let request = Request {
            sync: true,
            source_offset: Some(0),
            direct,
            ..any()
        };
        let report = run(&source, &sink, request).report;
        let what = format!("{direct:?}: {report:?}");
        assert_eq!(report.ended, Ended::Eof, "{what}");
        let is_direct = report.path.contains(&DataPath::Direct);
        assert!(direct == Direct::Always || !is_direct, "{what}");
        assert!(content(&sink) == text, "{what}");
        sink.write_all_at(&text[..MIB], 20 << 20).unwrap();
        assert!(is_compressed(&sink, 20), "{what}");
        assert!(is_direct || is_compressed(&sink, 0), "{what}");
    }
}
