//! Directories and all that is in them.

use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::*;
use crate::{chmod, mode};

/// Also if it has no file, so that no bytes are moved.
#[test]
fn the_time_of_a_tree_is_that_of_the_whole_command() {
    let dir = dir();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    for name in 0..20 {
        symlink("nowhere", tree.join(name.to_string())).unwrap();
    }
    let copy = dir.path().join("copy");
    let run = run(cordboard()
        .args(["copy", "-r", "--json"])
        .args([&tree, &copy]));
    assert!(run.ok().json()["seconds"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_tree_with_links_and_special_files() {
    let dir = dir();
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("a/b/empty")).unwrap();
    std::fs::write(tree.join("top"), b"top").unwrap();
    std::fs::write(tree.join("a/b/deep"), bytes(50_000)).unwrap();
    symlink("../top", tree.join("a/link")).unwrap();
    symlink("nowhere", tree.join("a/dangling")).unwrap();
    chmod(&tree.join("a/b"), 0o500);
    let copy = dir.path().join("copy");
    let run_ = run(cordboard()
        .args(["copy", "-r", "--json"])
        .args([&tree, &copy]));
    assert_eq!(run_.ok().json()["written"], 50_003);
    assert_eq!(read(copy.join("top")), b"top");
    assert_eq!(read(copy.join("a/b/deep")), bytes(50_000));
    assert!(copy.join("a/b/empty").is_dir());
    assert_eq!(mode(&copy.join("a/b")), 0o500);
    assert_eq!(
        std::fs::read_link(copy.join("a/link")).unwrap(),
        Path::new("../top")
    );
    assert_eq!(
        std::fs::read_link(copy.join("a/dangling")).unwrap(),
        Path::new("nowhere")
    );
    chmod(&tree.join("a/b"), 0o700);
    chmod(&copy.join("a/b"), 0o700);
    // A second time over the first copy: the same again, with the symlinks
    // replaced.
    std::fs::remove_dir_all(tree.join("a/b/empty")).unwrap();
    fifo(&tree.join("a/fifo"));
    let into = run(cordboard()
        .args(["copy", "-r"])
        .args([&tree.join("."), &copy]));
    into.fails(1, &["a/fifo", "is a FIFO"]);
    assert_eq!(read(copy.join("a/b/deep")), bytes(50_000));
    assert!(!copy.join("a/fifo").exists());
    assert!(!copy.join("tree").exists());
    // Into an existing directory, by name.
    std::fs::remove_file(tree.join("a/fifo")).unwrap();
    run(cordboard().args(["copy", "-R"]).args([&tree, &copy])).ok();
    assert_eq!(read(copy.join("tree/a/b/deep")), bytes(50_000));
}

#[test]
fn a_symlink_does_not_lead_a_tree_elsewhere() {
    let dir = dir();
    for name in ["tree/sub", "into", "elsewhere"] {
        std::fs::create_dir_all(dir.path().join(name)).unwrap();
    }
    file(&dir, "tree/sub/f", b"f");
    let at = |name: &str| dir.path().join(name);
    symlink(at("elsewhere"), at("into/sub")).unwrap();
    let copy = |to| {
        run(cordboard()
            .args(["copy", "-r"])
            .args([at("tree/."), at(to)]))
    };
    copy("into").fails(1, &["sub: exists and is not a directory"]);
    assert!(!at("elsewhere/f").exists());
    // An operand is followed.
    symlink(at("elsewhere"), at("top")).unwrap();
    copy("top").ok();
    assert_eq!(read(at("elsewhere/sub/f")), b"f");
}

#[test]
fn a_directory_is_not_copied_into_itself() {
    let dir = dir();
    let a = dir.path().join("a");
    std::fs::create_dir_all(a.join("b")).unwrap();
    std::fs::write(a.join("f"), b"f").unwrap();
    for sink in [a.clone(), a.join("b"), a.join("new")] {
        run(cordboard().args(["copy", "-r"]).args([&a, &sink])).fails(1, &["into itself"]);
    }
    assert_eq!(std::fs::read_dir(&a).unwrap().count(), 2);
    assert_eq!(std::fs::read_dir(a.join("b")).unwrap().count(), 0);
}

#[test]
fn a_tree_onto_itself_destroys_nothing() {
    let dir = dir();
    let a = dir.path().join("a");
    std::fs::create_dir(&a).unwrap();
    std::fs::write(a.join("f"), b"contents").unwrap();
    // Its contents into its own place.
    run(cordboard().args(["copy", "-r"]).args([&a.join("."), &a])).fails(1, &["into itself"]);
    assert_eq!(read(a.join("f")), b"contents");
}

#[test]
fn what_is_of_another_type_in_the_way() {
    let dir = dir();
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("x")).unwrap();
    symlink("x", tree.join("y")).unwrap();
    let copy = dir.path().join("copy");
    std::fs::create_dir_all(copy.join("y")).unwrap();
    std::fs::write(copy.join("x"), b"a file").unwrap();
    let run = run(cordboard()
        .args(["copy", "-r"])
        .args([&tree.join("."), &copy]));
    assert_eq!(run.code(), 1);
    let stderr = run.stderr();
    assert!(
        stderr.contains("is not a directory, but its source is one"),
        "{stderr}"
    );
    assert!(stderr.contains("is not a symlink"), "{stderr}");
    assert_eq!(read(copy.join("x")), b"a file");
}

/// On a case-sensitive file system they are ordinary names.
#[test]
fn names_that_differ_in_case_alone() {
    for jobs in ["-j1", "-j4"] {
        let dir = dir();
        let at = |name: &str| dir.path().join(name);
        for name in ["tree/D", "tree/d", "tree/e/E", "tree/e/e", "into/e"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        let names = ["F", "f", "D/f", "d/f", "e/E/g", "e/e/g", "e/G", "e/g"];
        for name in names {
            file(&dir, &format!("tree/{name}"), name.as_bytes());
        }
        symlink("f", at("tree/L")).unwrap();
        symlink("F", at("tree/l")).unwrap();
        // Over a part of the copy, and over the whole.
        file(&dir, "into/F", b"old");
        for _ in 0..2 {
            run(cordboard()
                .args(["copy", "-r", jobs])
                .args([at("tree/."), at("into")]))
            .ok();
            for name in names {
                assert_eq!(read(at("into").join(name)), name.as_bytes());
            }
            for (name, to) in [("L", "f"), ("l", "F")] {
                let link = std::fs::read_link(at("into").join(name)).unwrap();
                assert_eq!(link, Path::new(to));
            }
            std::fs::write(at("into/f"), b"old").unwrap();
        }
    }
}

/// Deeper than the limits of open files, of the length of a path, and of the
/// stack.
#[test]
fn a_deep_tree() {
    use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
    // Longer than PATH_MAX.
    const DEPTH: usize = 2200;
    let dir = dir();
    let down = |above: std::os::fd::BorrowedFd<'_>, name: &str| {
        openat(above, name, OFlags::DIRECTORY, Mode::empty()).unwrap()
    };
    let at = down(CWD, dir.path().to_str().unwrap());
    let mut here = at.try_clone().unwrap();
    for level in 0..=DEPTH {
        let name = if level == 0 { "t" } else { "d" };
        mkdirat(&here, name, Mode::from_raw_mode(0o700)).unwrap();
        here = down(here.as_fd(), name);
        // On the way back, after everything below.
        if level % 100 == 0 {
            let flags = OFlags::CREATE | OFlags::WRONLY;
            let file = openat(&here, "z", flags, Mode::from_raw_mode(0o600)).unwrap();
            rustix::io::write(&file, level.to_string().as_bytes()).unwrap();
        }
    }
    let script = r#"ulimit -n 48; exec "$@""#;
    let run = run(Command::new("sh")
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_cordboard")])
        .args(["copy", "-r", "-p", "--json"])
        .args([dir.path().join("t"), dir.path().join("c")]));
    let written: usize = (0..=DEPTH).step_by(100).map(|n| n.to_string().len()).sum();
    assert_eq!(run.ok().json()["written"], written);
    let mut here = at.try_clone().unwrap();
    for level in 0..=DEPTH {
        here = down(here.as_fd(), if level == 0 { "c" } else { "d" });
        if level % 100 == 0 {
            let file = openat(&here, "z", OFlags::RDONLY, Mode::empty()).unwrap();
            let mut text = [0; 8];
            let n = rustix::io::read(&file, &mut text).unwrap();
            assert_eq!(text[..n], *level.to_string().as_bytes());
        }
    }
    // The standard library's function to remove a tree needs a descriptor for
    // each level.
    let removed = Command::new("rm").arg("-rf").arg(dir.path()).status();
    assert!(removed.unwrap().success());
}

/// A directory that no user may enter is settled last.
#[test]
fn a_deep_tree_of_shut_directories() {
    let dir = dir();
    let mut paths = vec![dir.path().join("t")];
    for _ in 0..40 {
        paths.push(paths[paths.len() - 1].join("d"));
    }
    std::fs::create_dir_all(&paths[40]).unwrap();
    std::fs::write(paths[40].join("f"), b"f").unwrap();
    for path in paths.iter().rev().step_by(2) {
        chmod(path, 0o500);
    }
    let copy = dir.path().join("c");
    run(cordboard().args(["copy", "-r"]).args([&paths[0], &copy])).ok();
    let mut there = copy;
    for (level, path) in paths.iter().enumerate() {
        assert_eq!(mode(&there), mode(path), "{level}");
        there.push("d");
    }
    for path in &paths {
        chmod(path, 0o700);
    }
    let mut there = dir.path().join("c");
    while there.is_dir() {
        chmod(&there, 0o700);
        there.push("d");
    }
}

/// Without the bit, any user could remove files of others there.
#[test]
fn a_sticky_directory_stays_one() {
    let dir = dir();
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("sub")).unwrap();
    for (path, bits) in [(tree.join("sub"), 0o1577), (tree.clone(), 0o7777)] {
        chmod(&path, bits);
    }
    let copy = dir.path().join("copy");
    let script = r#"umask 0; exec "$@""#;
    run(Command::new("sh")
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_cordboard")])
        .args(["copy", "-r"])
        .args([&tree, &copy]))
    .ok();
    assert_eq!(mode(&copy), 0o1777);
    assert_eq!(mode(&copy.join("sub")), 0o1577);
    for path in [tree.join("sub"), copy.join("sub")] {
        chmod(&path, 0o700);
    }
}

