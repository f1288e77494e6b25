//! Properties of some file systems: clones, lack of space in unexpected calls, files
//! that cannot be written, false sizes. The file systems are made in memory and
//! mounted, which needs root.

use std::fs::File;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use crate::common::mount::Mount;
use crate::common::{self, any, content, only, pattern, position, run, watchdog};
use cordboard::DataPath::{Clone, CopyFileRange, ReadWrite, Sendfile, Splice};
use cordboard::{
    Control, Direct, Ended, Errno, Observer, Progress, Request, Schedule, Side, Transfer,
};

const MIB: usize = 1 << 20;

/// Fails if a transfer is ahead of its rate after any step.
struct Bound(u64);

impl Observer for Bound {
    fn progress(&mut self, progress: &Progress) {
        let allowed = u128::from(self.0) * progress.elapsed.as_nanos() / 1_000_000_000;
        assert!(u128::from(progress.read) <= allowed, "{progress:?}");
    }
}

/// A clone at a rate is made in pieces of whole blocks, and remains a clone.
#[test]
fn a_clone_is_made_in_pieces_at_a_rate() {
    let _dog = watchdog("a_clone_is_made_in_pieces_at_a_rate");
    const RATE: u64 = 20 << 20;
    for (kind, size) in [("xfs", 320 << 20), ("btrfs", 256 << 20)] {
        let Some(mount) = Mount::new(kind, size) else {
            continue;
        };
        let data = pattern(2 * MIB + 17);
        let (source, sink) = (mount.file("source"), mount.file("sink"));
        source.write_all_at(&data, 0).unwrap();
        let control = Control::new().unwrap();
        control.set_schedule(Schedule::rate(RATE));
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), any()).unwrap();
        let report = transfer.control(&control).observe(Bound(RATE)).run().report;
        assert_eq!(report.path, [Clone], "{kind}: {report:?}");
        assert_eq!(
            (report.ended, report.declined.len()),
            (Ended::Eof, 0),
            "{kind}"
        );
        assert_eq!(report.written, data.len() as u64, "{kind}");
        assert!(content(&sink) == data, "{kind}");
    }
}

/// Lengthens a file once the transfer has begun.
struct Grows<'a>(&'a File, Option<&'a [u8]>);

impl Observer for Grows<'_> {
    fn progress(&mut self, progress: &Progress) {
        if let Some(more) = self.1.take_if(|_| progress.read > 0) {
            let end = self.0.metadata().unwrap().len();
            self.0.write_all_at(more, end).unwrap();
        }
    }
}

/// A grant for the last bytes of its first size would be shorter than a block.
#[test]
fn a_file_that_grows_is_cloned_at_a_rate() {
    let _dog = watchdog("a_file_that_grows_is_cloned_at_a_rate");
    for (kind, size) in [("xfs", 320 << 20), ("btrfs", 256 << 20)] {
        let Some(mount) = Mount::new(kind, size) else {
            continue;
        };
        // At the lower rate, a piece of 10 ms is shorter than a block as well.
        for (rate, length) in [(20 << 20, MIB), (100_000, 20_000)] {
            let data = pattern(2 * length + 17);
            let (source, sink) = (mount.file("source"), mount.file("sink"));
            source.write_all_at(&data[..length + 17], 0).unwrap();
            let control = Control::new().unwrap();
            control.set_schedule(Schedule::rate(rate));
            let transfer = Transfer::new(source.as_fd(), sink.as_fd(), any()).unwrap();
            let grows = Grows(&source, Some(&data[length + 17..]));
            let report = transfer.control(&control).observe(grows).run().report;
            assert_eq!(report.path, [Clone], "{kind}: {report:?}");
            assert_eq!(report.written, data.len() as u64, "{kind}: {report:?}");
            assert!(content(&sink) == data, "{kind}");
        }
    }
}

/// No piece of a clone is shorter than a block of the file system, so bursts that are take
/// another path.
#[test]
fn bursts_that_are_shorter_than_a_block_are_copied() {
    let _dog = watchdog("bursts_that_are_shorter_than_a_block_are_copied");
    for (kind, size) in [("xfs", 320 << 20), ("btrfs", 256 << 20)] {
        let Some(mount) = Mount::new(kind, size) else {
            continue;
        };
        let data = pattern(30_000);
        let (source, sink) = (mount.file("source"), mount.file("sink"));
        source.write_all_at(&data, 0).unwrap();
        let control = Control::new().unwrap();
        control.set_schedule(Schedule::blocks(2, Duration::from_millis(1)));
        let request = Request {
            block: NonZeroUsize::new(1000),
            ..any()
        };
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        let report = transfer.control(&control).run().report;
        assert!(!report.path.contains(&Clone), "{kind}: {report:?}");
        let declined = report.declined.iter().any(|one| one.path == Clone);
        assert!(declined, "{kind}: {report:?}");
        assert!(content(&sink) == data, "{kind}");
    }
}

