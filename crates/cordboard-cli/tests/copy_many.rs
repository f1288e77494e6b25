//! `cordboard copy` of many files at once.
#![allow(missing_docs)]

mod common;
#[path = "copy_many/progress.rs"]
mod progress;

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::*;
use rustix::process::Signal;

/// More files than one thread copies before it starts others.
const MANY: usize = 300;
/// More than is copied in one piece: for the engine.
const LARGE: usize = 6 << 20;

/// Makes a tree of many small files in a few directories, with some large ones.
/// Returns the total of their bytes.
fn tree(top: &Path) -> usize {
    let mut sum = 0;
    for d in 0..6 {
        let at = top.join(format!("d{d}/e"));
        std::fs::create_dir_all(&at).unwrap();
        for i in 0..MANY / 6 {
            let length = if i == 20 { LARGE + d } else { 100 * i + d };
            std::fs::write(at.join(format!("f{i}")), bytes(length)).unwrap();
            sum += length;
        }
        symlink("e/f3", top.join(format!("d{d}/l"))).unwrap();
    }
    sum
}

#[track_caller]
fn same(a: &Path, b: &Path) {
    let run = Command::new("diff").arg("-r").args([a, b]).output();
    let run = run.unwrap();
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stdout)
    );
}

#[test]
fn a_tree_however_many_at_once() {
    let dir = dir();
    let from = dir.path().join("t");
    let sum = tree(&from);
    for jobs in ["1", "2", "5", "100"] {
        let to = dir.path().join(jobs);
        let run = run(cordboard()
            .args(["copy", "-r", "--json", "--jobs", jobs])
            .args([&from, &to]));
        let json = run.ok().json();
        assert_eq!(json["read"], sum);
        assert_eq!(json["written"], sum);
        assert_eq!(json["ended"], "eof");
        assert_eq!(run.stderr().lines().count(), 1);
        same(&from, &to);
        // Onto itself, as it is now.
        let again = ["copy", "-r", "--json", "--jobs", jobs];
        let run = common::run(cordboard().args(again).args([&from.join("."), &to]));
        assert_eq!(run.ok().json()["written"], sum);
        same(&from, &to);
    }
    for jobs in ["0", "-1", "many"] {
        let run = call(["copy", "--jobs", jobs, "a", "b"]);
        assert_eq!(run.code(), 2, "{}", run.stderr());
    }
}

/// The times and the mode of a directory are set after everything in it.
#[test]
fn directories_are_settled_after_their_contents() {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
    let dir = dir();
    let from = dir.path().join("t");
    tree(&from);
    let mut shut: Vec<PathBuf> = (0..6).map(|d| from.join(format!("d{d}/e"))).collect();
    shut.extend((0..6).map(|d| from.join(format!("d{d}"))));
    for (i, path) in shut.iter().enumerate() {
        let time = Timespec {
            tv_sec: 1_000_000_000 + i as i64,
            tv_nsec: 5,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        utimensat(CWD, path, &times, AtFlags::empty()).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o555)).unwrap();
    }
    let to = dir.path().join("c");
    let flags = ["copy", "-rp", "--sync", "--jobs", "4"];
    run(cordboard().args(flags).args([&from, &to])).ok();
    same(&from, &to);
    for path in &shut {
        let made = to.join(path.strip_prefix(&from).unwrap());
        let (old, new) = (path.metadata().unwrap(), made.metadata().unwrap());
        assert_eq!(
            (new.mtime(), new.mtime_nsec(), new.mode()),
            (old.mtime(), old.mtime_nsec(), old.mode()),
            "{}",
            made.display()
        );
    }
    for path in shut {
        let made = to.join(path.strip_prefix(&from).unwrap());
        for path in [path, made] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
}

