//! `-p`: no other user has access to a copy before its source permits it.

use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::process::Stdio;

use rustix::fs::{FileType, XattrFlags, setxattr};
use testkit::refuse::refuse;

use crate::common::*;
use crate::{chmod, mode};

/// Starts a copy that takes long, and waits until it has written a byte.
fn copying(source: &Path, sink: &Path) -> Owned {
    let child = cordboard()
        .args(["copy", "-p", "--route", "read/write", "--block", "1"])
        .args([source, sink])
        .stderr(Stdio::piped())
        .start();
    until("a byte of the file", || {
        let length = sink.metadata().ok()?.len();
        (0 < length && length < 1 << 22).then_some(())
    });
    child
}

/// Until a directory, or a new file, has its final owner, only the copying user has access.
#[test]
fn p_restricts_directories_until_they_are_settled() {
    let dir = dir();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("f"), bytes(4 << 20)).unwrap();
    chmod(&tree.join("f"), 0o666);
    chmod(&tree, 0o777);
    let copy = dir.path().join("copy");
    let child = cordboard()
        .args(["copy", "-rp", "--route", "read/write", "--block", "1"])
        .args([&tree, &copy])
        .stderr(Stdio::piped())
        .start();
    until("a byte of the file", || {
        let made = copy.join("f").metadata().ok()?;
        (made.len() > 0).then_some(())
    });
    assert_eq!(mode(&copy), 0o700);
    assert_eq!(mode(&copy.join("f")), 0o600);
    signal(child.id(), rustix::process::Signal::INT);
    assert_eq!(end(child).code(), 130);
}

/// Copies one 4 MiB file to another with these modes, and returns the mode of the
/// sink meanwhile and after an interrupt.
fn modes_of_a_stopped_copy([source, sink]: [&Path; 2], [from, to]: [u32; 2]) -> [u32; 2] {
    chmod(source, from);
    chmod(sink, to);
    let child = copying(source, sink);
    let meanwhile = mode(sink);
    signal(child.id(), rustix::process::Signal::INT);
    assert_eq!(end(child).code(), 130);
    [meanwhile, mode(sink)]
}

/// While it has contents of the source, and also if the copy does not end.
#[test]
fn p_restricts_an_existing_file_until_it_is_complete() {
    let dir = dir();
    let source = file(&dir, "s", &bytes(1 << 22));
    let sink = dir.path().join("d");
    for (to, from, shut) in [
        (0o644, 0o600, 0o600),
        (0o755, 0o644, 0o700),
        (0o4711, 0o711, 0o700),
        (0o640, 0o644, 0o640),
        (0o644, 0o444, 0o644),
    ] {
        std::fs::write(&sink, bytes(1 << 22)).unwrap();
        let found = modes_of_a_stopped_copy([&source, &sink], [from, to]);
        assert_eq!(found, [shut; 2], "{to:o} {from:o}");
        std::fs::remove_file(&sink).unwrap();
    }
    std::fs::write(&sink, b"").unwrap();
    // Without -p, the mode is not changed.
    chmod(&source, 0o600);
    chmod(&sink, 0o644);
    run(cordboard().arg("copy").args([&source, &sink])).ok();
    assert_eq!(mode(&sink), 0o644);
    run(cordboard().args(["copy", "-p"]).args([&source, &sink])).ok();
    assert_eq!(mode(&sink), 0o600);
}

/// The bits of the group are the mask of a list, and do not name its users.
#[test]
fn p_restricts_an_existing_file_with_a_list() {
    let dir = dir();
    let [source, sink] = ["s", "d"].map(|name| file(&dir, name, &bytes(1 << 22)));
    let (name, list) = ("system.posix_acl_access", crate::acl::list(6));
    if let Err(errno) = setxattr(&sink, name, &list, XattrFlags::empty()) {
        return testkit::skip::here(format!("no access control lists here: {errno}"));
    }
    let found = modes_of_a_stopped_copy([&source, &sink], [0o660, 0o660]);
    assert_eq!(found, [0o600; 2]);
}

