//! `-p`: modes, times, owners and attributes.

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::common::*;
use crate::{chmod, mode, mortal};

#[test]
fn p_keeps_mode_times_and_attributes() {
    use rustix::fs::{Timespec, Timestamps, XattrFlags};
    let dir = dir();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let source = tree.join("f");
    std::fs::write(&source, bytes(9000)).unwrap();
    chmod(&source, 0o4751);
    let xattrs = rustix::fs::setxattr(&source, "user.cord", b"board", XattrFlags::empty()).is_ok();
    chmod(&tree, 0o2751);
    let past = |tv_sec, tv_nsec| Timestamps {
        last_access: Timespec { tv_sec, tv_nsec },
        last_modification: Timespec { tv_sec, tv_nsec },
    };
    for (path, sec, nsec) in [
        (&source, 1_000_000_000, 123_456_789),
        (&tree, 1_100_000_000, 1),
    ] {
        let flags = rustix::fs::AtFlags::empty();
        rustix::fs::utimensat(rustix::fs::CWD, path, &past(sec, nsec), flags).unwrap();
    }
    let copy = dir.path().join("copy");
    run(cordboard().args(["copy", "-rp"]).args([&tree, &copy])).ok();
    let new = copy.join("f").metadata().unwrap();
    assert_eq!(new.mode() & 0o7777, 0o4751);
    assert_eq!(
        (new.mtime(), new.mtime_nsec()),
        (1_000_000_000, 123_456_789)
    );
    let new = copy.metadata().unwrap();
    assert_eq!((new.mtime(), new.mtime_nsec()), (1_100_000_000, 1));
    assert_eq!(new.mode() & 0o7777, 0o2751);
    if xattrs {
        let mut value = [0; 16];
        let length = rustix::fs::getxattr(copy.join("f"), "user.cord", &mut value).unwrap();
        assert_eq!(&value[..length], b"board");
    } else {
        testkit::skip::here("no extended attributes here");
    }
    if root("keeping another's owner") {
        std::os::unix::fs::chown(&source, Some(1234), Some(4321)).unwrap();
        let one = dir.path().join("one");
        run(cordboard()
            .args(["copy", "-p", "--sync"])
            .args([&source, &one]))
        .ok();
        let new = one.metadata().unwrap();
        assert_eq!((new.uid(), new.gid()), (1234, 4321));
    }
}

#[test]
fn without_p_the_special_bits_are_not_kept() {
    let dir = dir();
    let source = file(&dir, "s", b"x");
    chmod(&source, 0o4755);
    let sink = dir.path().join("d");
    run(cordboard().arg("copy").args([&source, &sink])).ok();
    assert_eq!(mode(&sink), 0o755);
}

#[test]
fn who_may_not_give_files_away_keeps_the_group() {
    if !root("files of others") {
        return;
    }
    let without = ["--groups", "1234", "--bounding-set=-chown"];
    let can = Command::new("setpriv").args(without).arg("true").output();
    if !can.is_ok_and(|tried| tried.status.success()) {
        testkit::skip::here("files that cannot be given away need setpriv");
        return;
    }
    let dir = dir();
    let source = file(&dir, "s", b"ours");
    std::os::unix::fs::chown(&source, Some(1000), Some(1234)).unwrap();
    chmod(&source, 0o4750);
    let link = dir.path().join("l");
    symlink("s", &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(1000), Some(1234)).unwrap();
    let sticky = dir.path().join("t");
    std::fs::create_dir(&sticky).unwrap();
    std::os::unix::fs::chown(&sticky, Some(1000), Some(1234)).unwrap();
    chmod(&sticky, 0o3777);
    let to = dir.path().join("to");
    std::fs::create_dir(&to).unwrap();
    let mut command = Command::new("setpriv");
    command
        .args(without)
        .arg(env!("CARGO_BIN_EXE_cordboard"))
        .args(["copy", "-r", "-p", "--json"])
        .args([&source, &link, &sticky, &to]);
    let copy = run(&mut command);
    // Three owners, and the set-id bits of the file and of the directory.
    assert_eq!(copy.ok().json()["unkept"], 5);
    // Root may expect to set owners, so it is told of the first, and of the number of the others.
    let stderr = copy.stderr();
    let warnings: Vec<&str> = stderr.lines().filter(|l| !l.starts_with('{')).collect();
    let first = "to/s: warning: the owner was not kept: Operation not permitted (EPERM)";
    assert!(warnings[0].ends_with(first), "{stderr}");
    assert_eq!(warnings.len(), 2, "{stderr}");
    assert!(
        warnings[1].contains("2 more attributes were not copied"),
        "{stderr}"
    );
    for (name, mode) in [("s", 0o100_750), ("l", 0o120_777), ("t", 0o041_777)] {
        let made = to.join(name).symlink_metadata().unwrap();
        assert_eq!((made.uid(), made.gid(), made.mode()), (0, 1234, mode));
    }
}

