//! One file in two file systems.

use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::XattrFlags;
use testkit::fuse::{Served, with_file};
use testkit::needs::{Need, missing};
use testkit::refuse::refuse;

use super::common::overlay::Overlay;
use super::common::*;

fn times(file: &Path) -> (i64, i64) {
    let stat = file.metadata().unwrap();
    (stat.mtime(), stat.mtime_nsec())
}

#[test]
fn a_file_is_not_copied_onto_itself_by_another_device_number() {
    let Some(overlay) = Overlay::mount() else {
        return;
    };
    let contents = bytes(100_000);
    let [merged, upper] = ["merged/f", "upper/f"].map(|name| overlay.at(name));
    std::fs::write(&merged, &contents).unwrap();
    let [seen, below] = [&merged, &upper].map(|file| file.metadata().unwrap().dev());
    assert_ne!(seen, below, "no alias");
    let before = times(&upper);
    for (from, to) in [(&merged, &upper), (&upper, &merged)] {
        for command in ["copy", "splice"] {
            let run = run(cordboard().arg(command).args([from, to]));
            assert_eq!(run.code(), 1, "{command}: {}", run.stderr());
            for says in ["is the same file as the source", "nothing was written:"] {
                assert!(run.stderr().contains(says), "{}", run.stderr());
            }
            assert!(read(&merged) == contents, "{command}");
            assert_eq!(times(&upper), before, "{command}");
        }
    }
    let appended = run(cordboard()
        .args(["copy", "--append"])
        .args([&merged, &upper]));
    assert_eq!(appended.code(), 1, "{}", appended.stderr());
    assert!(read(&merged) == contents);
    // Ranges cannot be compared: the kernel knows two files.
    for options in [&["copy"][..], &["splice"], &["splice", "--buffer", "1M"]] {
        let done = run(cordboard()
            .args(options)
            .args(["--sink-offset", "100000"])
            .args([&merged, &upper]));
        done.fails(
            1,
            &["is the same file as the source", "nothing was written"],
        );
        assert!(read(&merged) == contents);
        assert_eq!(times(&upper), before, "{options:?}");
    }
}

/// Different files that are as alike as aliases are copied.
#[test]
fn files_that_are_only_alike_are_copied() {
    let Some(overlay) = Overlay::mount() else {
        return;
    };
    let dir = dir();
    let (from, to) = (file(&dir, "from", &bytes(5000)), overlay.at("upper/to"));
    std::fs::write(&to, [7; 5000]).unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    for name in [&from, &to] {
        let open = std::fs::File::options().write(true).open(name).unwrap();
        open.set_modified(time).unwrap();
    }
    run(cordboard().arg("copy").args([&from, &to])).ok();
    assert!(read(&to) == bytes(5000));
}

/// `program` with a file size limit of one block of 512 bytes.
fn limited(program: &OsStr) -> Command {
    let mut command = Command::new("sh");
    let limit = ["-c", "ulimit -f 1; exec \"$@\"", "sh"];
    command.args(limit).arg(program).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// No further byte is allowed, which would show that both are one file.
#[test]
fn a_limit_hides_no_alias() {
    let Some(overlay) = Overlay::mount() else {
        return;
    };
    let [merged, upper] = ["merged/f", "upper/f"].map(|name| overlay.at(name));
    let contents = bytes(512);
    for command in ["copy", "splice"] {
        std::fs::write(&merged, &contents).unwrap();
        let mut limited = limited(cordboard().get_program());
        let run = run(limited.arg(command).args([&merged, &upper]));
        run.fails(1, &["is the same file as the source"]);
        assert!(read(&merged) == contents, "{command}");
    }
}

/// The output of such a command within the limit, run by another user who may
/// write to files that all users may write to.
fn by_another_user(overlay: &Overlay, args: &[&OsStr]) -> Run {
    for name in ["", "upper", "merged"] {
        allow(&overlay.at(name), 0o755);
    }
    // Another user may not be able to reach the directory of the binary.
    let binary = overlay.at("cordboard");
    if !binary.exists() {
        install(env!("CARGO_BIN_EXE_cordboard"), &binary);
    }
    let mut limited = limited(binary.as_os_str());
    end(limited.args(args).uid(65534).gid(65534).start())
}

fn allow(path: &Path, mode: u32) {
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, mode).unwrap();
}

fn grow_old(path: &Path) {
    let open = std::fs::File::options().write(true).open(path).unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    open.set_modified(time).unwrap();
}

