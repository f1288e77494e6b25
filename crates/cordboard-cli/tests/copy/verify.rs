//! Reading back what was written, in unusual cases.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::chown;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use testkit::ends::Ends;
use testkit::refuse::{FTRUNCATE, refuse, refuse_where};

use crate::common::*;
use crate::{chmod, mortal};

#[test]
fn a_new_file_that_its_owner_may_not_read() {
    let dir = dir();
    let source = file(&dir, "s", b"for others");
    chmod(&source, 0o044);
    if !rustix::process::geteuid().is_root() {
        return testkit::skip::here("root makes a file that others may read and we may not");
    }
    chown(&source, Some(1234), Some(1234)).unwrap();
    let Some(mut command) = mortal("umask 0") else {
        return;
    };
    let sink = dir.path().join("d");
    let done = run(command.args(["copy", "--verify"]).args([&source, &sink]));
    done.ok();
    assert_eq!(read(&sink), b"for others");
}

#[test]
fn a_file_that_cannot_be_read_back_is_left_alone() {
    let dir = dir();
    let source = file(&dir, "s", b"new");
    let sink = file(&dir, "d", b"old and longer");
    chmod(&source, 0o644);
    chmod(&sink, 0o222);
    if rustix::process::geteuid().is_root() {
        chown(&sink, Some(1234), Some(1234)).unwrap();
    }
    let Some(mut command) = mortal("true") else {
        return;
    };
    let done = run(command.args(["copy", "--verify"]).args([&source, &sink]));
    done.fails(1, &["EACCES", "--verify needs read permission too"]);
    chmod(&sink, 0o666);
    assert_eq!(read(&sink), b"old and longer");
}

/// Refuses calls.
type Refuses = dyn Fn() + Sync;

/// If a call before or after the bytes fails, the step is named.
#[test]
fn the_step_that_has_failed_is_named() {
    let dir = dir();
    std::fs::create_dir(dir.path().join("tree")).unwrap();
    let source = file(&dir, "tree/s", b"new");
    let tree = dir.path().join("tree");
    let source = source.to_str().unwrap();
    let tree = tree.to_str().unwrap();
    let new = dir.path().join("new");
    let new = new.to_str().unwrap();
    let cases: [(&Refuses, &[&str], &str); 6] = [
        (
            &|| refuse(&[libc::SYS_fdatasync], libc::EIO),
            &["--verify", source],
            "syncing the sink",
        ),
        (
            // Its three bytes; the loader reads more. After a clone or another copy in the
            // kernel, the source is read too.
            &|| refuse_where(libc::SYS_pread64, 2, 3, libc::EIO),
            &["--verify", "--route", "rw", source],
            "reading back the sink",
        ),
        (
            &|| refuse(&[libc::SYS_fsync], libc::EIO),
            &["--sync", "-p", source],
            "syncing the sink",
        ),
        (
            &|| refuse(&[libc::SYS_fsync], libc::EIO),
            &["--sync", "-r", tree],
            "syncing the sink",
        ),
        (
            &|| refuse(&[FTRUNCATE], libc::EIO),
            &[source],
            "truncating the sink",
        ),
        (
            &|| refuse(&[libc::SYS_getdents64], libc::EIO),
            &["-r", tree],
            "listing the source",
        ),
    ];
    for (refuses, args, says) in cases {
        if says.starts_with("truncating") {
            std::fs::write(new, b"old").unwrap();
        }
        let child = apart(|| {
            refuses();
            let mut command = cordboard();
            command.arg("copy").args(args).arg(new);
            command.stderr(Stdio::piped()).start()
        });
        let run = end(child);
        let stderr = run.stderr();
        assert_eq!(run.code(), 1, "{args:?}: {stderr}");
        assert!(
            stderr.contains(&format!("(EIO) {says}")),
            "{args:?}: {stderr}"
        );
        let _ = std::fs::remove_file(new);
        let _ = std::fs::remove_dir_all(new);
    }
}