/// Its messages are tested above and below.
#[test]
fn help_says_what_p_drops_without_a_word() {
    let help = call(["copy", "--help"]);
    let words: Vec<String> = String::from_utf8_lossy(help.ok().stdout())
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    let says = "As with cp -p, no warning reports any other owner or a group that was not kept, or the \
         set-id and sticky bits";
    assert!(words.join(" ").contains(says));
}

/// Not even root can set an owner that its user namespace does not know.
#[test]
fn an_owner_that_is_not_known_here_is_let_go_of() {
    if !root("files of others") {
        return;
    }
    let within = ["--user", "--map-root-user"];
    let can = Command::new("unshare").args(within).arg("true").output();
    if !can.is_ok_and(|tried| tried.status.success()) {
        testkit::skip::here("owners that are not known need unshare(1) and user namespaces");
        return;
    }
    let dir = dir();
    let source = file(&dir, "s", b"theirs");
    let link = dir.path().join("l");
    symlink("s", &link).unwrap();
    for path in [&source, &link] {
        std::os::unix::fs::lchown(path, Some(1234), Some(1234)).unwrap();
    }
    // The change of owner has cleared the bits.
    chmod(&source, 0o4644);
    let to = dir.path().join("to");
    std::fs::create_dir(&to).unwrap();
    let copy = run(Command::new("unshare")
        .args(within)
        .arg(env!("CARGO_BIN_EXE_cordboard"))
        .args(["copy", "-r", "-p", "--json"])
        .args([&source, &link, &to]));
    assert_eq!(copy.ok().json()["unkept"], 3);
    assert_eq!(read(to.join("s")), b"theirs");
    for (name, mode) in [("s", 0o100_644), ("l", 0o120_777)] {
        let made = to.join(name).symlink_metadata().unwrap();
        assert_eq!((made.uid(), made.gid(), made.mode()), (0, 0, mode));
    }
}

/// Setting it needs write permission, which the final mode does not give.
#[test]
fn a_read_only_file_with_an_attribute_of_its_users() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    let Some(mut command) = mortal("umask 0277") else {
        return;
    };
    let dir = dir();
    let source = file(&dir, "s", b"contents");
    if setxattr(&source, "user.cord", b"board", XattrFlags::empty()).is_err() {
        testkit::skip::here("no extended attributes here");
        return;
    }
    chmod(&source, 0o444);
    past(&source);
    let sink = dir.path().join("d");
    let run = run(command.args(["copy", "-p"]).args([&source, &sink]));
    assert_eq!(run.ok().stderr(), "");
    let mut value = [0; 16];
    let length = getxattr(&sink, "user.cord", &mut value).unwrap();
    assert_eq!(&value[..length], b"board");
    assert_eq!((mode(&sink), sink.metadata().unwrap().mtime()), (0o444, 1));
}

