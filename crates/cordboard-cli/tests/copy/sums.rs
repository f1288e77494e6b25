//! The totals of many files, in one line.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use super::common::*;

/// The files of a tree are counted, and the totals are printed if some failed.
#[test]
fn a_tree_of_which_some_failed_has_a_sum() {
    let dir = dir();
    let from = dir.path().join("t");
    std::fs::create_dir_all(from.join("sub")).unwrap();
    for i in 0..1200 {
        std::fs::write(from.join(i.to_string()), b"x").unwrap();
    }
    symlink("0", from.join("sub/link")).unwrap();
    std::fs::write(from.join("sub/file"), b"x").unwrap();
    let all = |to: &Path, jobs: &str| {
        let copy = ["copy", "-r", "--json", "--jobs", jobs];
        run(cordboard().args(copy).args([&from.join("."), to]))
    };
    let json = all(&dir.path().join("whole"), "4").ok().json();
    let files = serde_json::json!({"copied": 1202, "failed": 0, "left_out": false});
    assert_eq!(json["files"], files);
    for jobs in ["1", "4"] {
        // Directories in the place of two files, and a file in that of a
        // directory.
        let to = dir.path().join(format!("part{jobs}"));
        std::fs::create_dir_all(to.join("7")).unwrap();
        std::fs::create_dir_all(to.join("1100")).unwrap();
        std::fs::write(to.join("sub"), b"").unwrap();
        let run = all(&to, jobs);
        assert_eq!(run.code(), 1);
        let (json, stderr) = (run.json(), run.stderr());
        let files = serde_json::json!({"copied": 1198, "failed": 3, "left_out": false});
        assert_eq!(json["files"], files);
        let lines: Vec<&str> = stderr.lines().collect();
        assert_eq!(lines.len(), 5, "{stderr}");
        assert_eq!(lines[3], "cordboard: 1,198 copied, 3 failed");
    }
}

/// The contents of a directory that cannot be made are left out.
#[test]
fn what_is_in_a_directory_that_a_read_only_sink_refuses() {
    if !can_mount() {
        return;
    }
    let dir = dir();
    let [from, to] = ["from", "to"].map(|name| dir.path().join(name));
    std::fs::create_dir(&from).unwrap();
    std::fs::create_dir(&to).unwrap();
    let script = r#"mount -t tmpfs -o ro none "$0" && exec "$@""#;
    for (left_out, sum) in [
        (false, None),
        (
            true,
            Some("cordboard: 0 copied, 1 failed, the rest left out"),
        ),
    ] {
        if left_out {
            std::fs::write(from.join("file"), b"x").unwrap();
        }
        let run = run(Command::new("unshare")
            .args(["--mount", "sh", "-c", script])
            .arg(&to)
            .arg(env!("CARGO_BIN_EXE_cordboard"))
            .args(["copy", "-r", "--json"])
            .args([&from, &to]));
        run.fails(1, &["(EROFS)"]);
        let files = serde_json::json!({"copied": 0, "failed": 1, "left_out": left_out});
        assert_eq!(run.json()["files"], files);
        assert_eq!(run.sum().as_deref(), sum);
    }
}

/// Also if no file was started.
#[test]
fn the_account_counts_files_in_every_ending() {
    let dir = dir();
    let [a, b] = ["a", "b"].map(|name| file(&dir, name, b"x"));
    let [a, b] = [&a, &b].map(|path| path.to_str().unwrap());
    let (gone, into) = (dir.path().join("gone"), dir.path().join("into"));
    std::fs::create_dir(&into).unwrap();
    let [gone, into] = [&gone, &into].map(|path| path.to_str().unwrap());
    let none = serde_json::json!({"copied": 0, "failed": 0, "left_out": true});
    for (code, args) in [
        (1, &[a, b, gone][..]),
        (2, &["--hash=crc32", "--route=clone", a, gone]),
        (1, &["--control=/no/such/dir/s", a, gone]),
        (2, &["--size=1", a, b, into]),
        (2, &["-r", "--offset=1", into, gone]),
        (2, &[a, "tcp:localhost:1"]),
        (2, &[a, ""]),
        (2, &["--route=clone", "--without=clone", a, gone]),
        (2, &[a]),
        (2, &[]),
        (2, &["--bogus", a, gone]),
    ] {
        let run = run(cordboard().args(["copy", "--json"]).args(args));
        assert_eq!(run.code(), code, "{args:?}: {}", run.stderr());
        assert_eq!(run.json()["files"], none, "{args:?}");
        // The error says that already.
        assert_eq!(run.sum(), None, "{args:?}");
    }
    // Other commands do not count files.
    for args in [&["cat", "--json", gone][..], &["splice", "--json"]] {
        assert_eq!(call(args).json().get("files"), None);
    }
    for (args, copied, failed) in [
        ([a, gone], 1, 0),
        (["missing", gone], 0, 1),
        (["", gone], 0, 1),
    ] {
        let run = run(cordboard().args(["copy", "--json"]).args(args));
        let files = serde_json::json!({"copied": copied, "failed": failed, "left_out": false});
        assert_eq!(run.json()["files"], files);
    }
}
