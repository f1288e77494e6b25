//! Properties of some file systems: false holes, lack of space in unexpected calls, files
//! that cannot be written, false sizes. The file systems are made in memory and
//! mounted, which needs root.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use crate::common::mount::Mount;
use crate::common::{self, any, content, only, pattern, position, run, watchdog};
use cordboard::DataPath::{Clone, CopyFileRange, ReadWrite, Sendfile, Splice};
use cordboard::{Ended, Errno, Request, Side};

const MIB: usize = 1 << 20;

/// A hole that `SEEK_DATA` reports is read if the extent map of xfs has bytes there.
#[test]
fn a_hole_of_xfs_with_bytes_in_the_extent_map_is_read() {
    let _dog = watchdog("a_hole_of_xfs_with_bytes_in_the_extent_map_is_read");
    let Some(mount) = Mount::new("xfs", 320 << 20) else {
        return;
    };
    let (source, sink) = (mount.file("source"), mount.file("sink"));
    source.write_all_at(&pattern(MIB), 8 * MIB as u64).unwrap();
    let mut report = None;
    let body = || report = Some(run(&source, &sink, only(&[ReadWrite])).report);
    // Between SEEK_DATA and the query of the map.
    let meanwhile = || {
        source.write_all_at(&pattern(4096), 4 * MIB as u64).unwrap();
        source.sync_data().unwrap();
    };
    let Some(queries) = testkit::midst::at_each(&[libc::SYS_ioctl], body, meanwhile) else {
        return testkit::skip::here("no seccomp_unotify(2) here");
    };
    assert!(queries > 0);
    assert_eq!(report.unwrap().written, 9 * MIB as u64);
    assert!(content(&sink) == content(&source));
    assert!(sink.metadata().unwrap().blocks() * 512 < 4 * MIB as u64);
}