/// Any time shows it, but only the owner sets another time than the present
/// one.
#[test]
fn who_owns_neither_finds_out_by_the_present_time() {
    let Some(overlay) = Overlay::mount() else {
        return;
    };
    let [merged, upper] = ["merged/f", "upper/f"].map(|name| overlay.at(name));
    let contents = bytes(512);
    std::fs::write(&merged, &contents).unwrap();
    let [from, to] = ["merged/from", "upper/to"].map(|name| overlay.at(name));
    // They are only alike.
    std::fs::write(&from, &contents).unwrap();
    for command in ["copy", "splice"].map(OsStr::new) {
        std::fs::write(&to, [7; 512]).unwrap();
        for path in [&merged, &from, &to] {
            grow_old(path);
            allow(path, 0o666);
        }
        let run = by_another_user(&overlay, &[command, merged.as_ref(), upper.as_ref()]);
        let left = "nothing was written, but its modification time was set to the present:";
        run.fails(1, &["is the same file as the source", left]);
        assert!(read(&merged) == contents, "{command:?}");
        by_another_user(&overlay, &[command, from.as_ref(), to.as_ref()]).ok();
        assert!(read(&to) == contents, "{command:?}");
    }
}

/// If it remains unknown, nothing is truncated.
#[test]
fn what_may_be_an_alias_is_not_emptied() {
    /// `utimensat(2)`, also with a time of 64 bits on 32-bit architectures.
    const UTIMENSAT: [libc::c_long; 2] = [libc::SYS_utimensat, 412];
    let Some(overlay) = Overlay::mount() else {
        return;
    };
    let [merged, upper] = ["merged/f", "upper/f"].map(|name| overlay.at(name));
    let contents = bytes(512);
    std::fs::write(&merged, &contents).unwrap();
    allow(&merged, 0o666);
    for command in ["copy", "splice"].map(OsStr::new) {
        let run = apart(|| {
            refuse(&UTIMENSAT, libc::EPERM);
            by_another_user(&overlay, &[command, merged.as_ref(), upper.as_ref()])
        });
        run.fails(1, &["may be the same file as the source", "ulimit -f"]);
        assert!(read(&merged) == contents, "{command:?}");
    }
}

/// The kernel caches what a server has reported about a file, also while the
/// file changes.
#[test]
fn what_is_kept_of_a_file_hides_no_alias() {
    // Without it, a server's answers are as old as the kernel keeps them.
    if missing("what_is_kept_of_a_file_hides_no_alias", &[Need::Statx]) {
        return;
    }
    let dir = dir();
    let contents = bytes(5000);
    let below = file(&dir, "below", &contents);
    let open = std::fs::File::open(&below).unwrap();
    let shown = Served {
        shows: Some(&open),
        ..Served::default()
    };
    let mounted = with_file(shown, |above| {
        assert!(read(above) == contents);
        // The second probe finds nothing of the temporary change of the first.
        for command in ["copy", "splice"] {
            call([command.as_ref(), above.as_os_str(), below.as_os_str()])
                .fails(1, &["is the same file as the source"]);
            assert!(read(&below) == contents, "{command}");
        }
    });
    if !mounted {
        testkit::skip::here("no FUSE here");
    }
}

/// A sink that was empty may have contents now, which would remain behind what
/// is written.
#[test]
fn a_sink_that_is_kept_as_empty_is_cut() {
    let dir = dir();
    let from = file(&dir, "from", b"new");
    for command in ["copy", "splice"] {
        let below = file(&dir, "below", b"");
        let open = std::fs::File::options().read(true).write(true).open(&below);
        let shown = Served {
            shows: Some(&open.unwrap()),
            ..Served::default()
        };
        let mounted = with_file(shown, |above| {
            assert_eq!(above.metadata().unwrap().len(), 0);
            std::fs::write(&below, "longer").unwrap();
            assert_eq!(above.metadata().unwrap().len(), 0, "it is not kept");
            call([command.as_ref(), from.as_os_str(), above.as_os_str()]).ok();
            assert_eq!(read(&below), b"new", "{command}");
        });
        if !mounted {
            return testkit::skip::here("no FUSE here");
        }
    }
}

