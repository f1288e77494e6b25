//! `-p` and access control lists: the copy grants no access that the source
//! denies.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::common::*;
use crate::{chmod, mode};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// The owner and user 1234 may read and write; the group may not, unless
/// specified.
pub fn list(group: u16) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    let nobody = u32::MAX;
    for (tag, bits, id) in [
        (1u16, 7u16, nobody),
        (2, 6, 1234),
        (4, group, nobody),
        (0x10, 6, nobody),
        (0x20, 0, nobody),
    ] {
        bytes.extend([tag.to_le_bytes(), bits.to_le_bytes()].concat());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn set(path: &Path, name: &str) -> bool {
    let done = rustix::fs::setxattr(path, name, &list(0), XattrFlags::empty());
    if let Err(errno) = done {
        testkit::skip::here(format!("no access control lists here: {errno}"));
    }
    done.is_ok()
}

#[track_caller]
fn has(path: &Path, name: &str) -> bool {
    let mut value = [0; 256];
    match rustix::fs::getxattr(path, name, &mut value) {
        Ok(_) => true,
        Err(Errno::NODATA | Errno::OPNOTSUPP) => false,
        Err(errno) => panic!("{name} of {}: {errno}", path.display()),
    }
}

#[test]
fn what_a_directory_hands_on_is_not_kept() {
    let dir = dir();
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("sub")).unwrap();
    let source = file(&dir, "tree/f", b"secret");
    chmod(&source, 0o660);
    chmod(&tree, 0o750);
    let into = dir.path().join("into");
    std::fs::create_dir(&into).unwrap();
    if !set(&into, DEFAULT) {
        return;
    }
    run(cordboard().args(["copy", "-p"]).args([&source, &into])).ok();
    run(cordboard().args(["copy", "-rp"]).args([&tree, &into])).ok();
    let made: Vec<PathBuf> = ["f", "tree", "tree/f", "tree/sub"]
        .map(|name| into.join(name))
        .into();
    for path in &made {
        assert!(!has(path, ACCESS), "{}", path.display());
        assert!(!has(path, DEFAULT), "{}", path.display());
    }
    assert_eq!(
        made[..3].iter().map(|path| mode(path)).collect::<Vec<_>>(),
        [0o660, 0o750, 0o660]
    );
    // It is that of the directory, as before.
    assert!(has(&into, DEFAULT));
}

#[test]
fn what_the_sink_had_is_not_kept() {
    let dir = dir();
    let [plain, listed] = ["plain", "listed"].map(|name| {
        std::fs::create_dir(dir.path().join(name)).unwrap();
        file(&dir, &format!("{name}/f"), b"secret")
    });
    for path in [&listed, &dir.path().join("listed")] {
        if !set(path, ACCESS) {
            return;
        }
    }
    assert!(set(&dir.path().join("listed"), DEFAULT));
    chmod(&plain, 0o640);
    run(cordboard()
        .args(["copy", "-rp"])
        .args([dir.path().join("plain/."), dir.path().join("listed")]))
    .ok();
    assert!(!has(&listed, ACCESS));
    assert_eq!(mode(&listed), 0o640);
    for name in [ACCESS, DEFAULT] {
        assert!(!has(&dir.path().join("listed"), name), "{name}");
    }
}

#[test]
fn what_the_source_has_is_kept() {
    let dir = dir();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let source = file(&dir, "tree/f", b"shared");
    if !(set(&source, ACCESS) && set(&tree, ACCESS) && set(&tree, DEFAULT)) {
        return;
    }
    let copy = dir.path().join("copy");
    run(cordboard().args(["copy", "-rp"]).args([&tree, &copy])).ok();
    for (path, name) in [
        (copy.join("f"), ACCESS),
        (copy.clone(), ACCESS),
        (copy, DEFAULT),
    ] {
        let mut value = [0; 256];
        let length = rustix::fs::getxattr(&path, name, &mut value).unwrap();
        assert_eq!(value[..length], list(0), "{name} of {}", path.display());
    }
}

/// The group bits of the mode were the list's mask.
#[test]
fn a_file_system_without_them_lets_nobody_else_in() {
    let dir = dir();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let source = file(&dir, "tree/f", b"");
    if !(set(&source, ACCESS) && set(&tree, DEFAULT)) {
        return;
    }
    assert_eq!(mode(&source), 0o760);
    let past = std::time::SystemTime::UNIX_EPOCH;
    let opened = std::fs::File::options().write(true).open(&source).unwrap();
    opened.set_modified(past).unwrap();
    let mount = dir.path().join("m");
    let Some(_mounted) = mounted::Mounted::new(&["-t", "ramfs", "none"], &mount) else {
        return;
    };
    let sink = mount.join("f");
    let one = run(cordboard().args(["copy", "-p"]).args([&source, &sink]));
    let made = sink
        .metadata()
        .and_then(|made| Ok((mode(&sink), made.modified()?)));
    let sink = mount.join("tree");
    let all = run(cordboard().args(["copy", "-rp"]).args([&tree, &sink]));
    // It is preceded by the C library's text for the errno.
    let says = "(EOPNOTSUPP) setting the access control list";
    // It exists, though it is empty.
    one.fails(1, &[says, "f holds 0 bytes"]);
    assert_eq!(made.unwrap(), (0o700, past));
    assert_eq!(
        (all.code(), all.stderr().matches(says).count()),
        (1, 2),
        "{}",
        all.stderr()
    );
}

/// Removing a list removes its mode first. As with `cp -p`, it is a failure if
/// one of these cannot be preserved.
#[test]
fn who_owns_neither_is_told_of_the_mode_or_of_the_list() {
    if !root("files of others") {
        return;
    }
    let dir = dir();
    let [source, sink] = ["s", "d"].map(|name| file(&dir, name, b"for all"));
    let binary = dir.path().join("cordboard");
    install(env!("CARGO_BIN_EXE_cordboard"), &binary);
    chmod(dir.path(), 0o755);
    chmod(&source, 0o644);
    if !set(&sink, ACCESS) {
        return;
    }
    chmod(&sink, 0o666);
    let copy = || {
        let mut command = Command::new(&binary);
        let args = ["copy", "-p", "--json"].map(OsStr::new);
        command.args(args).args([&source, &sink]);
        command.uid(65534).gid(65534).stderr(Stdio::piped());
        end(command.start())
    };
    let complete = "the contents are complete";
    let run = copy();
    run.fails(1, &["(EPERM) setting the mode", complete]);
    // The owner.
    assert_eq!(run.json()["unkept"], 1);
    rustix::fs::removexattr(&sink, ACCESS).unwrap();
    chmod(&sink, 0o666);
    copy().fails(1, &["(EPERM) setting the mode", complete]);
    assert!(set(&source, ACCESS));
    chmod(&source, 0o664);
    copy().fails(1, &["(EPERM) setting the access control list", complete]);
    assert_eq!(read(&sink), b"for all");
}
