//! A name that is another file's by the time the command would remove it.
#![allow(missing_docs)]

mod common;

use std::os::unix::net::UnixListener;
use std::process::Stdio;

use common::*;
use rustix::process::Signal;

fn fifo(path: &std::path::Path) {
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

#[test]
fn an_interrupted_splice_removes_its_own_file_and_no_other() {
    let dir = dir();
    fifo(&dir.path().join("silent"));
    let sink = dir.path().join("sink");
    for replaced in [false, true] {
        let child = cordboard()
            .arg("splice")
            .args([&dir.path().join("silent"), &sink])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Held open, so that there is no end.
        let silent = dir.path().join("silent");
        let _writer = std::fs::File::options().write(true).open(silent).unwrap();
        until("the sink", || sink.exists().then_some(()));
        if replaced {
            let theirs = file(&dir, "theirs", b"precious");
            std::fs::rename(theirs, &sink).unwrap();
        }
        signal(child.id(), Signal::INT);
        assert_eq!(end(child).code(), 130);
        assert_eq!(sink.exists(), replaced);
    }
    assert_eq!(read(&sink), b"precious");
    // Nothing is left of what it took.
    let names = std::fs::read_dir(dir.path()).unwrap();
    assert_eq!(names.count(), 2);
}

#[test]
fn a_socket_of_another_process_is_not_removed() {
    let dir = dir();
    let path = dir.path().join("s");
    let mut name = std::ffi::OsString::from("unix-listen:");
    name.push(&path);
    let child = cordboard()
        .arg("splice")
        .arg(&name)
        .arg("/dev/null")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("the socket", || path.exists().then_some(()));
    std::fs::remove_file(&path).unwrap();
    let _theirs = UnixListener::bind(&path).unwrap();
    signal(child.id(), Signal::TERM);
    assert_eq!(end(child).code(), 143);
    assert!(path.exists());
}
