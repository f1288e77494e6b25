//! Every size, and every offset within a block.

use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use super::{audit, direct, whole};
use crate::common::mount::Mount;
use crate::common::{
    MIB, alone, any, content, file_with, may_choose_direct, pattern, position, run, watchdog,
};
use cordboard::DataPath::Direct;
use cordboard::{Ended, Endpoint, Request, Size, Sparse, Transfer};
use rustix::fs::OFlags;
use testkit::needs::Need;

const SIZES: [usize; 12] = [
    0,
    1,
    4095,
    4096,
    4097,
    65_536,
    65_537,
    MIB - 1,
    MIB,
    MIB + 1,
    9 * MIB + 5000,
    33 * MIB + 511,
];

#[test]
fn whole_files_of_every_size() {
    let _dog = watchdog("whole_files_of_every_size");
    let all = pattern(SIZES[SIZES.len() - 1]);
    for size in SIZES {
        let (source, sink) = (file_with(&all[..size]), tempfile::tempfile().unwrap());
        let report = whole(&source, &sink, &all[..size], direct());
        assert_eq!(report.ended, Ended::Eof, "{report:?}");
    }
}

/// A part of a file into the middle of a longer one: the bytes around it stay.
#[test]
fn ranges_that_are_alike_within_a_block() {
    let _dog = watchdog("ranges_that_are_alike_within_a_block");
    let data = pattern(3 * MIB);
    let old = vec![0x55; 4 * MIB];
    for (from, to) in [(0, 4096), (8192, 0), (1, 4097), (4095, 4095), (700, 8892)] {
        for size in [1, 5000, 65_536, 2 * MIB + 77] {
            let (source, sink) = (file_with(&data), file_with(&old));
            let request = Request {
                source_offset: Some(from as u64),
                sink_offset: Some(to as u64),
                size: Size::Bytes(size as u64),
                ..direct()
            };
            let report = run(&source, &sink, request).report;
            assert_eq!(
                (report.ended, report.written, &report.path[..]),
                (Ended::Size, size as u64, &[Direct][..]),
                "{from} {to}: {report:?}"
            );
            // With offsets, both positions stay.
            assert_eq!((position(&source), position(&sink)), (0, 0));
            let mut right = old.clone();
            right[to..to + size].copy_from_slice(&data[from..from + size]);
            assert!(content(&sink) == right, "{from} {to} {size}");
        }
    }
}

/// A request begins at its offsets, on block devices too, not at the positions. Both
/// offsets may be within a block, at the same place.
#[test]
fn offsets_of_block_devices_decide() {
    let _dog = watchdog("offsets_of_block_devices_decide");
    crate::engine();
    if let Some(why) = testkit::loopdev::unavailable() {
        return testkit::skip::report("offsets_of_block_devices_decide", &why);
    }
    let size = 2 * MIB + 700;
    let (data, old) = (pattern(size + 512), vec![0x55; size + 8192]);
    let device = testkit::loopdev::LoopDevice::take().unwrap();
    let open = || std::fs::File::from(device.open(OFlags::RDWR).unwrap());
    for (file_at, at) in [(512u64, 512u64), (0, 4096), (512, 0), (0, 512)] {
        let alike = file_at % 4096 == at % 4096;
        for onto_device in [true, false] {
            let (disk, file) = (open(), file_with(&old));
            let ((source, from), (sink, to)) = match onto_device {
                true => ((&file, file_at), (&disk, at)),
                false => ((&disk, at), (&file, file_at)),
            };
            source.write_all_at(&data[..size], from).unwrap();
            sink.write_all_at(&old, 0).unwrap();
            let request = Request {
                source_offset: Some(from),
                sink_offset: Some(to),
                size: Size::Bytes(size as u64),
                direct: cordboard::Direct::Always,
                ..any()
            };
            let ends = [source, sink].map(|end| Endpoint::probe(end.as_fd()).unwrap());
            let planned = cordboard::plan::plan(&ends[0], &ends[1], &request).unwrap();
            let what = format!("{from} to {to}");
            let first = planned.choices[0].path;
            assert_eq!(first == Direct, alike, "{what}: {planned:?}");
            let report = run(source, sink, request).report;
            assert_eq!(report.path, [first], "{what}: {report:?}");
            assert_eq!(report.written, size as u64, "{what}: {report:?}");
            let mut found = vec![0; old.len()];
            sink.read_exact_at(&mut found, 0).unwrap();
            let mut right = old.clone();
            right[to as usize..][..size].copy_from_slice(&data[..size]);
            assert!(found == right, "{what}");
            assert_eq!(position(source) + position(sink), 0, "{what}");
        }
    }
}