/// Problems are reported in the order of the operands, whatever ends first.
#[test]
fn failing_ones_among_many() {
    let dir = dir();
    let into = dir.path().join("into");
    std::fs::create_dir(&into).unwrap();
    let mut sources = Vec::new();
    let mut missing = Vec::new();
    let mut sum = 0;
    for i in 0..MANY {
        let name = format!("f{i:03}");
        if i % 50 == 7 {
            sources.push(dir.path().join(&name));
            missing.push(name);
        } else if i % 50 == 11 {
            // A directory is in its place.
            std::fs::create_dir(into.join(&name)).unwrap();
            sources.push(file(&dir, &name, b"in vain"));
            missing.push(name);
        } else {
            let length = if i % 100 == 5 { LARGE } else { 1000 + i };
            sources.push(file(&dir, &name, &bytes(length)));
            sum += length;
        }
    }
    let run = run(cordboard()
        .args(["copy", "--json", "--jobs", "3"])
        .args(&sources)
        .arg(&into));
    assert_eq!(run.code(), 1);
    let stderr = run.stderr();
    let mut lines: Vec<&str> = stderr.lines().filter(|l| !l.starts_with('{')).collect();
    let copied = MANY - missing.len();
    let last = format!("cordboard: {copied} copied, {} failed", missing.len());
    assert_eq!(lines.pop(), Some(last.as_str()));
    assert_eq!(lines.len(), missing.len(), "{stderr}");
    for (line, name) in lines.iter().zip(&missing) {
        assert!(line.contains(name.as_str()), "{name} in {line}");
    }
    let json = run.json();
    assert_eq!(json["written"], sum);
    assert_eq!(
        (&json["ended"], &json["errno"]),
        (&"error".into(), &"ENOENT".into())
    );
    for source in &sources {
        let name = source.file_name().unwrap().to_str().unwrap();
        if !missing.iter().any(|m| m == name) {
            assert!(read(source) == read(into.join(name)), "{name}");
        }
    }
}

/// Of sinks that are one file, the first is written, and the others are
/// refused. Only such a sink and the FIFO wait for the other files.
#[test]
fn sinks_of_several_names_and_a_fifo_among_many() {
    let dir = dir();
    let into = dir.path().join("into");
    std::fs::create_dir(&into).unwrap();
    let sources: Vec<_> = (0..MANY)
        .map(|i| file(&dir, &format!("f{i:03}"), &bytes(5000 + i)))
        .collect();
    std::fs::write(into.join("f010"), b"old").unwrap();
    std::fs::hard_link(into.join("f010"), into.join("f200")).unwrap();
    symlink("f150", into.join("f250")).unwrap();
    let fifo = into.join("f100");
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let reader = std::thread::spawn(move || read(fifo));
    let run = run(cordboard()
        .args(["copy", "--jobs", "4"])
        .args(&sources)
        .arg(&into));
    let stderr = run.stderr();
    assert_eq!(run.code(), 1, "{stderr}");
    for name in ["f200", "f250"] {
        let says = format!("into/{name}: was just copied, and is not overwritten by ");
        assert!(stderr.contains(&says), "{name} in {stderr}");
    }
    assert!(stderr.ends_with("cordboard: 298 copied, 2 failed\n"));
    assert_eq!(stderr.lines().count(), 3, "{stderr}");
    assert!(reader.join().unwrap() == bytes(5100));
    for i in 0..MANY {
        let expected = match i {
            10 | 200 => 5010,
            150 | 250 => 5150,
            100 => continue,
            i => 5000 + i,
        };
        assert!(
            read(into.join(format!("f{i:03}"))) == bytes(expected),
            "{i}"
        );
    }
    // The source exists under another name.
    let hard = into.join("f020");
    std::fs::remove_file(&hard).unwrap();
    std::fs::hard_link(&sources[20], &hard).unwrap();
    for name in ["f100", "f200", "f250"] {
        std::fs::remove_file(into.join(name)).unwrap();
    }
    let run = common::run(
        cordboard()
            .args(["copy", "--jobs", "4"])
            .args(&sources)
            .arg(&into),
    );
    run.fails(1, &["f020", "same file as the source"]);
    assert!(read(&hard) == bytes(5020));
}

