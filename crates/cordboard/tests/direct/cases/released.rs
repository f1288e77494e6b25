//! Files are released once the end is reported: they are not open for writing
//! and not busy, even if the kernel still cleans up. Errors of their closes are reported.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;

use super::{CancelAt, direct};
use crate::common::mount::Mount;
use crate::common::{self, MIB, file_with, meanwhile, pattern, watchdog};
use cordboard::DataPath::{Direct, ReadWrite};
use cordboard::{Control, Ended, Errno, Request, Side, Switches, Transfer, start};
use rustix::fs::{Mode, OFlags};
use testkit::refuse::{apart, refuse};

/// A program of `MIB * 2` bytes and a bit: a script whose rest is never read.
fn program() -> Vec<u8> {
    let mut data = b"#!/bin/true\n".to_vec();
    data.resize(2 * MIB + 5, b'\n');
    data
}

/// Runs a copied program as soon as the end of the copy is reported. `execve(2)`
/// fails with `ETXTBSY` while it is open for writing.
#[test]
fn a_copied_program_runs_at_once() {
    let _dog = watchdog("a_copied_program_runs_at_once");
    if !common::alone!() {
        return;
    }
    let dir = tempfile::tempdir_in(".").unwrap();
    let source = file_with(&program());
    for round in 0..40 {
        common::rewind(&source);
        let name = dir.path().join(format!("p{round}"));
        let sink = File::create(&name).unwrap();
        sink.set_permissions(PermissionsExt::from_mode(0o755))
            .unwrap();
        let report = if round % 2 == 0 {
            let report = common::run(&source, &sink, direct()).report;
            drop(sink);
            report
        } else {
            let running = start(&source, &sink, direct()).unwrap();
            drop(sink);
            running.wait().report
        };
        assert_eq!(
            (report.ended, &report.path[..]),
            (Ended::Eof, &[Direct][..])
        );
        let status = std::process::Command::new(&name).status();
        assert!(status.is_ok_and(|s| s.success()), "round {round}");
    }
}

/// A file system can be unmounted, not lazily, as soon as a transfer into it has
/// ended: complete, cancelled, after another path took over.
#[test]
fn a_file_system_is_free_at_once() {
    let _dog = watchdog("a_file_system_is_free_at_once");
    let Some(mount) = Mount::new("ext4", 64 << 20) else {
        return;
    };
    let (image, at) = (mount.dir.path().join("image"), mount.path());
    let (image, at) = (image.to_str().unwrap(), at.to_str().unwrap());
    let data = pattern(12 * MIB + 99);
    let source = file_with(&data);
    for round in 0..12 {
        common::rewind(&source);
        let sink = mount.file("sink");
        let transfer = |request| Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        let report = match round % 3 {
            0 => transfer(direct()).run().report,
            1 => {
                let control = Control::new().unwrap();
                let observer = CancelAt(MIB as u64, control.clone());
                let transfer = transfer(direct()).control(&control);
                transfer.observe(observer).run().report
            }
            _ => {
                let mut append = meanwhile(|| {
                    let flags = rustix::fs::fcntl_getfl(&sink).unwrap();
                    let flags = flags | OFlags::APPEND;
                    rustix::fs::fcntl_setfl(&sink, flags).unwrap();
                });
                let request = Request {
                    switches: Some(Switches::only(&[Direct, ReadWrite])),
                    direct: cordboard::Direct::Always,
                    ..direct()
                };
                transfer(request).observe(&mut append).run().report
            }
        };
        assert_eq!(report.path[0], Direct, "{report:?}");
        drop(sink);
        assert!(Mount::run("umount", &[at]), "round {round}: {report:?}");
        assert!(Mount::run("mount", &["-o", "loop", image, at]));
    }
}

/// The close of a description that the path has opened may be the only one that gets an error
/// of the file system. A filter fails the call.
#[test]
fn the_error_of_its_own_close_is_reported() {
    let _dog = watchdog("the_error_of_its_own_close_is_reported");
    if !common::alone!() {
        return;
    }
    let data = pattern(MIB + 5);
    for flags in [OFlags::empty(), OFlags::DIRECT] {
        let (source, named) = (file_with(&data), tempfile::NamedTempFile::new().unwrap());
        let sink = rustix::fs::open(named.path(), OFlags::WRONLY | flags, Mode::empty()).unwrap();
        let report = apart(|| {
            let transfer = Transfer::new(source.as_fd(), sink.as_fd(), direct()).unwrap();
            refuse(&[libc::SYS_close], libc::ENOSPC);
            transfer.run().report
        });
        assert_eq!(
            (report.ended, report.failed, report.errno),
            (Ended::Error, Some(Side::Sink), Some(Errno::ENOSPC)),
            "{flags:?} {report:?}"
        );
        assert_eq!(report.path, [Direct], "{flags:?} {report:?}");
        assert_eq!(report.written, data.len() as u64, "{flags:?} {report:?}");
    }
}
