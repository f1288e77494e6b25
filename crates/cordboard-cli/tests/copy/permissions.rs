//! Directories without access for some users, or even for the copying user.

use std::io::Write;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::{Path, PathBuf};

use crate::common::*;
use crate::{chmod, mode, mortal};

/// A tree of two levels.
fn tree(dir: &TempDir) -> PathBuf {
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("sub")).unwrap();
    file(dir, "tree/f", b"top");
    file(dir, "tree/sub/f", b"below");
    chmod(&tree, 0o750);
    chmod(&tree.join("sub"), 0o550);
    tree
}

/// A directory in which files can be created, and which cannot be listed.
fn shut(path: &Path) {
    std::fs::create_dir_all(path).unwrap();
    if rustix::process::geteuid().is_root() {
        // Owned by another user, so that its mode cannot be changed.
        chown(path, Some(1234), Some(1234)).unwrap();
        chmod(path, 0o1733);
    } else {
        chmod(path, 0o300);
    }
}

/// With `O_CREAT`, the kernel would refuse the file of another user in the sticky directory
/// (`fs.protected_regular`): a backup could be made once.
#[test]
fn a_tree_with_a_sticky_directory_is_copied_again() {
    if !root("a file of another user") {
        return;
    }
    let dir = dir();
    let tree = tree(&dir);
    let [from, to] = ["tree/sub", "copy"].map(|name| dir.path().join(name));
    std::fs::create_dir(&to).unwrap();
    chown(from.join("f"), Some(4321), Some(4321)).unwrap();
    chmod(&from, 0o1777);
    for contents in ["first", "second"] {
        let mut source = std::fs::File::options();
        let source = source.write(true).truncate(true).open(from.join("f"));
        source.unwrap().write_all(contents.as_bytes()).unwrap();
        run(cordboard().args(["copy", "-rp"]).args([&tree, &to])).ok();
        assert_eq!(read(to.join("tree/sub/f")), contents.as_bytes());
    }
}

#[test]
fn a_umask_that_shuts_directories_to_their_owner() {
    let dir = dir();
    let tree = tree(&dir);
    for (umask, modes) in [
        ("0277", [0o500, 0o500]),
        ("0777", [0, 0]),
        ("0477", [0o300, 0o100]),
    ] {
        for preserve in [false, true] {
            let Some(mut command) = mortal(&format!("umask {umask}")) else {
                return;
            };
            let copy = dir.path().join(format!("{umask}{preserve}"));
            let flags = if preserve { "-rp" } else { "-r" };
            let run = run(command.args(["copy", flags]).args([&tree, &copy]));
            run.ok();
            let modes = if preserve { [0o750, 0o550] } else { modes };
            let mut made = vec![mode(&copy)];
            chmod(&copy, 0o700);
            made.push(mode(&copy.join("sub")));
            assert_eq!(made, modes, "{umask} {preserve}");
            for path in [copy.join("sub"), copy.join("f"), copy.join("sub/f")] {
                chmod(&path, 0o700);
            }
            assert_eq!(read(copy.join("f")), b"top");
            assert_eq!(read(copy.join("sub/f")), b"below");
        }
    }
    chmod(&tree.join("sub"), 0o700);
}

#[test]
fn a_directory_that_may_not_be_listed() {
    let dir = dir();
    let tree = tree(&dir);
    let at = dir.path().join("box");
    shut(&at);
    let before = mode(&at);
    let Some(mut command) = mortal("umask 022") else {
        return;
    };
    let run = run(command.args(["copy", "-r"]).args([&tree.join("."), &at]));
    run.ok();
    assert_eq!(mode(&at), before);
    chmod(&at, 0o700);
    assert_eq!(read(at.join("f")), b"top");
    assert_eq!(read(at.join("sub/f")), b"below");
    assert_eq!(mode(&at.join("sub")), 0o550);
    for path in [tree.join("sub"), at.join("sub")] {
        chmod(&path, 0o700);
    }
}

/// Its attributes need more access than creating files in it.
#[test]
fn one_of_our_own_that_may_not_be_listed_gets_attributes() {
    let dir = dir();
    let tree = tree(&dir);
    let at = dir.path().join("box");
    std::fs::create_dir(&at).unwrap();
    chmod(&at, 0o300);
    let Some(mut command) = mortal(":") else {
        return;
    };
    let run = run(command
        .args(["copy", "-rp", "--sync"])
        .args([&tree.join("."), &at]));
    run.ok();
    let [old, new] = [&tree, &at].map(|path| path.metadata().unwrap());
    assert_eq!(mode(&at), 0o750);
    assert_eq!(
        (new.mtime(), new.mtime_nsec()),
        (old.mtime(), old.mtime_nsec())
    );
    for path in [tree.join("sub"), at.join("sub")] {
        chmod(&path, 0o700);
    }
}

/// Deeper than the number of open directories: they are opened again.
#[test]
fn a_deep_tree_that_may_not_be_listed() {
    let dir = dir();
    let [from, to] = ["from", "to"].map(|name| dir.path().join(name));
    let below = |top: &Path, depth| (0..depth).fold(top.to_owned(), |path, _| path.join("d"));
    std::fs::create_dir_all(below(&from, 40)).unwrap();
    std::fs::create_dir_all(below(&to, 40)).unwrap();
    for depth in 0..=40 {
        std::fs::write(below(&from, depth).join("z"), depth.to_string()).unwrap();
    }
    for depth in (0..=40).rev() {
        shut(&below(&to, depth));
    }
    let Some(mut command) = mortal(":") else {
        return;
    };
    let run = run(command.args(["copy", "-r"]).args([&from.join("."), &to]));
    run.ok();
    for depth in 0..=40 {
        chmod(&below(&to, depth), 0o700);
        assert_eq!(
            read(below(&to, depth).join("z")),
            depth.to_string().as_bytes()
        );
    }
}

#[test]
fn synced_into_a_directory_that_may_not_be_listed() {
    let dir = dir();
    let source = file(&dir, "s", &bytes(9000));
    let link = dir.path().join("l");
    symlink("s", &link).unwrap();
    let tree = tree(&dir);
    let at = dir.path().join("box");
    shut(&at);
    for (flags, source, sink) in [
        (&["copy", "--sync"][..], &source, at.join("one")),
        (&["splice", "--sync"], &source, at.join("two")),
        (&["copy", "-r", "--sync"], &link, at.join("three")),
        (&["copy", "-r", "--sync"], &tree, at.join("four")),
        (&["copy", "-r", "--sync"], &tree.join("."), at.clone()),
    ] {
        let Some(mut command) = mortal(":") else {
            return;
        };
        let run = run(command.args(flags).args([source, &sink]));
        run.ok();
    }
    chmod(&at, 0o700);
    for name in ["one", "two"] {
        assert!(read(at.join(name)) == bytes(9000));
    }
    assert_eq!(
        std::fs::read_link(at.join("three")).unwrap(),
        Path::new("s")
    );
    assert_eq!(read(at.join("four/sub/f")), b"below");
    assert_eq!(read(at.join("sub/f")), b"below");
    for path in ["tree/sub", "box/sub", "box/four/sub"] {
        chmod(&dir.path().join(path), 0o700);
    }
}