/// Lack of space for one attribute does not affect the others; it is a failure.
#[test]
fn an_attribute_that_is_too_large_is_told_of() {
    use rustix::fs::{XattrFlags, setxattr};
    let dir = dir();
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        testkit::skip::here("no file system in memory");
        return;
    };
    let source = file(&memory, "s", b"");
    // More than a block, which is the limit of ext4.
    let large = [7; 20_000];
    let set = |path: &Path| setxattr(path, "user.cord", &large, XattrFlags::empty());
    let sink = file(&dir, "d", b"");
    if set(&source).is_err() || set(&sink) != Err(rustix::io::Errno::NOSPC) {
        testkit::skip::here("no attribute that only one of two file systems takes");
        return;
    }
    std::fs::remove_file(&sink).unwrap();
    chmod(&source, 0o4751);
    past(&source);
    let run = run(cordboard().args(["copy", "-p"]).args([&source, &sink]));
    run.fails(
        1,
        &["d: No space left on device (ENOSPC) setting the attribute user.cord; the contents"],
    );
    assert_eq!((mode(&sink), sink.metadata().unwrap().mtime()), (0o4751, 1));
}

/// Sets an old time.
fn past(path: &Path) {
    let file = std::fs::File::open(path).unwrap();
    let second = std::time::Duration::from_secs(1);
    file.set_modified(std::time::SystemTime::UNIX_EPOCH + second)
        .unwrap();
}

/// Attributes that a test sets, as root.
const OF_ROOT: [(&str, &[u8]); 3] = [
    ("trusted.cord", b"board"),
    ("security.cord", b"lined"),
    // linux/capability.h: revision 2, effective; CAP_NET_RAW; no others.
    (
        "security.capability",
        &[
            1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ],
    ),
];

/// Sets them, on a symlink itself; `false` if it has none.
fn set_as_root(path: &Path, names: &[(&str, &[u8])]) -> bool {
    let set = |(name, value): &(&str, &[u8])| {
        rustix::fs::lsetxattr(path, *name, value, rustix::fs::XattrFlags::empty())
    };
    let done = names.iter().try_for_each(set);
    if let Err(errno) = done {
        testkit::skip::here(format!("no attributes for root to set: {errno}"));
    }
    done.is_ok()
}

#[track_caller]
fn has(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = [0; 64];
    match rustix::fs::lgetxattr(path, name, &mut value) {
        Ok(length) => Some(value[..length].to_vec()),
        Err(rustix::io::Errno::NODATA) => None,
        Err(errno) => panic!("{name} of {}: {errno}", path.display()),
    }
}

/// Of files, directories and symlinks of any owner.
#[test]
fn p_keeps_attributes_that_root_may_set() {
    if !root("attributes that only root may set") {
        return;
    }
    let dir = dir();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let source = file(&dir, "tree/f", b"contents");
    let link = tree.join("l");
    symlink("nowhere", &link).unwrap();
    for path in [&tree, &source, &link] {
        // A change of owner removes a capability, as writing does.
        std::os::unix::fs::lchown(path, Some(1234), Some(4321)).unwrap();
    }
    if !set_as_root(&source, &OF_ROOT)
        || !set_as_root(&tree, &OF_ROOT[..2])
        || !set_as_root(&link, &OF_ROOT[..2])
    {
        return;
    }
    let same = |from: &Path, to: &Path, names: &[(&str, &[u8])]| {
        let (old, new) = (from.symlink_metadata(), to.symlink_metadata());
        let (old, new) = (old.unwrap(), new.unwrap());
        assert_eq!((new.uid(), new.mode()), (old.uid(), old.mode()));
        for (name, value) in names {
            assert_eq!(has(to, name).as_deref(), Some(*value), "{name} of {to:?}");
        }
    };
    for jobs in ["1", "4"] {
        let copy = dir.path().join(format!("copy{jobs}"));
        let run = run(cordboard()
            .args(["copy", "-rp", "--json", "--jobs", jobs])
            .args([&tree, &copy]));
        assert_eq!(run.ok().stderr().lines().count(), 1, "{}", run.stderr());
        assert!(run.json().get("unkept").is_none());
        same(&tree, &copy, &OF_ROOT[..2]);
        same(&source, &copy.join("f"), &OF_ROOT);
        same(&link, &copy.join("l"), &OF_ROOT[..2]);
    }
    // By name, and over an existing file.
    for (from, to, names) in [
        (&source, "one", &OF_ROOT[..]),
        (&source, "one", &OF_ROOT[..]),
        (&link, "link", &OF_ROOT[..2]),
    ] {
        let to = dir.path().join(to);
        let run = run(cordboard().args(["copy", "-p", "-r"]).args([from, &to]));
        assert_eq!(run.ok().stderr(), "");
        same(from, &to, names);
    }
    // Only -p preserves them.
    let plain = dir.path().join("plain");
    run(cordboard().arg("copy").args([&source, &plain])).ok();
    assert_eq!(
        OF_ROOT.map(|(name, _)| has(&plain, name)),
        [None, None, None]
    );
}

