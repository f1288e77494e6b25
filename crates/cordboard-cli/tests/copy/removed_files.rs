//! Files that the command, or another process meanwhile, removes.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{Mode, OFlags};
use testkit::stall::{Call, Stall};

use crate::common::*;

/// Another process removes the symlink that is to be replaced, and moves its
/// own file to the name, to which the file system gives the same inode.
#[test]
fn a_file_with_the_inode_of_a_symlink_is_not_taken_for_it() {
    let dir = dir();
    for name in ["tree", "into"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
    }
    let [from, link, own] = ["tree/link", "into/link", "own"].map(|name| dir.path().join(name));
    let inode = |path: &Path| path.symlink_metadata().unwrap().ino();
    let reused = |known: u64| {
        let _ = std::fs::remove_file(&own);
        (0..64).any(|number| {
            std::fs::write(&own, b"theirs").unwrap();
            let same = inode(&own) == known;
            if !same {
                let other = dir.path().join(format!("other{number}"));
                std::fs::rename(&own, other).unwrap();
            }
            same
        })
    };
    symlink("new", &from).unwrap();
    symlink("old", &link).unwrap();
    let known = inode(&link);
    std::fs::remove_file(&link).unwrap();
    if !reused(known) {
        return testkit::skip::here("no inode is used again on this file system");
    }
    std::fs::remove_file(&own).unwrap();
    symlink("old", &link).unwrap();
    let known = inode(&link);
    let mut copy = cordboard();
    copy.args(["copy", "-r"])
        .args(["tree/.", "into"].map(|name| dir.path().join(name)));
    let command = copy.stdout(Stdio::piped()).stderr(Stdio::piped());
    // The exchange of the new symlink, which has a private name, and the old one.
    let started = Stall::spawn(command, |call, path| {
        call == Call::Rename && path.as_bytes().starts_with(b".cordboard-")
    });
    let (child, stall) = match started {
        Ok(started) => started,
        Err(error) => return testkit::skip::here(testkit::stall::why(&error)),
    };
    let held = stall.reached();
    std::fs::remove_file(&link).unwrap();
    // The command holds the symlink open: its inode cannot be used again.
    assert!(!reused(known));
    std::fs::write(&own, b"theirs").unwrap();
    std::fs::rename(&own, &link).unwrap();
    held.release();
    end(child).fails(1, &["into/link: was replaced by another process"]);
    assert_eq!(read(&link), b"theirs");
}

/// A sink that has been removed when it is to be opened as an existing file is
/// a new one.
#[test]
fn what_is_removed_meanwhile_is_made_anew() {
    let dir = dir();
    let [from, to] = ["from", "to"].map(|name| file(&dir, name, name.as_bytes()));
    let mut copy = cordboard();
    copy.arg("copy").args([&from, &to]).stderr(Stdio::piped());
    let (path, count) = (to.clone(), AtomicUsize::new(0));
    let started = Stall::spawn(&mut copy, move |call, at| {
        // The first copy makes it, and finds it there.
        call == Call::Open && at == path && count.fetch_add(1, Ordering::Relaxed) == 1
    });
    let (child, stall) = match started {
        Ok(started) => started,
        Err(error) => return testkit::skip::here(testkit::stall::why(&error)),
    };
    let held = stall.reached();
    std::fs::remove_file(&to).unwrap();
    held.release();
    end(child).ok();
    assert_eq!(read(&to), b"from");
}

/// A failing command has created its sink, and is about to remove it again:
/// another process opens it and appends to it meanwhile. `verb` is the command.
fn opened_while_it_is_removed(verb: &str, says: &[&str]) {
    let dir = dir();
    // A skippable frame (RFC 8878, 3.1.2) that is truncated.
    let frame = [&[0x50, 0x2a, 0x4d, 0x18, 0xff, 0, 0, 0], &[0; 20][..]].concat();
    let from = file(&dir, "from", &frame);
    let to = dir.path().join("to");
    let mut copy = cordboard();
    let command = copy.args([verb, "--unzstd"]).args([&from, &to]);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = Stall::spawn(command, |call, path| {
        call == Call::Rename && Path::new(path).ends_with("to")
    });
    let (child, stall) = match started {
        Ok(started) => started,
        Err(error) => return testkit::skip::here(testkit::stall::why(&error)),
    };
    let held = stall.reached();
    let open = |flags| {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC | flags;
        rustix::fs::open(&to, flags, Mode::empty())
    };
    let opened = open(OFlags::NONBLOCK);
    if let Ok(theirs) = &opened {
        rustix::io::write(theirs, b"theirs").unwrap();
    }
    held.release();
    end(child).fails(1, says);
    // A blocking open would have waited.
    if opened.is_err_and(|errno| errno == rustix::io::Errno::AGAIN) {
        let theirs = open(OFlags::empty()).expect("it is there again");
        rustix::io::write(theirs, b"theirs").unwrap();
    }
    assert_eq!(std::fs::read(&to).ok().as_deref(), Some(&b"theirs"[..]));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn a_sink_that_another_opens_is_not_removed() {
    opened_while_it_is_removed("copy", &["was not removed, as another process uses it"]);
    opened_while_it_is_removed("splice", &["truncated after", "as another process uses it"]);
}