#[test]
fn a_clone_moves_both_positions_and_counts_exactly() {
    let _dog = watchdog("a_clone_moves_both_positions_and_counts_exactly");
    for (kind, size) in [("xfs", 320 << 20), ("btrfs", 256 << 20)] {
        let Some(mount) = Mount::new(kind, size) else {
            continue;
        };
        let data = pattern(4 * MIB + 17);
        let (source, sink) = (mount.file("source"), mount.file("sink"));
        source.write_all_at(&data, 0).unwrap();
        let report = run(&source, &sink, any()).report;
        assert_eq!(report.path, [Clone], "{kind}: {report:?}");
        assert_eq!(report.declined, [], "{kind}");
        assert_eq!(
            (report.ended, report.read),
            (Ended::Eof, data.len() as u64),
            "{kind}"
        );
        let here = data.len() as u64;
        assert_eq!((position(&source), position(&sink)), (here, here), "{kind}");
        assert!(content(&sink) == data, "{kind}");
        // A part of the file, with explicit offsets: no position moves.
        let part = mount.file("part");
        let request = Request {
            source_offset: Some(MIB as u64),
            sink_offset: Some(0),
            size: (2 * MIB as u64).into(),
            ..any()
        };
        let report = run(&source, &part, request).report;
        assert_eq!(
            (report.ended, &report.path[..]),
            (Ended::Size, &[Clone][..]),
            "{kind}"
        );
        assert_eq!((position(&source), position(&part)), (here, 0), "{kind}");
        assert!(content(&part) == data[MIB..3 * MIB], "{kind}");
        // Off the block boundaries: refused, and copied.
        let odd = mount.file("odd");
        let request = Request {
            source_offset: Some(1),
            ..any()
        };
        let report = run(&source, &odd, request).report;
        let path = common::carried_by(&[CopyFileRange, ReadWrite]);
        assert_eq!(report.path, path, "{kind}: {report:?}");
        let clone = report.declined.iter().find(|d| d.path == Clone).unwrap();
        assert_eq!(clone.why.to_string(), "EINVAL", "{kind}: {report:?}");
        assert!(content(&odd) == data[1..], "{kind}");
        // Switched off: copied, though a clone would work.
        let off = mount.file("off");
        let request = Request {
            source_offset: Some(0),
            ..only(&[CopyFileRange, Sendfile, Splice, ReadWrite])
        };
        assert!(
            !run(&source, &off, request).report.path.contains(&Clone),
            "{kind}"
        );
        assert!(content(&off) == data, "{kind}");
        // Holes are cloned too.
        let (holes, copy) = (mount.file("holes"), mount.file("copy"));
        holes.write_all_at(&data[..4096], 8 << 20).unwrap();
        holes.set_len(16 << 20).unwrap();
        let report = run(&holes, &copy, any()).report;
        assert_eq!(
            (report.written, &report.path[..]),
            (16 << 20, &[Clone][..]),
            "{kind}"
        );
        assert!(copy.metadata().unwrap().blocks() <= holes.metadata().unwrap().blocks());
        assert!(content(&copy) == content(&holes), "{kind}");
    }
}

/// The source's length changes before the clone: the count is that of the bytes that
/// the sink received, and its other bytes are unchanged.
#[test]
fn a_source_that_changes_its_length_at_a_clone() {
    let _dog = watchdog("a_source_that_changes_its_length_at_a_clone");
    let data = pattern(4 * MIB + 17);
    for (kind, size) in [("xfs", 320 << 20), ("btrfs", 256 << 20)] {
        let Some(mount) = Mount::new(kind, size) else {
            continue;
        };
        for (had, length, then) in [
            (0, MIB + 17, 3 * MIB + 5),
            (0, 3 * MIB + 5, MIB + 17),
            (0, MIB + 17, 0),
            (4 * MIB + 17, MIB + 17, 3 * MIB),
        ] {
            let what = format!("{kind}: {length}, then {then}, over {had}");
            let (source, sink) = (mount.file("source"), mount.file("sink"));
            source.write_all_at(&data[..length], 0).unwrap();
            sink.write_all_at(&vec![b'x'; had], 0).unwrap();
            let mut report = None;
            let clones = testkit::midst::refusing(
                &[libc::SYS_ioctl],
                || report = Some(run(&source, &sink, only(&[Clone])).report),
                |count| {
                    if count == 0 {
                        source.set_len(0).unwrap();
                        source.write_all_at(&data[..then], 0).unwrap();
                    }
                    None
                },
            );
            let (Some(report), Some(_)) = (report, clones) else {
                return testkit::skip::here("calls cannot be held here");
            };
            let written = report.written as usize;
            let there = content(&sink);
            assert_eq!(there.len(), had.max(written), "{what}: {report:?}");
            assert!(there[..written] == data[..written], "{what}: {report:?}");
            let rest = there[written..].iter().all(|byte| *byte == b'x');
            assert!(rest, "{what}: {report:?}");
            let cloned = if had == 0 { then } else { 0 };
            assert_eq!(written, cloned, "{what}: {report:?}");
        }
    }
}

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

/// Direct I/O looks for holes before it declines.
#[test]
fn a_clone_after_direct_io_takes_a_file_with_holes() {
    let _dog = watchdog("a_clone_after_direct_io_takes_a_file_with_holes");
    for (kind, size) in [("xfs", 320 << 20), ("btrfs", 256 << 20)] {
        let Some(mount) = Mount::new(kind, size) else {
            continue;
        };
        let (source, sink) = (mount.file("source"), mount.file("sink"));
        for at in [0, 8 * MIB, 16 * MIB] {
            source.write_all_at(&pattern(MIB), at as u64).unwrap();
        }
        source.set_len(24 * MIB as u64).unwrap();
        let request = Request {
            direct: Direct::Always,
            // Less than direct I/O allows.
            block: NonZeroUsize::new(100),
            ..any()
        };
        let report = run(&source, &sink, request).report;
        assert_eq!(report.ended, Ended::Eof, "{kind}: {report:?}");
        assert_eq!(report.path, [Clone], "{kind}: {report:?}");
        assert_eq!(
            report.declined[0].path,
            cordboard::DataPath::Direct,
            "{report:?}"
        );
        assert_eq!(report.written, 24 * MIB as u64, "{kind}: {report:?}");
        assert!(content(&sink) == content(&source), "{kind}");
    }
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