/// A reason that applies to every file is reported once, and counted;
/// attributes that the sink has already are not reported.
#[test]
fn attributes_that_may_not_be_set_are_told_of() {
    use rustix::fs::{XattrFlags, setxattr};
    if !root("attributes that only root may set") {
        return;
    }
    let without = ["--bounding-set=-sys_admin,-setfcap"];
    let can = Command::new("setpriv").args(without).arg("true").output();
    if !can.is_ok_and(|tried| tried.status.success()) {
        testkit::skip::here("to be refused an attribute, root needs setpriv");
        return;
    }
    let dir = dir();
    let [tree, copy] = ["tree", "copy"].map(|name| dir.path().join(name));
    for path in [&tree, &copy] {
        std::fs::create_dir(path).unwrap();
    }
    for name in ["a", "b", "c"] {
        let source = file(&dir, &format!("tree/{name}"), b"contents");
        if !set_as_root(&source, &OF_ROOT[1..]) {
            return;
        }
        setxattr(&source, "user.cord", b"board", XattrFlags::empty()).unwrap();
    }
    let there = file(&dir, "copy/c", b"");
    assert!(set_as_root(&there, &OF_ROOT[1..2]));
    let run = run(Command::new("setpriv")
        .args(without)
        .arg(env!("CARGO_BIN_EXE_cordboard"))
        .args(["copy", "-p", "--json", "--jobs", "1"])
        .args(["a", "b", "c"].map(|name| tree.join(name)))
        .arg(&copy));
    let stderr = run.ok().stderr();
    let told = |words: &str| stderr.lines().filter(|line| line.contains(words)).count();
    let of = |name: &str| format!("copy/a: warning: attribute {name} was not copied: ");
    if has(&copy.join("a"), "security.cord").is_some() {
        // A hook of a security module that allows it replaces the capability
        // (Linux 6.1 with that of BPF).
        testkit::skip::here("anybody may set security attributes here");
        return;
    }
    assert_eq!(told(&of("security.cord")), 1, "{stderr}");
    assert_eq!(told(&of("security.capability")), 1, "{stderr}");
    assert_eq!(told("was not copied"), 2, "{stderr}");
    // One attribute of b, and the other of both.
    assert_eq!(
        told("3 more attributes were not copied, for the reasons above"),
        1,
        "{stderr}"
    );
    assert_eq!(run.json()["unkept"], 5);
    for name in ["a", "b", "c"] {
        let to = copy.join(name);
        assert_eq!(read(&to), b"contents");
        assert_eq!(has(&to, "user.cord").as_deref(), Some(&b"board"[..]));
        assert_eq!(has(&to, "security.capability"), None);
        assert_eq!(has(&to, "security.cord").is_some(), name == "c");
    }
}

