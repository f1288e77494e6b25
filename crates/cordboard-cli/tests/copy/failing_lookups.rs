//! A failing lookup: it is unknown what exists.

use std::os::unix::fs::symlink;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};

use testkit::stall::{Call, Stall};

use crate::common::*;

/// Runs the command in this directory, with the `nth` lookup of the name
/// failing once, with `EIO`. `None` if calls cannot be made to fail.
fn with_failing(dir: &TempDir, arguments: &[&str], name: &str, nth: usize) -> Option<Run> {
    let mut command = cordboard();
    command.args(arguments).current_dir(dir.path());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let (name, looks) = (name.to_owned(), AtomicUsize::new(0));
    let started = Stall::spawn(&mut command, move |call, path| {
        let it_is = call == Call::Stat && path == name.as_str();
        it_is && looks.fetch_add(1, Ordering::Relaxed) + 1 == nth
    });
    match started {
        Ok((child, stall)) => {
            stall.reached().fail(libc::EIO);
            Some(end(child))
        }
        Err(error) => {
            testkit::skip::here(testkit::stall::why(&error));
            None
        }
    }
}

/// The sorted names in it.
fn names(dir: &TempDir, name: &str) -> Vec<String> {
    let entries = std::fs::read_dir(dir.path().join(name)).unwrap();
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<String> = entries.map(|e| name(e).into_string().unwrap()).collect();
    names.sort();
    names
}

/// Otherwise it would not be taken for a directory, and the tree would be
/// copied into it directly.
#[test]
fn a_destination_that_cannot_be_looked_at_is_not_taken_for_a_new_one() {
    let dir = dir();
    for name in ["tree", "into"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
    }
    for name in ["a", "b", "tree/f"] {
        file(&dir, name, b"contents");
    }
    for arguments in [
        &["copy", "-r", "tree", "into"][..],
        &["copy", "a", "b", "into"],
    ] {
        let Some(run) = with_failing(&dir, arguments, "into", 1) else {
            return;
        };
        run.fails(1, &["into: ", "error (EIO) opening the sink"]);
        assert_eq!(names(&dir, "into"), [""; 0]);
    }
    // A name that leads nowhere is that of a new file, or refused as that.
    symlink("loop", dir.path().join("loop")).unwrap();
    for (sink, says) in [
        ("a/new", "(ENOTDIR) opening the sink"),
        ("loop", "(ELOOP) opening the sink"),
    ] {
        let mut copy = cordboard();
        copy.args(["copy", "b", sink]).current_dir(dir.path());
        run(&mut copy).fails(1, &[sink, says]);
    }
}

/// A file may have such a name too.
#[test]
fn a_name_that_cannot_be_looked_at_is_not_taken_for_another_endpoint() {
    const NAME: &str = "tcp:127.0.0.1:1";
    let dir = dir();
    file(&dir, "from", b"new");
    file(&dir, NAME, b"old");
    for command in ["copy", "splice"] {
        let Some(run) = with_failing(&dir, &[command, "from", NAME], NAME, 1) else {
            return;
        };
        run.fails(1, &[&format!("{NAME}: "), "error (EIO) opening the sink"]);
        assert_eq!(read(dir.path().join(NAME)), b"old");
    }
}

#[test]
fn a_directory_that_cannot_be_looked_at_is_there() {
    let dir = dir();
    file(&dir, "from", b"new");
    std::fs::create_dir(dir.path().join("into")).unwrap();
    // The first lookup precedes the opening of all endpoints.
    if let Some(run) = with_failing(&dir, &["splice", "from", "into/"], "into/", 2) {
        run.fails(1, &["into/: ", "error (EIO) opening the sink"]);
    }
}

#[test]
fn a_source_that_cannot_be_looked_at_is_no_file_for_that() {
    let dir = dir();
    for name in ["x/t", "y/t", "into"] {
        std::fs::create_dir_all(dir.path().join(name)).unwrap();
    }
    file(&dir, "x/t/x", b"x");
    let arguments = ["copy", "-r", "x/t", "y/t", "into"];
    if let Some(run) = with_failing(&dir, &arguments, "y/t", 1) {
        run.fails(1, &["y/t: ", "error (EIO) opening the source"]);
        assert_eq!(names(&dir, "into/t"), ["x"]);
    }
}

/// Whichever lookup of the sink fails, and of the source of the same file.
#[test]
fn a_source_is_not_overwritten_because_a_look_at_it_has_failed() {
    for sources in [["a", "into/a"], ["a", "b"]] {
        for nth in 1..=2 {
            let dir = dir();
            std::fs::create_dir(dir.path().join("into")).unwrap();
            file(&dir, "a", b"new");
            let precious = if sources[1] == "b" {
                symlink("../b", dir.path().join("into/a")).unwrap();
                file(&dir, "b", b"precious")
            } else {
                file(&dir, "into/a", b"precious")
            };
            let arguments = ["copy", sources[0], sources[1], "into"];
            let Some(run) = with_failing(&dir, &arguments, "into/a", nth) else {
                return;
            };
            assert_eq!(run.code(), 1, "{nth}: {}", run.stderr());
            assert_eq!(read(&precious), b"precious", "{nth}: {}", run.stderr());
        }
    }
}
