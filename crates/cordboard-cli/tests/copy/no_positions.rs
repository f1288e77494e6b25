//! Files that cannot seek, as those of a FUSE server may be.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;

use crate::common::*;
use testkit::fuse::{Served, with_file};

/// A file that cannot seek is copied, hashed and compared as any other, as long
/// as no offset is requested.
#[test]
fn a_file_that_cannot_seek_is_copied_and_read_back() {
    if !can_mount() {
        return;
    }
    let dir = dir();
    // By one thread, and by one of the engine.
    for length in [100_003, (5 << 20) + 3] {
        let mut data = bytes(length);
        data[8192..65_536].fill(0);
        let plain = file(&dir, "plain", &data);
        let gets = Mutex::default();
        let served = Served {
            holds: &data,
            claims: length as u64,
            inside: true,
            stream: true,
            gets: Some(&gets),
            ..Served::default()
        };
        let mounted = with_file(served, |at| {
            let (sink, made) = (dir.path().join("sink"), dir.path().join("made"));
            for args in [
                &[][..],
                &["-r"],
                &["-p"],
                &["--verify"],
                &["--hash", "crc32"],
                &["--sparse", "always"],
                &["--sparse", "always", "--verify"],
            ] {
                let copy = |from: &Path, to: &Path| {
                    run(cordboard().arg("copy").args(args).args([from, to])).ok();
                };
                copy(at, &sink);
                assert!(read(&sink) == data, "{args:?}");
                // Over an existing file.
                copy(at, &sink);
                assert!(read(&sink) == data, "{args:?}");
                std::fs::remove_file(&sink).unwrap();
                std::fs::create_dir(&made).unwrap();
                run(cordboard().arg("copy").args(args).args([at, &plain, &made])).ok();
                assert!(read(made.join("file")) == data, "{args:?}");
                std::fs::remove_dir_all(&made).unwrap();
                // The written contents differ from those of the server, which
                // do not change.
                gets.lock().unwrap().clear();
                copy(&plain, at);
                assert!(*gets.lock().unwrap() == data, "{args:?}");
            }
            // It cannot have an offset.
            let mut offset = cordboard();
            offset.args(["copy", "--offset", "5"]).args([at, &sink]);
            run(&mut offset).fails(1, &["ESPIPE", "omit --offset"]);
            // From a pipe, nothing is lost.
            gets.lock().unwrap().clear();
            let mut splice = cordboard();
            splice
                .args(["splice", "-"])
                .arg(at)
                .args(["--sparse", "always"]);
            splice.stdin(Stdio::piped()).stderr(Stdio::piped());
            let mut child = splice.start();
            child.stdin.take().unwrap().write_all(&data).unwrap();
            end(child).ok();
            assert!(*gets.lock().unwrap() == data);
        });
        if !mounted {
            testkit::skip::here("no FUSE here");
            return;
        }
    }
}

/// What is read back from a file that cannot seek differs.
#[test]
fn a_file_that_cannot_seek_and_differs_is_not_verified() {
    if !can_mount() {
        return;
    }
    let dir = dir();
    let data = bytes(100_003);
    let mut other = data.clone();
    other[77_777] ^= 1;
    let plain = file(&dir, "plain", &data);
    let served = Served {
        holds: &other,
        claims: data.len() as u64,
        stream: true,
        ..Served::default()
    };
    let mounted = with_file(served, |at| {
        let done = run(cordboard().args(["copy", "--verify"]).args([&plain, at]));
        done.fails(1, &["not verified"]);
    });
    if !mounted {
        testkit::skip::here("no FUSE here");
    }
}

/// A new file that cannot seek.
#[test]
fn a_new_file_that_cannot_seek_is_written() {
    if !can_mount() {
        return;
    }
    let dir = dir();
    for length in [100_003, (5 << 20) + 3] {
        let data = bytes(length);
        let plain = file(&dir, "plain", &data);
        for args in [&[][..], &["-r"], &["--verify"]] {
            let gets = Mutex::default();
            let served = Served {
                holds: &data,
                claims: length as u64,
                inside: true,
                absent: true,
                stream: true,
                gets: Some(&gets),
                ..Served::default()
            };
            let mounted = with_file(served, |at| {
                run(cordboard().arg("copy").args(args).args([&plain, at])).ok();
                assert!(*gets.lock().unwrap() == data, "{args:?}");
            });
            if !mounted {
                testkit::skip::here("no FUSE here");
                return;
            }
        }
    }
}

/// A file that provides each byte once, beside another file.
fn beside<'a>(served: Served<'a>, data: &'a [u8], other: &'a Mutex<Vec<u8>>) -> Served<'a> {
    Served {
        holds: data,
        inside: true,
        once: true,
        other: Some(other),
        ..served
    }
}

/// A file that provides each byte once is not read again for `--verify`, also
/// if both files are on one file system, which could copy in the kernel.
#[test]
fn a_file_that_can_be_read_once_is_verified_by_what_has_passed() {
    if !can_mount() {
        return;
    }
    let data = bytes(200_003);
    let nothing = Served::default();
    let ends = |direct, stream, claims| Served {
        direct,
        stream,
        claims,
        ..nothing
    };
    let all = data.len() as u64;
    for served in [
        ends(true, true, all),
        ends(true, true, 0),
        // Such as one that is generated on reading.
        ends(true, false, 0),
    ] {
        for args in [&[][..], &["-r"], &["--append"], &["-j", "2"], &["--stable"]] {
            let other = Mutex::new(b"before".to_vec());
            let served = beside(served, &data, &other);
            let mounted = with_file(served, |at| {
                let sink = at.with_file_name("other");
                let mut copy = cordboard();
                copy.args(["copy", "--verify", "--json"]).args(args);
                let json = run(copy.args([at, &sink])).ok().json();
                let what = format!("{args:?} {served:?} {json}");
                assert_eq!(json["verified"], all, "{what}");
                // The bytes that have passed were hashed.
                assert_eq!(json["stages"][0]["stage"], "xxh3", "{what}");
                assert_eq!(json["stages"][0]["out"], all, "{what}");
                let before = if args == ["--append"] { 6 } else { 0 };
                assert!(other.lock().unwrap()[before..] == data, "{what}");
            });
            if !mounted {
                testkit::skip::here("no FUSE here");
                return;
            }
        }
        // If the bytes may not pass through user space, nothing is written.
        let other = Mutex::new(b"before".to_vec());
        let served = beside(served, &data, &other);
        with_file(served, |at| {
            let sink = at.with_file_name("other");
            let mut copy = cordboard();
            copy.args(["copy", "--verify", "--without", "read/write"]);
            let run = run(copy.args([at, &sink]));
            if served.stream {
                run.fails(1, &["no usable data path"]);
                assert_eq!(*other.lock().unwrap(), b"before");
            }
        });
    }
}
