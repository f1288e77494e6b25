//! Errors of one part of the destination, which has the device number of the rest:
//! all other files are copied.

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use testkit::refuse::refuse;

use crate::common::*;
use crate::past;

/// A directory `b` with a symlink, a file `z`, and the destination `into` with an
/// empty directory `b`.
fn places() -> TempDir {
    let dir = dir();
    for name in ["b", "into/b"] {
        std::fs::create_dir_all(dir.path().join(name)).unwrap();
    }
    symlink("nowhere", dir.path().join("b/l")).unwrap();
    file(&dir, "z", b"z");
    dir
}

/// One file has failed, and `z` was copied after it.
#[track_caller]
fn one_failed(dir: &TempDir, run: &Run) {
    let files = serde_json::json!({"copied": 1, "failed": 1, "left_out": false});
    assert_eq!(run.json()["files"], files, "{}", run.stderr());
    assert_eq!(read(dir.path().join("into/z")), b"z");
}

/// Copies these operands after a shell script has mounted something at `$1` below the
/// destination, and checks that it alone has failed.
fn with_mount(script: &str, at: &str, operands: [&str; 2], says: &str, prepare: impl Fn(&Path)) {
    if !can_mount() {
        return;
    }
    for jobs in ["1", "4"] {
        let dir = places();
        prepare(dir.path());
        let path = |name: &str| dir.path().join(name);
        let script = format!(r#"{script} || exit 9; at="$1"; shift; exec "$@""#);
        let run = run(Command::new("unshare")
            .args(["--mount", "sh", "-c", &script, "sh"])
            .arg(path(at))
            .arg(env!("CARGO_BIN_EXE_cordboard"))
            .args(["copy", "-r", "--json", "--jobs", jobs])
            .args(operands.map(path))
            .arg(path("into")));
        run.fails(1, &[says, "(EROFS)"]);
        one_failed(&dir, &run);
    }
}

#[test]
fn a_symlink_on_another_file_system_that_is_read_only() {
    let script = r#"mount -t tmpfs -o ro none "$1""#;
    with_mount(script, "into/b", ["b", "z"], "into/b/l", |_| {});
}

#[test]
fn a_part_of_the_same_file_system_that_is_mounted_read_only() {
    let script = r#"mount --bind "$1" "$1" && mount -o remount,bind,ro "$1""#;
    with_mount(script, "into/b", ["b", "z"], "into/b/f", |dir| {
        std::fs::remove_file(dir.join("b/l")).unwrap();
        std::fs::write(dir.join("b/f"), b"f").unwrap();
    });
}

#[test]
fn one_file_that_is_mounted_read_only() {
    let script = r#"mount --bind "$1" "$1" && mount -o remount,bind,ro "$1""#;
    with_mount(script, "into/a", ["a", "z"], "into/a", |dir| {
        std::fs::write(dir.join("a"), b"a").unwrap();
        std::fs::write(dir.join("into/a"), b"kept").unwrap();
    });
}

/// As the quota of a directory refuses it, while the destination has space.
#[test]
fn a_symlink_that_a_quota_refuses() {
    for errno in [libc::ENOSPC, libc::EDQUOT, libc::EROFS] {
        let dir = places();
        let path = |name: &str| dir.path().join(name);
        let run = apart(|| {
            refuse(&[libc::SYS_symlinkat], errno);
            run(cordboard()
                .args(["copy", "-r", "--json", "--jobs", "1"])
                .args(["b", "z", "into"].map(path)))
        });
        run.fails(1, &["into/b/l", " creating the symlink at the sink"]);
        one_failed(&dir, &run);
    }
}

/// As vfat refuses it.
#[test]
fn a_symlink_that_the_file_system_does_not_have() {
    let dir = places();
    let path = |name: &str| dir.path().join(name);
    let run = apart(|| {
        refuse(&[libc::SYS_symlinkat], libc::EPERM);
        run(cordboard()
            .args(["copy", "-r", "--json", "--jobs", "1"])
            .args(["b", "z", "into"].map(path)))
    });
    let says = "(EPERM) creating the symlink at the sink; its file system may have no symlinks";
    run.fails(1, &["into/b/l", says]);
    one_failed(&dir, &run);
}

#[test]
fn a_socket_is_written_to_by_splice() {
    let dir = dir();
    let source = file(&dir, "a", b"a");
    let socket = dir.path().join("s");
    let _bound = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let says = format!("splice {} unix:{}", source.display(), socket.display());
    let run = run(cordboard().arg("copy").args([&source, &socket]));
    run.fails(1, &["(ENXIO)", &says]);
}

/// The quota of the new owner: the symlink exists, and has its other attributes.
#[test]
fn a_symlink_whose_owner_a_quota_refuses() {
    let dir = places();
    let path = |name: &str| dir.path().join(name);
    past(&path("b/l"));
    let run = apart(|| {
        refuse(&[libc::SYS_fchownat], libc::EDQUOT);
        run(cordboard()
            .args(["copy", "-rp", "--json", "--jobs", "1"])
            .args(["b", "z", "into"].map(path)))
    });
    run.fails(1, &["into/b/l: ", "(EDQUOT) setting the owner"]);
    one_failed(&dir, &run);
    assert_eq!(path("into/b/l").symlink_metadata().unwrap().mtime(), 1);
}

/// Several attributes of one symlink cannot be set.
#[test]
fn a_symlink_with_several_problems_is_one_failure() {
    let dir = places();
    let path = |name: &str| dir.path().join(name);
    let flags = rustix::fs::XattrFlags::empty();
    if let Err(errno) = rustix::fs::lsetxattr(path("b/l"), "trusted.cord", b"x", flags) {
        return testkit::skip::here(format!("no attributes of root here: {errno}"));
    }
    let run = apart(|| {
        refuse(&[libc::SYS_setxattr], libc::ENOSPC);
        refuse(&[libc::SYS_fchownat], libc::EDQUOT);
        run(cordboard()
            .args(["copy", "-rp", "--json", "--jobs", "1"])
            .args(["b", "z", "into"].map(path)))
    });
    let stderr = run.stderr();
    assert_eq!(run.code(), 1, "{stderr}");
    for says in ["setting the attribute trusted.cord", "setting the owner"] {
        assert_eq!(stderr.matches(says).count(), 1, "{stderr}");
    }
    one_failed(&dir, &run);
}

/// As on a full thin pool, whose file system has space: the rest is left out.
#[test]
fn a_lack_of_space_that_only_a_sync_reports_affects_all_files() {
    let dir = dir();
    let unnamed = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::TMPFILE;
    if let Err(errno) = rustix::fs::open(dir.path(), unnamed, 0o600.into()) {
        return testkit::skip::here(format!("no files without a name here: {errno}"));
    }
    let sources = ["a", "z"].map(|name| file(&dir, name, name.as_bytes()));
    std::fs::create_dir_all(dir.path().join("tree/directory")).unwrap();
    let tree = [dir.path().join("tree")];
    for (index, (options, sources)) in [
        (&["--sync"][..], &sources[..]),
        (&["--sync", "-p"], &sources),
        (&["--verify"], &sources),
        // Directories without files are settled.
        (&["--sync", "-r"], &tree),
    ]
    .into_iter()
    .enumerate()
    {
        let into = dir.path().join(format!("into{index}"));
        std::fs::create_dir(&into).unwrap();
        let copied = |calls: &[libc::c_long]| {
            apart(|| {
                refuse(calls, libc::ENOSPC);
                let mut command = cordboard();
                command.args(["copy", "--json", "--jobs", "1"]);
                run(command.args(options).args(sources).arg(&into))
            })
        };
        let run = copied(&[libc::SYS_fsync, libc::SYS_fdatasync]);
        let stderr = run.stderr();
        assert_eq!(run.code(), 1, "{stderr}");
        assert_eq!(stderr.matches("(ENOSPC)").count(), 1, "{stderr}");
        if sources.len() > 1 {
            let files = serde_json::json!({"copied": 0, "failed": 1, "left_out": true});
            assert_eq!(run.json()["files"], files, "{stderr}");
            let says = "into{index}/a holds 1 of 1 byte, not all of them on the disk";
            assert!(
                stderr.contains(&says.replace("{index}", &index.to_string())),
                "{stderr}"
            );
        }
    }
    // The destination takes other files.
    let into = dir.path().join("into0");
    let run = apart(|| {
        refuse(&[libc::SYS_fsync], libc::ENOSPC);
        let mut command = cordboard();
        command.args(["copy", "--json", "--sync", "--jobs", "1"]);
        run(command.args(&sources).arg(&into))
    });
    let files = serde_json::json!({"copied": 0, "failed": 2, "left_out": false});
    assert_eq!(run.json()["files"], files, "{}", run.stderr());
}
