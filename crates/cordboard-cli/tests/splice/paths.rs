//! Sinks that are paths.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use testkit::stall::{Call, Stall};

use super::common::*;

/// A file of another user in a directory in which all users may create files.
fn of_another(directory: &Path, kind: FileType) -> Option<PathBuf> {
    let path = directory.join(format!("{kind:?}"));
    let (mode, null) = (Mode::from_raw_mode(0o666), makedev(1, 3));
    mknodat(CWD, &path, kind, mode, null).ok()?;
    std::os::unix::fs::chown(&path, Some(4321), None).unwrap();
    Some(path)
}

/// Whether the kernel lets the shell write to it, which opens it with `O_CREAT`.
fn is_written_by_the_shell(path: &Path) -> bool {
    let mut shell = Command::new("sh");
    let shell = shell.args(["-c", r#": >> "$0""#]).arg(path);
    let written = shell.stderr(Stdio::null()).start().wait().unwrap();
    written.success()
}

/// The kernel refuses a device in any case, and files and FIFOs by `fs.protected_regular` and
/// `fs.protected_fifos`.
#[test]
fn a_file_of_another_user_in_a_sticky_directory_is_not_written() {
    if !root("a file of another user") {
        return;
    }
    let dir = dir();
    let source = file(&dir, "source", b"secret");
    let mut refused = 0;
    for (name, mode) in [("sticky", 0o1777), ("open", 0o777)] {
        let directory = dir.path().join(name);
        std::fs::create_dir(&directory).unwrap();
        std::fs::set_permissions(&directory, PermissionsExt::from_mode(mode)).unwrap();
        for kind in [
            FileType::RegularFile,
            FileType::Fifo,
            FileType::CharacterDevice,
        ] {
            let Some(sink) = of_another(&directory, kind) else {
                continue;
            };
            // An open of a FIFO for writing waits for a reader.
            let held = kind == FileType::Fifo;
            let _reader = held.then(|| File::options().read(true).write(true).open(&sink));
            let is_written = is_written_by_the_shell(&sink);
            refused += usize::from(!is_written);
            for more in [&[][..], &["/dev/null"]] {
                let mut splice = cordboard();
                let moved = run(splice.arg("splice").args([&source, &sink]).args(more));
                match is_written {
                    true => assert_eq!(moved.code(), 0, "{}", moved.stderr()),
                    false => drop(moved.fails(1, &["Permission denied (EACCES)", "sink"])),
                }
            }
        }
    }
    if refused == 0 {
        testkit::skip::here("fs.protected_regular and fs.protected_fifos are 0, and no devices");
    }
}

/// The directory of a new file is synced, whatever name led to it.
#[test]
fn the_directory_of_a_new_target_of_a_symlink_is_synced() {
    let dir = dir();
    let source = file(&dir, "source", b"synced");
    let real = dir.path().canonicalize().unwrap().join("real");
    let link = dir.path().join("link");
    std::fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(real.join("new"), &link).unwrap();
    let is_opened = Arc::new(AtomicBool::new(false));
    let (opened, directory) = (Arc::clone(&is_opened), real.clone());
    let notes = move |call, path: &OsStr| {
        opened.fetch_or(call == Call::Open && path == directory, Ordering::SeqCst);
        false
    };
    let mut splice = cordboard();
    splice.args(["splice", "--sync"]).args([&source, &link]);
    splice.stdout(Stdio::piped()).stderr(Stdio::piped());
    let (child, _stall) = match Stall::spawn(&mut splice, notes) {
        Ok(spawned) => spawned,
        Err(error) => return testkit::skip::here(testkit::stall::why(&error)),
    };
    end(child).ok();
    assert_eq!(read(real.join("new")), b"synced");
    assert!(is_opened.load(Ordering::SeqCst));
}
