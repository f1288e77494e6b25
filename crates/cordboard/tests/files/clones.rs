//! Clones: their pieces, their positions, and what comes before and after them. The file
//! systems are made in memory and mounted, which needs root.

use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;

use crate::common::mount::Mount;
use crate::common::{self, Grows, any, content, only, pattern, position, run, watchdog};
use cordboard::DataPath::{Clone, CopyFileRange, ReadWrite, Sendfile, Splice};
use cordboard::{Control, Direct, Ended, Observer, Progress, Request, Schedule, Transfer};

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