/// Extending and truncating a file removes its capabilities.
#[test]
fn an_alias_keeps_its_capabilities() {
    let Some(overlay) = Overlay::mount() else {
        return;
    };
    let [merged, upper] = ["merged/f", "upper/f"].map(|name| overlay.at(name));
    std::fs::write(&merged, bytes(5000)).unwrap();
    // struct vfs_cap_data of version 2: cap_net_raw is permitted and effective.
    let mut value = [0u8; 20];
    value[..6].copy_from_slice(&[1, 0, 0, 2, 0, 32]);
    let name = "security.capability";
    if let Err(errno) = rustix::fs::setxattr(&upper, name, &value, XattrFlags::empty()) {
        return testkit::skip::here(format!("no capabilities of files here: {errno}"));
    }
    for (from, to) in [(&merged, &upper), (&upper, &merged)] {
        call(["copy".as_ref(), from.as_os_str(), to.as_os_str()])
            .fails(1, &["is the same file as the source"]);
        let mut found = [0u8; 20];
        let length = rustix::fs::getxattr(&upper, name, &mut found);
        assert_eq!((length, found), (Ok(20), value));
    }
}

/// `chattr +a` refuses to set a time or a length.
#[test]
fn what_may_only_be_appended_to_is_appended_to() {
    let Some(overlay) = Overlay::mount() else {
        return;
    };
    let dir = dir();
    let (from, to) = (file(&dir, "from", b"alike"), overlay.at("upper/to"));
    std::fs::write(&to, b"other").unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    for name in [&from, &to] {
        let open = std::fs::File::options().write(true).open(name).unwrap();
        open.set_modified(time).unwrap();
    }
    let only = |sign: &str| Command::new("chattr").arg(sign).arg(&to).output();
    if !only("+a").is_ok_and(|run| run.status.success()) {
        return testkit::skip::here("no chattr(1) here, or no such attribute");
    }
    for (command, holds) in [("copy", "otheralike"), ("splice", "otheralikealike")] {
        let run = run(cordboard().args([command, "--append"]).args([&from, &to]));
        assert_eq!(run.code(), 0, "{command}: {}", run.stderr());
        assert_eq!(read(&to), holds.as_bytes(), "{command}");
    }
    only("-a").unwrap();
}

/// Bytes appended to their source would be read again without end.
#[test]
fn nothing_is_appended_to_itself_by_another_device_number() {
    let Some(overlay) = Overlay::mount() else {
        return;
    };
    let [merged, upper] = ["merged/f", "upper/f"].map(|name| overlay.at(name));
    let contents = bytes(300);
    std::fs::write(&merged, &contents).unwrap();
    let before = times(&upper);
    for command in ["copy", "splice", "cat"] {
        // Without the refusal it ends at the limit.
        let mut limited = limited(cordboard().get_program());
        limited.arg(command);
        if command == "cat" {
            let sink = std::fs::File::options().append(true).open(&upper);
            limited.arg(&merged).stdout(sink.unwrap());
        } else {
            limited.arg("--append").args([&merged, &upper]);
        }
        let run = end(limited.start());
        assert_eq!(run.code(), 1, "{command}: {}", run.stderr());
        assert!(read(&merged) == contents, "{command}: {}", run.stderr());
        assert_eq!(times(&upper), before, "{command}");
    }
    // Nor by a user who does not own it.
    for command in ["copy", "splice"].map(OsStr::new) {
        grow_old(&merged);
        allow(&merged, 0o666);
        let args = ["--append".as_ref(), merged.as_os_str(), upper.as_os_str()];
        let run = by_another_user(&overlay, &[&[command][..], &args].concat());
        assert_eq!(run.code(), 1, "{command:?}: {}", run.stderr());
        assert!(read(&merged) == contents, "{command:?}: {}", run.stderr());
    }
    // A size ends it.
    let (from, to) = (merged.as_os_str(), upper.as_os_str());
    call(
        ["splice", "--append", "--size", "100"]
            .map(OsStr::new)
            .into_iter()
            .chain([from, to]),
    )
    .ok();
    assert!(read(&merged) == [&contents[..], &contents[..100]].concat());
}

/// Each directory would contain another one to copy.
#[test]
fn a_directory_is_not_copied_into_itself_by_another_device_number() {
    let Some(overlay) = Overlay::mount() else {
        return;
    };
    let deep = overlay.at("merged/d/e");
    std::fs::create_dir_all(&deep).unwrap();
    let [upper, to] = [overlay.at("upper/d"), deep.join("new")];
    let before = [&upper, &deep].map(|path| times(path));
    let run = run(cordboard().args(["copy", "-r"]).args([&upper, &to]));
    run.fails(1, &["is the directory to be copied"]);
    assert!(!to.exists());
    assert_eq!([&upper, &deep].map(|path| times(path)), before);
}