/// The new one would have a private name for a moment, at which the command may
/// be killed.
#[test]
fn a_symlink_with_the_same_target_is_not_replaced() {
    let dir = dir();
    let at = |name: &str| dir.path().join(name);
    for name in ["tree", "into"] {
        std::fs::create_dir(at(name)).unwrap();
        symlink("same", at(name).join("same")).unwrap();
        symlink(name, at(name).join("other")).unwrap();
    }
    let inode = |name: &str| at("into").join(name).symlink_metadata().unwrap().ino();
    let before = ["same", "other"].map(inode);
    let copy = |flags| {
        run(cordboard()
            .args(["copy", flags])
            .args(["tree/.", "into"].map(at)))
        .ok();
        let target = |name: &str| at("into").join(name).read_link().unwrap();
        assert_eq!(target("same"), Path::new("same"));
        assert_eq!(target("other"), Path::new("tree"));
        ["same", "other"].map(inode)
    };
    let after = copy("-r");
    assert_eq!(before[0], after[0]);
    assert_ne!(before[1], after[1]);
    // It gets the owner of the source.
    assert_ne!(copy("-rp")[0], after[0]);
}

#[test]
fn a_symlink_that_cannot_be_replaced_stays() {
    let dir = dir();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("from")).unwrap();
    // tmpfs keeps a short target in the inode, and a long one in a page.
    symlink("n".repeat(300), at("from/l")).unwrap();
    let Some(_mounted) = mounted::Mounted::tmpfs("size=64k", &at("m")) else {
        return;
    };
    symlink("short", at("m/l")).unwrap();
    let filled = std::fs::write(at("m/full"), bytes(1 << 17));
    let run = run(cordboard()
        .args(["copy", "-r"])
        .args([at("from/l"), at("m/l")]));
    let kept = at("m/l").read_link();
    let left = std::fs::read_dir(at("m")).unwrap().count();
    assert!(filled.is_err(), "not full");
    run.fails(1, &["m/l: No space left on device (ENOSPC)"]);
    assert_eq!(kept.unwrap(), Path::new("short"));
    assert_eq!(left, 2, "a private name");
}

