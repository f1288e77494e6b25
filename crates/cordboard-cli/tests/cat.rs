//! `cordboard cat`.
#![allow(missing_docs)]

mod common;

use std::process::Stdio;

use common::*;

#[test]
fn files_and_standard_input_in_order() {
    let dir = dir();
    let a = file(&dir, "a", &bytes(100_000));
    let b = file(&dir, "b", b"bee");
    let mut child = cordboard()
        .args(["cat", "--json"])
        .args([a.as_os_str(), "-".as_ref(), b.as_os_str()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    feed(&mut child, b" between ");
    let run = end(child);
    assert_eq!(run.ok().json()["written"], 100_012);
    assert_eq!(
        run.stdout(),
        [&bytes(100_000)[..], b" between bee"].concat()
    );
}

#[test]
fn without_operands_standard_input() {
    let mut child = cordboard()
        .arg("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    feed(&mut child, b"hello");
    assert_eq!(end(child).ok().stdout(), b"hello");
}

#[test]
fn goes_on_after_one_that_fails() {
    let dir = dir();
    let a = file(&dir, "a", b"a");
    let run = run(cordboard()
        .args(["cat", "--json"])
        .args([&dir.path().join("missing"), &a]));
    run.fails(1, &["missing: No such file or directory (ENOENT)"]);
    assert_eq!(run.stdout(), b"a");
    assert_eq!(run.json()["written"], 1);
    let run = call(["cat".as_ref(), dir.path().as_os_str(), a.as_os_str()]);
    run.fails(1, &["directory"]);
    assert_eq!(run.stdout(), b"a");
}

#[test]
fn onto_its_own_end_is_refused() {
    let dir = dir();
    let path = file(&dir, "f", b"grow");
    let out = std::fs::File::options().append(true).open(&path).unwrap();
    let child = cordboard()
        .arg("cat")
        .arg(&path)
        .stdout(out)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    end(child).fails(1, &["for ever"]);
    assert_eq!(read(&path), b"grow");
}

#[test]
fn parts() {
    let dir = dir();
    let a = file(&dir, "a", b"abcdef");
    let b = file(&dir, "b", b"ghi");
    let run_ = run(cordboard()
        .args(["cat", "--size", "8", "--json"])
        .args([&a, &b]));
    assert_eq!(run_.ok().stdout(), b"abcdefgh");
    assert_eq!(run_.json()["ended"], "size");
    let run_ = run(cordboard()
        .args(["cat", "--offset", "2", "--size", "3"])
        .arg(&a));
    assert_eq!(run_.ok().stdout(), b"cde");
    run(cordboard().args(["cat", "--offset", "2"]).args([&a, &b])).fails(2, &["--offset"]);
}

#[test]
fn made_up_files() {
    let run = call(["cat", "/proc/self/status"]);
    assert!(run.ok().stdout().starts_with(b"Name:\tcordboard"));
}

#[test]
fn a_closed_standard_output_is_an_error() {
    let dir = dir();
    let a = file(&dir, "a", b"a");
    let child = std::process::Command::new("sh")
        .args([
            "-c",
            r#""$0" cat "$1" >&-"#,
            env!("CARGO_BIN_EXE_cordboard"),
        ])
        .arg(&a)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    end(child).fails(1, &["standard output: Bad file descriptor (EBADF)"]);
    let child = std::process::Command::new("sh")
        .args(["-c", r#""$0" cat <&-"#, env!("CARGO_BIN_EXE_cordboard")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    end(child).fails(1, &["standard input: Bad file descriptor (EBADF)"]);
}

#[test]
fn a_reader_that_has_gone() {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    drop(reader);
    let child = cordboard()
        .args(["cat", "--json", "/dev/zero", "/dev/zero"])
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let run = end(child);
    run.fails(1, &["standard output: Broken pipe (EPIPE)"]);
    let json = run.json();
    assert_eq!(json["failed"], "sink");
    assert_eq!(json["errno"], "EPIPE");
    assert_eq!(json["written"], 0);
}

/// What a program leaves behind in its terminal, read by whoever has the
/// other end: `EIO` comes after it, and is the end.
#[test]
fn the_end_of_a_pseudoterminal() {
    use rustix::fs::{Mode, OFlags};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    for args in [&["cat", "--json"][..], &["splice", "--json", "fd:0", "-"]] {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let tty = rustix::fs::open(&name, flags, Mode::empty()).unwrap();
        rustix::io::write(&tty, b"no line feed").unwrap();
        drop(tty);
        let run = run(cordboard().args(args).stdin(master));
        assert_eq!(run.ok().stdout(), b"no line feed");
        let json = run.json();
        assert_eq!(
            (&json["ended"], &json["written"]),
            (&"eof".into(), &12.into())
        );
        assert_eq!(json["path"], serde_json::json!(["read/write"]));
    }
}