#[test]
fn a_full_disk_among_many() {
    if !can_mount() {
        return;
    }
    let dir = dir();
    let from = dir.path().join("t");
    tree(&from);
    let script = r#"mount -t tmpfs -o size=20M none "$0" && "$@"; code=$?
        find "$0" -type f -printf '%s\n'; exit $code"#;
    let full = dir.path().join("full");
    std::fs::create_dir(&full).unwrap();
    let run = run(Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .arg(&full)
        .arg(env!("CARGO_BIN_EXE_cordboard"))
        .args(["copy", "-r", "--json", "--jobs", "4"])
        .args([&from, &full.join("c")]));
    assert_eq!(run.code(), 1, "{}", run.stderr());
    let json = run.json();
    assert_eq!(json["errno"], "ENOSPC");
    assert_eq!(json["failed"], "sink");
    // Everything reported as written is there, and no more.
    let sizes: u64 = String::from_utf8_lossy(run.stdout())
        .lines()
        .map(|line| line.parse::<u64>().unwrap())
        .sum();
    assert_eq!(json["written"], sizes);
    let stderr = run.stderr();
    let told = |words: &str| stderr.lines().filter(|l| l.contains(words)).count();
    // One line, and the incomplete files; none for each file that was not
    // started.
    assert_eq!(told("(ENOSPC)"), 1, "{stderr}");
    let cut = told(" holds ");
    assert!(stderr.lines().count() <= cut + 3, "{stderr}");
    let (copied, failed) = (counted(&json, "copied"), counted(&json, "failed"));
    assert!(cut as u64 <= failed && failed <= 4, "{stderr}");
    // On a busy machine the disk may be full only when no file is left.
    let rest = match json["files"]["left_out"] == true {
        true => ", the rest left out",
        false => "",
    };
    let sum = format!("cordboard: {copied} copied, {failed} failed{rest}");
    assert_eq!(told(&sum), 1, "{stderr}");
    let links = 6;
    let files = String::from_utf8_lossy(run.stdout()).lines().count() as u64;
    assert!(copied <= files - cut as u64 + links, "{copied} of {files}");
}

/// The number of files in the report.
fn counted(json: &serde_json::Value, what: &str) -> u64 {
    json["files"][what].as_u64().unwrap()
}

#[test]
fn a_sink_that_is_read_only_is_told_of_once() {
    if !can_mount() {
        return;
    }
    let dir = dir();
    let from = dir.path().join("t");
    tree(&from);
    let to = dir.path().join("to");
    std::fs::create_dir(&to).unwrap();
    let script = r#"mount -t tmpfs none "$0" && mkdir -p "$0/t/d0/e" &&
        mount -o remount,ro "$0" && exec "$@""#;
    for jobs in ["1", "4"] {
        let run = run(Command::new("unshare")
            .args(["--mount", "sh", "-c", script])
            .arg(&to)
            .arg(env!("CARGO_BIN_EXE_cordboard"))
            .args(["copy", "-r", "--json", "--jobs", jobs])
            .args([&from, &to]));
        assert_eq!(run.code(), 1, "{}", run.stderr());
        let (json, stderr) = (run.json(), run.stderr());
        assert_eq!(json["errno"], "EROFS");
        assert_eq!(counted(&json, "copied"), 0);
        let told: Vec<&str> = stderr.lines().filter(|l| l.contains("EROFS")).collect();
        // The other line is the report.
        assert_eq!(told.len(), 2, "{stderr}");
        let failed = counted(&json, "failed");
        assert!((1..=4).contains(&failed), "{stderr}");
        let sum = format!("cordboard: 0 copied, {failed} failed, the rest left out");
        assert!(stderr.contains(&sum), "{stderr}");
    }
}

/// A file system is mounted read-only below the sink: all other files are copied.
#[test]
fn a_part_of_the_sink_that_cannot_be_written_affects_no_other_file() {
    if !can_mount() {
        return;
    }
    let dir = dir();
    let (from, to) = (dir.path().join("t"), dir.path().join("to"));
    for name in ["a", "b/c", "z"] {
        std::fs::create_dir_all(from.join(name)).unwrap();
        std::fs::write(from.join(name).join("f"), name).unwrap();
    }
    std::fs::create_dir_all(to.join("t/b")).unwrap();
    let script = r#"mount -t tmpfs none "$0" && mkdir "$0/c" && mount -o remount,ro "$0" &&
        exec "$@""#;
    for jobs in ["1", "4"] {
        let run = run(Command::new("unshare")
            .args(["--mount", "sh", "-c", script])
            .arg(to.join("t/b"))
            .arg(env!("CARGO_BIN_EXE_cordboard"))
            .args(["copy", "-r", "--json", "--jobs", jobs])
            .args([&from, &to]));
        run.fails(1, &["t/b/c/f", "(EROFS)"]);
        let files = serde_json::json!({"copied": 2, "failed": 1, "left_out": false});
        assert_eq!(run.json()["files"], files, "{}", run.stderr());
        for name in ["a", "z"] {
            let copied = to.join("t").join(name).join("f");
            assert_eq!(std::fs::read(&copied).unwrap(), name.as_bytes());
            std::fs::remove_file(copied).unwrap();
        }
    }
}