/// The list of the source denies its group what the bits of its mode, the mask, permit.
#[test]
fn p_restricts_an_existing_file_if_the_source_has_a_list() {
    let dir = dir();
    let [source, sink] = ["s", "d"].map(|name| file(&dir, name, &bytes(1 << 22)));
    let (name, list) = ("system.posix_acl_access", crate::acl::list(0));
    if let Err(errno) = setxattr(&source, name, &list, XattrFlags::empty()) {
        return testkit::skip::here(format!("no access control lists here: {errno}"));
    }
    let found = modes_of_a_stopped_copy([&source, &sink], [0o660, 0o660]);
    assert_eq!(found, [0o600; 2]);
}

/// Otherwise the new owner would have the access of the old mode.
#[test]
fn no_owner_is_set_while_the_mode_cannot_be_restricted() {
    if !root("files of others") {
        return;
    }
    let dir = dir();
    for name in ["from", "into"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
    }
    let source = file(&dir, "from/f", b"contents");
    chown(&source, Some(1234), Some(1234)).unwrap();
    chown(dir.path().join("from"), Some(1234), Some(1234)).unwrap();
    let sink = file(&dir, "into/f", b"");
    let [from, into] = ["from", "into"].map(|name| dir.path().join(name));
    for (path, bits) in [
        (&source, 0o640),
        (&from, 0o750),
        (&sink, 0o666),
        (&into, 0o777),
    ] {
        chmod(path, bits);
    }
    for errno in [libc::EPERM, libc::ENOSYS] {
        let run = apart(|| {
            refuse(&[libc::SYS_fchmod], errno);
            run(cordboard()
                .args(["copy", "-rp", "--jobs", "1"])
                .args([&from.join("."), &into]))
        });
        let stderr = run.stderr();
        assert_eq!(run.code(), 1, "{stderr}");
        assert_eq!(stderr.matches("setting the mode").count(), 2, "{stderr}");
        for (path, bits) in [(&sink, 0o666), (&into, 0o777)] {
            let there = path.metadata().unwrap();
            assert_eq!((there.uid(), there.gid()), (0, 0), "{}", path.display());
            assert_eq!(mode(path), bits);
        }
        assert_eq!(read(&sink), b"contents");
    }
    run(cordboard()
        .args(["copy", "-rp"])
        .args([&from.join("."), &into]))
    .ok();
    for (path, bits) in [(&sink, 0o640), (&into, 0o750)] {
        let there = path.metadata().unwrap();
        assert_eq!((there.uid(), there.gid()), (1234, 1234));
        assert_eq!(mode(path), bits);
    }
}

/// Their owner and mode decide who may use them, whatever bytes go there.
#[test]
fn p_gives_no_attributes_to_a_fifo_or_a_device() {
    let dir = dir();
    let source = file(&dir, "s", b"contents");
    chmod(&source, 0o604);
    let pipe = dir.path().join("fifo");
    fifo(&pipe);
    chmod(&pipe, 0o620);
    let from = pipe.clone();
    let reader = std::thread::spawn(move || read(from));
    run(cordboard().args(["copy", "-p"]).args([&source, &pipe])).ok();
    assert_eq!(reader.join().unwrap(), b"contents");
    assert_eq!(mode(&pipe), 0o620);
    if !root("making a device") {
        return;
    }
    let device = dir.path().join("null");
    let bits = rustix::fs::Mode::from_raw_mode(0o666);
    let number = rustix::fs::makedev(1, 3);
    let made = rustix::fs::mknodat(
        rustix::fs::CWD,
        &device,
        FileType::CharacterDevice,
        bits,
        number,
    );
    if let Err(errno) = made {
        return testkit::skip::here(format!("no device can be made here: {errno}"));
    }
    chmod(&device, 0o666);
    let run = run(cordboard()
        .args(["copy", "-p", "--json"])
        .args([&source, &device]));
    if std::fs::OpenOptions::new()
        .write(true)
        .open(&device)
        .is_err()
    {
        return testkit::skip::here("no device can be opened here");
    }
    assert_eq!(run.ok().json()["written"], 8);
    assert_eq!(mode(&device), 0o666);
}