/// A directory whose files have all ended gets its attributes, although the signal
/// ends the copy of a file elsewhere.
#[test]
fn an_interrupt_leaves_no_complete_directory_shut() {
    let dir = dir();
    let [from, to] = ["tree", "copy"].map(|name| dir.path().join(name));
    for name in ["a", "b", "huge"] {
        std::fs::create_dir_all(from.join(name)).unwrap();
        chmod(&from.join(name), 0o755);
    }
    chmod(&from, 0o755);
    for name in ["a", "b"] {
        std::fs::write(from.join(name).join("f"), name).unwrap();
    }
    let huge = std::fs::File::create(from.join("huge/f")).unwrap();
    huge.set_len(1 << 40).unwrap();
    let child = cordboard()
        .args(["copy", "-rp", "--json", "--jobs", "2"])
        .args(SMALL_STEPS)
        .args([&from, &to])
        .stderr(Stdio::piped())
        .start();
    let length = |name: &str| to.join(name).metadata().map_or(0, |file| file.len());
    until("all files", || {
        (length("a/f") == 1 && length("b/f") == 1 && length("huge/f") > 0).then_some(())
    });
    // The walk has ended if its thread only waits for the engine.
    let mut times = 0;
    until("the end of the walk", || {
        times = if sleeping(child.id()) { times + 1 } else { 0 };
        (times == 20).then_some(())
    });
    signal(child.id(), rustix::process::Signal::INT);
    let run = end(child);
    assert_eq!(run.code(), 130, "{}", run.stderr());
    let files = serde_json::json!({"copied": 2, "failed": 0, "left_out": true});
    assert_eq!(run.json()["files"], files, "{}", run.stderr());
    for (name, bits) in [("", 0o755), ("a", 0o755), ("b", 0o755), ("huge", 0o700)] {
        assert_eq!(mode(&to.join(name)), bits, "{name}");
    }
}