/// A list of names that exceeds the limit of the kernel (`XATTR_LIST_MAX`), as
/// is possible on xfs: a failure of the source, for files and directories.
#[test]
fn a_source_whose_attributes_cannot_be_read_is_named() {
    let dir = dir();
    std::fs::create_dir(dir.path().join("tree")).unwrap();
    file(&dir, "tree/f", b"contents");
    for (call, what) in [
        (libc::SYS_flistxattr, "extended attributes"),
        (libc::SYS_fgetxattr, "access control list"),
    ] {
        let to = dir.path().join(what);
        let run = apart(|| {
            testkit::refuse::refuse(&[call], libc::E2BIG);
            let tree = dir.path().join("tree");
            run(cordboard()
                .args(["copy", "-rp", "--json"])
                .args([&tree, &to]))
        });
        let says = |name: &str, to: &str| {
            let to = dir.path().join(what).join(to);
            let to = to.to_string_lossy();
            let to = to.trim_end_matches('/');
            format!("{name}: Argument list too long (E2BIG) reading the {what}, not set on {to}")
        };
        let stderr = run.stderr();
        assert_eq!(run.code(), 1, "{stderr}");
        for says in [says("tree/f", "f"), says("tree", "")] {
            assert!(stderr.contains(&says), "{says}: {stderr}");
        }
        assert_eq!(run.json()["failed"], "source", "{}", run.stderr());
        assert_eq!(read(to.join("f")), b"contents");
    }
}

/// xfs shows an access control list to root under a second name.
#[test]
fn the_second_name_of_a_list_is_no_attribute() {
    let dir = dir();
    let image = file(&dir, "image", b"");
    let open = std::fs::File::options().write(true).open(&image);
    open.unwrap().set_len(320 << 20).unwrap();
    let (at, to) = (dir.path().join("at"), dir.path().join("to"));
    let made = Command::new("mkfs.xfs").arg("-q").arg(&image).output();
    if !made.is_ok_and(|made| made.status.success()) {
        return testkit::skip::here("no mkfs.xfs here");
    }
    let Some(_mounted) = mounted::Mounted::new(&["-oloop".as_ref(), image.as_os_str()], &at) else {
        return;
    };
    let tree = at.join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("f"), b"f").unwrap();
    // linux/posix_acl_xattr.h: a version, then tag, bits and id of each.
    let list: Vec<u8> = [(1u16, 7u16, u32::MAX), (2, 7, 1234), (4, 5, u32::MAX)]
        .into_iter()
        .chain([(0x10, 7, u32::MAX), (0x20, 5, u32::MAX)])
        .flat_map(|(tag, bits, id)| {
            let entry = u64::from(tag) | u64::from(bits) << 16 | u64::from(id) << 32;
            entry.to_le_bytes()
        })
        .collect();
    let list = [&2u32.to_le_bytes()[..], &list].concat();
    let set = |path: &Path, name: &str| {
        rustix::fs::setxattr(path, name, &list, rustix::fs::XattrFlags::empty())
    };
    let lists = [("f", "access"), ("", "default")];
    let lists = lists.map(|(name, list)| (name, format!("system.posix_acl_{list}")));
    let there = (lists.each_ref()).map(|(name, list)| set(&tree.join(name), list).is_ok());
    let run = run(cordboard()
        .args(["copy", "-rp", "--json"])
        .args([&tree, &to]));
    assert_eq!(there, [true; 2]);
    assert_eq!(run.ok().stderr().lines().count(), 1, "{}", run.stderr());
    assert!(run.json().get("unkept").is_none());
    for (name, kept) in lists {
        let copied = to.join(name);
        assert_eq!(has(&copied, &kept).as_deref(), Some(&list[..]));
        // The sink has the second names too.
        const XFS: u32 = 0x5846_5342;
        if rustix::fs::statfs(&to).unwrap().f_type as u32 == XFS {
            testkit::skip::here("the temporary directory is on xfs too");
            continue;
        }
        for alias in ["trusted.SGI_ACL_FILE", "trusted.SGI_ACL_DEFAULT"] {
            assert_eq!(has(&copied, alias), None);
        }
    }
}
