//! `--progress` of several files at once.

use super::common::*;
use std::process::Stdio;

use rustix::process::Signal;

/// Files that the thread with signals copies itself.
#[test]
fn progress_while_few_files_are_copied() {
    const LENGTH: usize = 4 << 20;
    let dir = dir();
    let sources = ["a", "b"].map(|name| file(&dir, name, &bytes(LENGTH)));
    let into = dir.path().join("into");
    std::fs::create_dir(&into).unwrap();
    let mut child = cordboard()
        .args(["copy", "--jobs", "2", "--route", "read/write"])
        .args(["--sparse", "never", "--block", "1"])
        .args(&sources)
        .arg(&into)
        .stderr(Stdio::piped())
        .start();
    until("the first byte", || {
        let made = into.join("a").metadata().ok()?;
        (made.len() > 0).then_some(())
    });
    signal(child.id(), Signal::USR1);
    let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stderr, &mut line).unwrap();
    let written: usize = line.split(' ').next().unwrap().parse().unwrap();
    assert!(0 < written && written < LENGTH, "{line}");
    assert!(line.ends_with("path read/write\n"), "{line}");
    signal(child.id(), Signal::INT);
    assert_eq!(end(child).code(), 130);
}

#[test]
fn progress_of_all_that_are_under_way() {
    let dir = dir();
    for name in ["huge", "vast"] {
        let huge = std::fs::File::create(dir.path().join(name)).unwrap();
        huge.set_len(1 << 40).unwrap();
    }
    let into = dir.path().join("into");
    std::fs::create_dir(&into).unwrap();
    let mut child = cordboard()
        .args(["copy", "--progress", "always", "--route", "read/write"])
        .args(["--sparse", "never", "--block", "512", "--jobs", "2"])
        .args([dir.path().join("huge"), dir.path().join("vast"), into])
        .stderr(Stdio::piped())
        .start();
    let mut stderr = child.stderr.take().unwrap();
    let mut seen = String::new();
    while !seen.contains("by read/write  2 files at once") {
        let mut piece = [0; 256];
        let n = std::io::Read::read(&mut stderr, &mut piece).unwrap();
        assert!(n > 0, "{seen}");
        seen += &String::from_utf8_lossy(&piece[..n]);
    }
    signal(child.id(), Signal::USR1);
    while !seen.contains(" written, ") {
        let mut piece = [0; 256];
        let n = std::io::Read::read(&mut stderr, &mut piece).unwrap();
        assert!(n > 0, "{seen}");
        seen += &String::from_utf8_lossy(&piece[..n]);
    }
    signal(child.id(), Signal::TERM);
    drop(stderr);
    assert_eq!(end(child).code(), 143);
}
