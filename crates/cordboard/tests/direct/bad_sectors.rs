//! Sectors that the device cannot read or write, in the midst of a block: all
//! that is before them arrives.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

use super::direct;
use crate::common::mount::{Loop, Mount};
use crate::common::{self, MIB, file_with, pattern, position, run, watchdog};
use cordboard::PathName::Direct;
use cordboard::{Ended, Errno, Request, Side};
use rustix::fs::FallocateFlags;

/// Nothing of it in the page cache.
fn cold(file: &File) {
    rustix::fs::fsync(file).unwrap();
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// A loop device whose file has been cut off reads as far as that.
#[test]
fn a_source_is_read_up_to_its_bad_sector() {
    let _dog = watchdog("a_source_is_read_up_to_its_bad_sector");
    let data = pattern(24 * MIB);
    let Some(device) = Loop::new(|image| std::fs::write(image, &data).unwrap()) else {
        return;
    };
    let source = device.open();
    let image = File::options()
        .write(true)
        .open(device.dir.path().join("image"))
        .unwrap();
    for keep in [11 * MIB + 3 * 4096, 5 * MIB, 4096] {
        image.set_len(keep as u64).unwrap();
        cold(&source);
        common::rewind(&source);
        let sink = tempfile::tempfile().unwrap();
        let report = run(&source, &sink, direct()).report;
        assert_eq!(
            (report.ended, report.failed, report.errno),
            (Ended::Error, Some(Side::Source), Some(Errno::EIO)),
            "{report:?}"
        );
        assert_eq!(report.path, [Direct]);
        assert_eq!(position(&source), report.written, "{report:?}");
        assert!(common::content(&sink) == data[..report.written as usize]);
        assert_eq!(report.written, keep as u64);
    }
}

/// A loop device whose file has room up to the middle of a block and no
/// further: what counts is on the device, and the transfer ends with the
/// device's error, synced or not.
#[test]
fn a_sink_is_written_up_to_its_bad_sector() {
    let _dog = watchdog("a_sink_is_written_up_to_its_bad_sector");
    let good = 8 * MIB + MIB / 2;
    let Some(memory) = Mount::new("tmpfs", 12 << 20) else {
        return;
    };
    let (backing, data) = (memory.path().join("backing"), pattern(24 * MIB));
    let Some(device) = Loop::new(|image| {
        let file = File::create(&backing).unwrap();
        file.set_len(24 << 20).unwrap();
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, good as u64).unwrap();
        std::os::unix::fs::symlink(&backing, image).unwrap();
        let mut ballast = memory.file("ballast");
        while ballast.write(&[1; 4096]).is_ok_and(|n| n > 0) {}
    }) else {
        return;
    };
    // A request that has room for its beginning succeeds in the loop driver,
    // so that they must end where the room does.
    let name = device.device.trim_start_matches("/dev/");
    let limit = format!("/sys/block/{name}/queue/max_sectors_kb");
    std::fs::write(limit, "512").unwrap();
    let (source, sink) = (file_with(&data), device.open());
    let request = Request {
        block: std::num::NonZeroUsize::new(MIB),
        ..direct()
    };
    let report = run(&source, &sink, request).report;
    assert_eq!(
        (report.ended, report.failed, report.errno),
        (Ended::Error, Some(Side::Sink), Some(Errno::EIO)),
        "{report:?}"
    );
    assert_eq!(
        (report.written, &report.path[..]),
        (good as u64, &[Direct][..])
    );
    assert_eq!(
        (position(&source), position(&sink)),
        (good as u64, good as u64)
    );
    let mut found = vec![0; good];
    let image = File::open(&backing).unwrap();
    image.read_exact_at(&mut found, 0).unwrap();
    assert!(found == data[..good]);
}