/// xfs of Linux 5.1 to 6.8 reports bytes as a hole, behind a block that was changed after a
/// reflink.
#[test]
fn bytes_beside_a_changed_block_of_a_reflink_are_copied() {
    let _dog = watchdog("bytes_beside_a_changed_block_of_a_reflink_are_copied");
    const BLOCK: usize = 4096;
    let Some(mount) = Mount::new("xfs", 320 << 20) else {
        return;
    };
    let (first, source, sink) = (
        mount.file("first"),
        mount.file("source"),
        mount.file("sink"),
    );
    for at in [0, 16 * BLOCK, 2 * MIB] {
        first.write_all_at(&pattern(BLOCK), at as u64).unwrap();
    }
    first.sync_all().unwrap();
    rustix::fs::ioctl_ficlone(&source, &first).unwrap();
    // Preallocates 128 KiB for the copy, over the hole and the second block.
    source.write_all_at(&[7; BLOCK], 0).unwrap();
    source.sync_all().unwrap();
    // SEEK_DATA finds bytes that are in the page cache.
    rustix::fs::fadvise(&source, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let report = run(&source, &sink, only(&[ReadWrite])).report;
    assert_eq!(report.written, (2 * MIB + BLOCK) as u64);
    assert!(content(&sink) == content(&source));
    assert!(sink.metadata().unwrap().blocks() * 512 < MIB as u64);
}

/// Fills a file system except for about this many bytes.
fn fill(mount: &Mount, but: usize) {
    let ballast = mount.file("ballast");
    let (block, mut at) = (vec![1; 64 << 10], 0);
    while let Ok(n @ 1..) = ballast.write_at(&block, at) {
        at += n as u64;
    }
    ballast.set_len(at.saturating_sub(but as u64)).unwrap();
    ballast.sync_all().unwrap();
}

#[test]
fn no_room_left_on_the_sink() {
    let _dog = watchdog("no_room_left_on_the_sink");
    let data = pattern(4 * MIB);
    for (kind, size) in [("tmpfs", 8 << 20), ("ext4", 16 << 20)] {
        let Some(mount) = Mount::new(kind, size) else {
            continue;
        };
        fill(&mount, MIB);
        for path in common::forcible(&[CopyFileRange, Sendfile, Splice, ReadWrite]) {
            let inside = mount.path().join("source");
            // copy_file_range(2) requires one file system.
            let source = if path == CopyFileRange {
                let file = mount.file("source");
                file.write_all_at(&data[..600 << 10], 0).unwrap();
                file
            } else {
                common::file_with(&data)
            };
            let sink = mount.file("sink");
            let report = run(&source, &sink, only(&[path])).report;
            let what = format!("{kind} by {path}: {report:?}");
            assert_eq!(report.errno, Some(Errno::ENOSPC), "{what}");
            assert_eq!(
                (report.failed, report.ended),
                (Some(Side::Sink), Ended::Error),
                "{what}"
            );
            assert_eq!(
                (report.read, report.stranded),
                (report.written, 0),
                "{what}"
            );
            assert_eq!(position(&source), report.written, "{what}");
            let got = content(&sink);
            assert_eq!(got.len() as u64, report.written, "{what}");
            assert!(got == data[..got.len()], "{what}");
            drop((source, sink));
            let _ = std::fs::remove_file(inside);
            std::fs::remove_file(mount.path().join("sink")).unwrap();
        }
    }
}

/// A length that is too large does not fill the disk with zeros.
#[test]
fn a_hole_past_the_longest_file_is_refused_at_once() {
    let _dog = watchdog("a_hole_past_the_longest_file_is_refused_at_once");
    let Some(mount) = Mount::new("ext4", 16 << 20) else {
        return;
    };
    let memory = rustix::fs::memfd_create("holes", rustix::fs::MemfdFlags::CLOEXEC);
    let source = File::from(memory.unwrap());
    source.set_len(17 << 40).unwrap();
    let sink = mount.file("sink");
    let report = run(&source, &sink, any()).report;
    let expected = (Ended::Error, Some(Side::Sink), Some(Errno::EFBIG));
    assert_eq!((report.ended, report.failed, report.errno), expected);
    assert_eq!(report.written, 0, "{report:?}");
    assert_eq!(sink.metadata().unwrap().len(), 0);
}

#[test]
fn an_empty_file_goes_by_whatever_path_is_forced() {
    let _dog = watchdog("an_empty_file_goes_by_whatever_path_is_forced");
    for (kind, size) in [("xfs", 320 << 20), ("btrfs", 256 << 20)] {
        let Some(mount) = Mount::new(kind, size) else {
            continue;
        };
        for path in common::forcible(&[Clone, CopyFileRange, Sendfile, Splice, ReadWrite]) {
            let (source, sink) = (mount.file("empty"), mount.file("sink"));
            let report = run(&source, &sink, only(&[path])).report;
            assert_eq!(
                (report.ended, report.written),
                (Ended::Eof, 0),
                "{kind} {path}"
            );
            assert_eq!(report.path, [path], "{kind}");
        }
    }
}

/// The page cache accepts the write, and the disk under it is full: only `fsync(2)`
/// reports that.
#[test]
fn sync_tells_what_the_write_could_not() {
    let _dog = watchdog("sync_tells_what_the_write_could_not");
    // A loop device whose image is on a tmpfs that is too small for it.
    let Some(small) = Mount::new("tmpfs", 24 << 20) else {
        return;
    };
    let image = small.path().join("image");
    File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let (image, at) = (
        image.to_str().unwrap().to_owned(),
        small.dir.path().join("on"),
    );
    std::fs::create_dir(&at).unwrap();
    let on = at.to_str().unwrap();
    let made = Mount::run("mkfs.ext4", &["-q", "-F", "-O", "^has_journal", &image])
        && Mount::run("mount", &["-o", "loop", &image, on]);
    if !made {
        testkit::skip::here("ext4 cannot be made and mounted here");
        return;
    }
    let source = common::file_with(&pattern(40 * MIB));
    let mut reports = Vec::new();
    for sync in [false, true] {
        let sink = File::create(at.join("sink")).unwrap();
        let request = Request {
            sync,
            source_offset: Some(0),
            ..any()
        };
        reports.push(run(&source, &sink, request).report);
    }
    Mount::run("umount", &["-l", on]);
    assert_eq!(reports[0].ended, Ended::Eof, "{:?}", reports[0]);
    let synced = &reports[1];
    assert_eq!(synced.failed, Some(Side::Sink), "{synced:?}");
    assert!(
        matches!(synced.errno, Some(Errno::EIO | Errno::ENOSPC)),
        "{synced:?}"
    );
}

#[test]
fn an_immutable_sink_is_an_error_that_changes_nothing() {
    let _dog = watchdog("an_immutable_sink_is_an_error_that_changes_nothing");
    let Some(mount) = Mount::new("ext4", 32 << 20) else {
        return;
    };
    let data = pattern(MIB);
    let source = mount.file("source");
    source.write_all_at(&data, 0).unwrap();
    let change = |flag: &str, path: &Path| Mount::run("chattr", &[flag, path.to_str().unwrap()]);
    let sink = mount.file("sink");
    let path = mount.path().join("sink");
    if !change("+i", &path) {
        testkit::skip::here("no immutable files here");
        return;
    }
    // Open before it was made immutable: every write is EPERM.
    for paths in [
        &[CopyFileRange][..],
        &[CopyFileRange, Sendfile, Splice, ReadWrite],
    ] {
        if paths == [CopyFileRange] && common::forcible(paths).is_empty() {
            continue;
        }
        let request = Request {
            source_offset: Some(0),
            ..only(paths)
        };
        let report = run(&source, &sink, request).report;
        assert_eq!(report.ended, Ended::Error, "{report:?}");
        assert_eq!(report.errno, Some(Errno::EPERM), "{report:?}");
        assert_eq!((report.read, report.written, report.stranded), (0, 0, 0));
        // Or read/write is tried first.
        let declined = report.declined.iter().find(|d| d.path == CopyFileRange);
        assert!(paths.contains(&ReadWrite) || declined.is_some());
        assert!(
            declined.is_none_or(|d| d.why.to_string() == "EPERM"),
            "{report:?}"
        );
    }
    assert!(change("-i", &path));
    let request = Request {
        source_offset: Some(0),
        ..any()
    };
    let report = run(source.as_fd(), &sink, request).report;
    assert_eq!((report.ended, report.written), (Ended::Eof, MIB as u64));
    assert!(content(&sink) == data);
}