/// A sink is a device that is always full: all other files are copied.
#[test]
fn a_full_device_among_the_sinks_affects_no_other_file() {
    let dir = dir();
    let into = dir.path().join("into");
    std::fs::create_dir(&into).unwrap();
    std::os::unix::fs::symlink("/dev/full", into.join("a")).unwrap();
    let sources = ["a", "z"].map(|name| file(&dir, name, name.as_bytes()));
    for jobs in ["1", "4"] {
        let run = run(cordboard()
            .args(["copy", "--json", "--jobs", jobs])
            .args(&sources)
            .arg(&into));
        run.fails(1, &["into/a", "(ENOSPC)"]);
        let files = serde_json::json!({"copied": 1, "failed": 1, "left_out": false});
        assert_eq!(run.json()["files"], files, "{}", run.stderr());
        assert_eq!(std::fs::read(into.join("z")).unwrap(), b"z");
    }
}

/// Four files of 2^62 bytes have 2^64, which exceeds a count.
#[test]
fn more_than_a_count_holds() {
    if !can_mount() {
        return;
    }
    let dir = dir();
    let script = r#"mount -t tmpfs none "$1" && cd "$1" && mkdir s || exit 9
        for i in 1 2 3 4; do truncate -s 4611686018427387904 s/f$i || exit 9; done
        exec "$0" copy -r --json s d"#;
    let run = run(Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .arg(env!("CARGO_BIN_EXE_cordboard"))
        .arg(dir.path()));
    let json = run.ok().json();
    assert_eq!(json["read"], u64::MAX);
    assert_eq!(json["written"], u64::MAX);
}

/// The names of a process's threads.
fn threads(pid: u32) -> Vec<String> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .map(|name| name.trim().to_owned())
        .collect()
}

#[test]
fn an_interrupt_ends_all_that_are_under_way() {
    let dir = dir();
    let from = dir.path().join("t");
    let small = tree(&from);
    // They have no end.
    for name in ["huge", "vast"] {
        let huge = std::fs::File::create(from.join(name)).unwrap();
        huge.set_len(1 << 40).unwrap();
    }
    let to = dir.path().join("c");
    let child = cordboard()
        .args(["copy", "-r", "--json", "--jobs", "4"])
        .args(SMALL_STEPS)
        .args([&from, &to])
        .stderr(Stdio::piped())
        .start();
    let has = |name: &str| to.join(name).metadata().is_ok_and(|m| m.len() > 1 << 20);
    until("both", || (has("huge") && has("vast")).then_some(()));
    // The others continue meanwhile.
    let through = || (0..6).all(|d| to.join(format!("d{d}/e/f49")).exists());
    until("the rest", || through().then_some(()));
    let names = threads(child.id());
    for name in ["cordboard", "cordboard-work"] {
        assert!(names.iter().any(|n| n == name), "{name} in {names:?}");
    }
    signal(child.id(), Signal::INT);
    let run = end(child);
    assert_eq!(run.code(), 130, "{}", run.stderr());
    let json = run.json();
    assert_eq!(json["ended"], "cancelled");
    assert!(json["failed"].is_null() && json["errno"].is_null());
    let length = |name: &str| to.join(name).metadata().unwrap().len();
    let (huge, vast) = (length("huge"), length("vast"));
    let stderr = run.stderr();
    for (name, length) in [("huge", huge), ("vast", vast)] {
        let holds = format!("{name} holds {length} of {} bytes", 1u64 << 40);
        assert!(stderr.contains(&holds), "{holds} in {stderr}");
    }
    // Exactly the contents of the files, however many were still started.
    let mut sum = huge + vast;
    for d in 0..6 {
        for i in 0..MANY / 6 {
            let at = format!("d{d}/e/f{i}");
            let Ok(there) = to.join(&at).metadata() else {
                continue;
            };
            let whole = from.join(&at).metadata().unwrap().len();
            let told = stderr.contains(&format!("{at} holds {} of", there.len()));
            assert!(there.len() == whole || told, "{at} in {stderr}");
            sum += there.len();
        }
    }
    assert!(sum <= huge + vast + small as u64);
    assert_eq!(json["written"], sum, "{stderr}");
}

#[test]
fn few_descriptors_are_enough_for_a_tree() {
    let dir = dir();
    let from = dir.path().join("t");
    let sum = tree(&from);
    for limit in ["40", "48", "64", "96"] {
        let to = dir.path().join(limit);
        let script = r#"ulimit -n "$0"; exec "$@""#;
        let run = run(Command::new("sh")
            .args(["-c", script, limit, env!("CARGO_BIN_EXE_cordboard")])
            .args(["copy", "-r", "--json", "--jobs", "64"])
            .args([&from, &to]));
        assert_eq!(run.ok().json()["written"], sum);
        same(&from, &to);
    }
}