/// Any file can have the name `/dev/null`, or none.
#[test]
fn nothing_is_read_back_into_dev_null() {
    if !can_mount() {
        return;
    }
    let dir = dir();
    let content = bytes(3 << 20);
    let source = file(&dir, "s", &content);
    let other = file(&dir, "other", b"not to be written to");
    let sink = dir.path().join("d");
    let script = r#"case "$0" in
        none) mount -t tmpfs none /dev ;;
        *) mount --bind "$0" /dev/null ;;
        esac && exec "$@""#;
    for place in [other.as_path(), "none".as_ref()] {
        for way in [&["--route", "rw"][..], &["--zstd"]] {
            let done = run(Command::new("unshare")
                .args(["--mount", "sh", "-c", script])
                .arg(place)
                .arg(env!("CARGO_BIN_EXE_cordboard"))
                .args(["copy", "--verify", "--json"])
                .args(way)
                .args([&source, &sink]));
            let json = done.ok().json();
            let length = sink.metadata().unwrap().len();
            assert_eq!(json["verified"], length, "{way:?}");
            assert!(read(&other) == b"not to be written to", "{way:?}");
            std::fs::remove_file(&sink).unwrap();
        }
    }
}

/// By the command's own thread, one of several, or an engine.
#[test]
fn what_is_appended_beside_another_process_is_verified() {
    const OTHERS: &[u8] = b"others\n";
    let dir = dir();
    let into = dir.path().join("into");
    std::fs::create_dir(&into).unwrap();
    for (length, more) in [
        (3 << 20, &[][..]),
        (3 << 20, &["--jobs=2"]),
        (5 << 20, &["--jobs=2"]),
    ] {
        let content = vec![7; length];
        let sources = ["a", "b"].map(|name| file(&dir, name, &content));
        let sources = &sources[..more.len() + 1];
        // Once a write of the other process has come between two of the copy.
        until("bytes of others in between", || {
            let sinks = ["a", "b"].map(|name| into.join(name));
            sinks
                .iter()
                .for_each(|sink| std::fs::write(sink, b"").unwrap());
            let done = AtomicBool::new(false);
            let run = std::thread::scope(|scope| {
                let _ends = Ends(&done);
                for sink in &sinks {
                    let mut sink = File::options().append(true).open(sink).unwrap();
                    let done = &done;
                    scope.spawn(move || {
                        while !done.load(Ordering::Relaxed) {
                            sink.write_all(OTHERS).unwrap();
                        }
                    });
                }
                let mut copy = cordboard();
                copy.args(["copy", "--append", "--verify", "--json"])
                    .args(more);
                run(copy.args(sources).arg(&into))
            });
            let json = run.ok().json();
            assert_eq!(json["verified"], length * sources.len(), "{json}");
            let stages = json["stages"].as_array().unwrap();
            assert!(
                stages.iter().all(|stage| stage["stage"] == "xxh3"),
                "{json}"
            );
            let held = read(&sinks[0]);
            let ours = held.iter().filter(|byte| **byte == 7).count();
            assert_eq!(ours, length);
            let first = held.iter().position(|byte| *byte == 7).unwrap();
            let cut = held[first..].iter().take_while(|byte| **byte == 7).count() < length;
            cut.then_some(())
        });
    }
}

/// The kernel generates the contents of a pseudo file: its size is 0, and it cannot be synced.
#[test]
fn a_pseudo_file_is_neither_verified_nor_measured() {
    let dir = dir();
    let source = file(&dir, "name", b"copied");
    // The name of the copying process itself.
    let copy = |flag: &str| {
        let paths = [source.as_os_str(), "/proc/self/comm".as_ref()];
        run(cordboard().args(["copy", flag]).args(paths))
    };
    copy("--verify").fails(1, &["/proc/self/comm: is a pseudo file", "omit --verify"]);
    let done = copy("-p");
    done.fails(1, &["EPERM", "the contents are complete"]);
    assert!(!done.stderr().contains("holds"), "{}", done.stderr());
}