/// The page cache is checked at the range to be read.
#[test]
fn what_is_cached_elsewhere_on_a_device_does_not_count() {
    let _dog = watchdog("what_is_cached_elsewhere_on_a_device_does_not_count");
    crate::engine();
    let name = "what_is_cached_elsewhere_on_a_device_does_not_count";
    if let Some(why) = testkit::loopdev::unavailable() {
        return testkit::skip::report(name, &why);
    }
    if !may_choose_direct() {
        return;
    }
    let device = testkit::loopdev::LoopDevice::take().unwrap();
    let disk = std::fs::File::from(device.open(OFlags::RDWR).unwrap());
    let (half, sink) = (32 * MIB as u64, tempfile::tempfile().unwrap());
    disk.sync_all().unwrap();
    rustix::fs::fadvise(&disk, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let mut front = vec![0; half as usize];
    disk.read_exact_at(&mut front, 0).unwrap();
    let ends = [&disk, &sink].map(|end| Endpoint::probe(end.as_fd()).unwrap());
    // Before Linux 6.5 no call reports what is cached, and direct I/O is not chosen.
    let told = Need::Cachestat.is_met();
    assert_eq!(ends[0].cached_share().is_some(), told);
    for (from, cold) in [(0, false), (2 * half, true)] {
        let request = Request {
            source_offset: Some(from),
            size: Size::Bytes(half),
            sync: true,
            ..any()
        };
        let planned = cordboard::plan::plan(&ends[0], &ends[1], &request).unwrap();
        let transfer = Transfer::new(disk.as_fd(), sink.as_fd(), request).unwrap();
        for route in [&planned, transfer.route()] {
            let direct = route.choices.iter().any(|choice| choice.path == Direct);
            assert_eq!(direct, cold && told, "{from}: {route:?}");
        }
    }
}

/// If the range begins behind the sink's end, the gap reads as zeros.
#[test]
fn a_gap_before_the_range_stays_a_gap() {
    let data = pattern(2 * MIB + 9);
    let (source, sink) = (file_with(&data), file_with(b"old"));
    let request = Request {
        source_offset: Some(0),
        sink_offset: Some(MIB as u64),
        ..direct()
    };
    let report = run(&source, &sink, request).report;
    assert_eq!(report.written, data.len() as u64, "{report:?}");
    let found = content(&sink);
    assert!(found[..3] == *b"old" && found[MIB..] == data);
    assert!(found[3..MIB].iter().all(|byte| *byte == 0));
}

#[test]
fn holes_stay_holes() {
    let _dog = watchdog("holes_stay_holes");
    let source = tempfile::tempfile().unwrap();
    source.set_len(40 * MIB as u64 + 100).unwrap();
    for island in [0, 3 * MIB + 1, 17 * MIB, 40 * MIB] {
        source.write_all_at(&pattern(100), island as u64).unwrap();
    }
    let data = content(&source);
    rustix::fs::seek(&source, rustix::fs::SeekFrom::Start(0)).unwrap();
    for (sparse, holes) in [(Sparse::Auto, true), (Sparse::Never, false)] {
        rustix::fs::seek(&source, rustix::fs::SeekFrom::Start(0)).unwrap();
        let sink = tempfile::tempfile().unwrap();
        whole(&source, &sink, &data, Request { sparse, ..direct() });
        let blocks = sink.metadata().unwrap().blocks() * 512;
        assert_eq!(blocks < MIB as u64, holes, "{blocks} with {sparse:?}");
    }
}

/// Descriptors with `O_DIRECT`: their flags stay as they are.
#[test]
fn flags_are_not_changed() {
    let data = pattern(5 * MIB + 123);
    let dir = tempfile::tempdir().unwrap();
    let name = |name: &str| dir.path().join(name);
    std::fs::write(name("source"), &data).unwrap();
    let open = |file: &str, flags: OFlags| {
        let flags = flags | OFlags::CREATE | OFlags::CLOEXEC;
        rustix::fs::open(
            name(file),
            flags,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        )
    };
    for extra in [
        OFlags::empty(),
        OFlags::DIRECT,
        OFlags::NONBLOCK,
        OFlags::DSYNC,
    ] {
        let source = open("source", OFlags::RDONLY | extra).unwrap();
        let sink = open("sink", OFlags::WRONLY | OFlags::TRUNC | extra).unwrap();
        let before = [&source, &sink].map(|fd| rustix::fs::fcntl_getfl(fd).unwrap());
        let report = run(source.as_fd(), sink.as_fd(), direct()).report;
        assert_eq!(
            (report.ended, report.written),
            (Ended::Eof, data.len() as u64)
        );
        let after = [&source, &sink].map(|fd| rustix::fs::fcntl_getfl(fd).unwrap());
        assert_eq!(before, after);
        assert!(std::fs::read(name("sink")).unwrap() == data, "{extra:?}");
    }
}

/// Bytes that another process has written through the page cache are read, though
/// they are not on the device yet; those in the sink's page cache are replaced.
#[test]
fn dirty_pages_on_both_sides() {
    let data = pattern(6 * MIB);
    let (source, sink) = (file_with(&data), file_with(&vec![9; 6 * MIB]));
    rustix::fs::seek(&sink, rustix::fs::SeekFrom::Start(0)).unwrap();
    for round in 0..3u8 {
        rustix::fs::seek(&source, rustix::fs::SeekFrom::Start(0)).unwrap();
        rustix::fs::seek(&sink, rustix::fs::SeekFrom::Start(0)).unwrap();
        source.write_all_at(&[round; 100_000], 50_000).unwrap();
        sink.write_all_at(&[round; 100_000], MIB as u64).unwrap();
        let now = {
            let mut now = data.clone();
            now[50_000..150_000].fill(round);
            now
        };
        whole(&source, &sink, &now, direct());
    }
}

/// The blocks of a sink are reserved only once. At a second reservation xfs would
/// need the same space again, and fail although the blocks are allocated.
#[test]
fn a_sink_that_takes_more_than_half_of_what_is_free() {
    let _dog = watchdog("a_sink_that_takes_more_than_half_of_what_is_free");
    let name = "a_sink_that_takes_more_than_half_of_what_is_free";
    // Transfers of other tests share the memory of direct I/O.
    if !alone!() {
        return;
    }
    let data = pattern(30 * MIB);
    for (kind, size) in [("ext4", 64 << 20), ("xfs", 320 << 20)] {
        let Some(mount) = Mount::new(kind, size) else {
            continue;
        };
        let ballast = mount.file("ballast");
        let room = rustix::fs::fstatvfs(&ballast).unwrap();
        let taken = (room.f_bavail * room.f_bsize).saturating_sub(50 << 20);
        let plain = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(&ballast, plain, 0, taken.max(1)).unwrap();
        let (source, sink) = (file_with(&data), mount.file("sink"));
        let report = run(&source, &sink, direct()).report;
        // Pages of buffered I/O are still cached.
        match Endpoint::probe(sink.as_fd()).unwrap().cached_share() {
            Some(share) => assert!(share < 0.1, "{kind}: {share} is cached: {report:?}"),
            None => testkit::skip::report(name, "the kernel does not tell (Linux 6.5)"),
        }
        audit(&report, &source, &sink, &data);
        assert_eq!(report.written, data.len() as u64, "{kind}: {report:?}");
    }
}
