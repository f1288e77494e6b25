//! Sectors that the device cannot read or write, within a block: all bytes before
//! them arrive.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::direct;
use crate::common::mount::{Loop, Mount};
use crate::common::{self, MIB, file_with, pattern, position, run, watchdog};
use cordboard::DataPath::Direct;
use cordboard::{Ended, Errno, Observer, Progress, Request, Side, Transfer};
use rustix::fs::FallocateFlags;

/// Drops the file's pages from the page cache.
fn cold(file: &File) {
    rustix::fs::fsync(file).unwrap();
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// A loop device whose file was truncated can be read up to its end.
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
        if source.read_at(&mut [0; 512], keep as u64).is_ok() {
            // Seen with Linux 5.10.
            let name = "a_source_is_read_up_to_its_bad_sector";
            return testkit::skip::report(name, "a loop device reads zeros past its file here");
        }
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
    // A sink that gets no byte keeps its length.
    image.set_len(0).unwrap();
    cold(&source);
    common::rewind(&source);
    let request = Request {
        sink_offset: Some(8 << 20),
        ..direct()
    };
    for old in [&b""[..], b"old"] {
        let sink = file_with(old);
        let report = run(&source, &sink, request.clone()).report;
        assert_eq!(
            (report.ended, report.written),
            (Ended::Error, 0),
            "{report:?}"
        );
        assert!(common::content(&sink) == old);
    }
}

/// A loop device whose file has space up to the middle of a block: the counted bytes
/// are on the device, and the transfer ends with the device's error, synced or not.
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
    // A request whose start fits succeeds in the loop driver, so requests must end at
    // the end of the space.
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

/// Makes space on a device after this many calls.
struct MakeRoom<'a> {
    calls: u32,
    after: u32,
    ballast: &'a Path,
}

impl Observer for MakeRoom<'_> {
    fn progress(&mut self, _: &Progress) {
        if self.calls == self.after {
            give_back(self.ballast);
        }
        self.calls += 1;
    }
}

/// Frees the blocks of a file. A removed one keeps them while a child of another test has
/// inherited its descriptor.
fn give_back(file: &Path) {
    File::create(file).unwrap();
}

/// A full device is extended while the transfer runs. The head of the first page goes
/// through the page cache, and its writeback fails. The sync of a later piece returns
/// that error, which `fsync(2)` at the end does not report again. Whenever the device
/// is extended, the transfer does not report lost bytes as a success. Linux 5.10
/// reports the error at the first sync, before any extension that is tried: there
/// only an extension before the transfer succeeds.
#[test]
fn an_error_of_a_sync_is_for_good() {
    let _dog = watchdog("an_error_of_a_sync_is_for_good");
    let data = pattern(2 * MIB);
    let (mut failed, mut succeeded, mut moments) = (0, 0, 0);
    for sync in [true, false] {
        for after in std::iter::once(None).chain((0..).map(Some)) {
            let Some(memory) = Mount::new("tmpfs", 8 << 20) else {
                return;
            };
            let (backing, name) = (memory.path().join("backing"), memory.path().join("ballast"));
            let Some(device) = Loop::new(|image| {
                File::create(&backing).unwrap().set_len(4 << 20).unwrap();
                std::os::unix::fs::symlink(&backing, image).unwrap();
                let mut ballast = File::create(&name).unwrap();
                while ballast.write(&[1; 4096]).is_ok_and(|n| n > 0) {}
            }) else {
                return;
            };
            let (mut source, mut sink) = (file_with(&data), device.open());
            source.seek(SeekFrom::Start(512)).unwrap();
            sink.seek(SeekFrom::Start(512)).unwrap();
            let mut room = MakeRoom {
                calls: 0,
                after: after.unwrap_or(u32::MAX),
                ballast: &name,
            };
            if after.is_none() {
                give_back(&name);
            }
            let request = Request { sync, ..direct() };
            let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
            let report = transfer.observe(&mut room).run().report;
            let calls = room.calls;
            // Read through another description with `O_DIRECT`.
            let synced = sink.sync_all();
            let mut found = vec![0; data.len() - 512];
            (File::open(&backing).unwrap().read_exact_at(&mut found, 512)).unwrap();
            let whole = found == data[512..];
            let what = format!("{after:?}, sync {sync}: {report:?}");
            if report.ended == Ended::Eof {
                succeeded += usize::from(after.is_some());
                assert_eq!(report.errno, None, "{what}");
                // Without a sync, the caller's own `fsync(2)` reports the loss.
                assert!(whole || !sync && synced.is_err(), "lost bytes: {what}");
            } else {
                assert!(after.is_some(), "{what}");
                failed += 1;
                assert_eq!(report.failed, Some(Side::Sink), "{what}");
                assert_eq!(report.errno, Some(Errno::EIO), "{what}");
            }
            let path: &[_] = if report.written > 0 { &[Direct] } else { &[] };
            assert_eq!(report.path, path, "{what}");
            if let Some(after) = after {
                moments += calls;
                if calls <= after {
                    break;
                }
            }
        }
    }
    assert!(failed > 0, "{failed} {succeeded}");
    assert_eq!(succeeded > 0, moments > 0, "{failed} {succeeded}");
}

/// Shuts down the source's file system: before the first byte, or after some bytes.
struct Ends<'a>(&'a Mount, Option<bool>);

impl Ends<'_> {
    fn now(&mut self) {
        let at = self.0.path();
        let args = ["-x", "-c", "shutdown -f", at.to_str().unwrap()];
        self.1 = Some(Mount::run("xfs_io", &args));
    }
}

impl Observer for &mut Ends<'_> {
    fn progress(&mut self, progress: &Progress) {
        if progress.written > 0 && self.1.is_none() {
            self.now();
        }
    }
}

/// An xfs that has shut down fails each call on its files with `EIO`, including
/// `lseek(2)` and the second open of direct I/O. Each path reports this as the
/// source's failure.
#[test]
fn a_source_whose_file_system_has_shut_down_is_named() {
    use cordboard::DataPath::{ReadWrite, Sendfile, Splice};
    let _dog = watchdog("a_source_whose_file_system_has_shut_down_is_named");
    let data = pattern(24 * MIB);
    for (path, early) in [
        (Sendfile, false),
        (Splice, false),
        (ReadWrite, false),
        (Direct, false),
        (Direct, true),
    ] {
        let Some(mount) = Mount::new("xfs", 320 << 20) else {
            return;
        };
        let source = mount.file("source");
        source.write_all_at(&data, 0).unwrap();
        cold(&source);
        let sink = tempfile::tempfile().unwrap();
        let request = Request {
            // Direct I/O then reads no position.
            source_offset: (path == Direct).then_some(0),
            sink_offset: (path == Direct).then_some(0),
            switches: Some(cordboard::Switches::only(&[path])),
            ..direct()
        };
        (&source).seek(SeekFrom::Start(0)).unwrap();
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        let mut ends = Ends(&mount, None);
        if early {
            ends.now();
        }
        let report = transfer.observe(&mut ends).run().report;
        if ends.1 != Some(true) {
            return testkit::skip::here(format!("no xfs that shuts down: {report:?}"));
        }
        assert_eq!(
            (report.ended, report.failed, report.errno),
            (Ended::Error, Some(Side::Source), Some(Errno::EIO)),
            "{path} {early}: {report:?}"
        );
        assert_eq!(report.written == 0, early, "{report:?}");
        let kept = common::content(&sink);
        assert!(kept[..report.written as usize] == data[..report.written as usize]);
    }
}
