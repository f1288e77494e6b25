//! Block devices that are parts of one disk or file.

use std::os::unix::fs::FileExt;
use std::process::Command;

use super::*;
use common::mount::{Loop, Mount};
use cordboard::{Direct, Failure, FanIn, FanOut, Refusal};

const MIB: usize = 1 << 20;

/// Another loop device, over a file or a device. Detached when dropped.
struct Attached(String);

impl Attached {
    fn new(args: &[&str]) -> Option<Attached> {
        let mut losetup = Command::new("losetup");
        let made = losetup.args(["--find", "--show"]).args(args).output();
        match made.ok().filter(|made| made.status.success()) {
            Some(made) => Some(Attached(
                String::from_utf8(made.stdout).unwrap().trim().into(),
            )),
            None => {
                testkit::skip::here("no other loop device here");
                None
            }
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        Mount::run("losetup", &["-d", &self.0]);
    }
}

/// A partition of a loop device. Removed when dropped.
struct Partition<'a>(&'a str);

impl Partition<'_> {
    /// The second MiB of a device, and half of the third.
    fn new(device: &str) -> Option<Partition<'_>> {
        if !Mount::run("addpart", &[device, "1", "2048", "3072"]) {
            testkit::skip::here("no addpart(8), or no partitions here");
            return None;
        }
        let partition = Partition(device);
        if std::fs::exists(partition.path()).is_ok_and(|exists| exists) {
            return Some(partition);
        }
        testkit::skip::here("the partition has no name in /dev");
        None
    }

    fn path(&self) -> String {
        format!("{}p1", self.0)
    }
}

impl Drop for Partition<'_> {
    fn drop(&mut self) {
        Mount::run("delpart", &[self.0, "1"]);
    }
}

fn open(path: &str) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

fn refused(source: &File, sink: &File) -> Option<Refusal> {
    let request = Request {
        direct: Direct::Always,
        ..any()
    };
    let made = Transfer::new(source.as_fd(), sink.as_fd(), request);
    made.err().and_then(|Failure { refusal, .. }| refusal)
}

/// The part begins at 1 MiB of the whole.
fn are_one(whole: &str, part: &str, data: &[u8]) {
    let (from, to) = (open(whole), open(part));
    from.write_all_at(data, 0).unwrap();
    from.sync_all().unwrap();
    assert_eq!(refused(&from, &to), Some(Refusal::Overlap), "{part}");
    let zero = open("/dev/zero");
    let sinks = FanOut::new(zero.as_fd(), &[from.as_fd(), to.as_fd()], any());
    let refusal = sinks.err().map(|refused| refused.refusal);
    assert_eq!(refusal, Some(Refusal::SameSinks), "{part}");
    let text = Refusal::SameSinks.to_string();
    assert!(text.contains("parts of one device"), "{text}");
    let sink = open("/dev/null");
    let sources = FanIn::new(&[from.as_fd(), to.as_fd()], sink.as_fd(), any());
    assert!(sources.is_ok(), "{part}");
    // Down, block by block.
    let request = Request {
        sync: true,
        direct: Direct::Always,
        ..any()
    };
    let report = run(&to, &from, request).report;
    assert_eq!(report.path, [ReadWrite], "{report:?}");
    let length = report.written as usize;
    assert!(length > MIB, "{report:?}");
    let mut found = vec![0; data.len()];
    open(whole).read_exact_at(&mut found, 0).unwrap();
    assert!(found[..length] == data[MIB..][..length], "{part}");
    assert!(found[length..] == data[length..], "{part}");
}

#[test]
fn a_disk_and_its_partition_are_one() {
    let _dog = watchdog("a_disk_and_its_partition_are_one");
    let data = pattern(4 * MIB);
    let Some(disk) = Loop::new(|image| std::fs::write(image, &data).unwrap()) else {
        return;
    };
    if let Some(partition) = Partition::new(&disk.device) {
        are_one(&disk.device, &partition.path(), &data);
    }
}

#[test]
fn loop_devices_over_one_file_are_one() {
    let _dog = watchdog("loop_devices_over_one_file_are_one");
    let data = pattern(4 * MIB);
    let Some(disk) = Loop::new(|image| std::fs::write(image, &data).unwrap()) else {
        return;
    };
    let image = disk.dir.path().join("image");
    let image = image.to_str().unwrap();
    // Over the same file, and over the first device.
    for below in [image, &disk.device] {
        let place = ["--offset=1048576", "--sizelimit=1572864", below];
        let Some(part) = Attached::new(&place) else {
            return;
        };
        are_one(&disk.device, &part.0, &data);
        let (file, part) = (open(image), open(&part.0));
        if below == image {
            assert_eq!(refused(&file, &part), Some(Refusal::Overlap));
        }
        // Behind the bytes of the part.
        let elsewhere = ["--offset=2621440", image];
        let Some(other) = Attached::new(&elsewhere) else {
            return;
        };
        assert_eq!(refused(&part, &open(&other.0)), None);
    }
}
