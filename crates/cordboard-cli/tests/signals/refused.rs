//! Without what a signal needs to wake the command: an eventfd, or a pipe in
//! its place, and `write(2)`. A filter refuses it, or no descriptor is left.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::process::Stdio;

use rustix::process::Signal;
use testkit::refuse::{FCNTL, refuse, refuse_where};

use super::common::*;
use super::settled;

/// What is refused: one of several calls, or all of them.
const REFUSED: [&[libc::c_long]; 4] = [
    &[libc::SYS_eventfd2],
    &[libc::SYS_eventfd2, libc::SYS_pipe2],
    &[libc::SYS_write],
    &[libc::SYS_write, libc::SYS_writev],
];
/// The errnos of a filter, and of a lack of descriptors.
const ERRNOS: [i32; 4] = [libc::EPERM, libc::EACCES, libc::ENOSYS, libc::EMFILE];

/// Runs the command without these calls, with a pipe at either end.
fn start_without(
    calls: &[libc::c_long],
    errno: i32,
    args: &[&str],
) -> (Owned, PipeWriter, PipeReader) {
    let (stdin, feed) = std::io::pipe().unwrap();
    let (out, stdout) = std::io::pipe().unwrap();
    let child = apart(|| {
        refuse(calls, errno);
        let mut command = cordboard();
        command.args(args).stdin(stdin).stdout(stdout);
        command.stderr(Stdio::null()).start()
    });
    (child, feed, out)
}

fn each(test: impl Fn(&[libc::c_long], i32)) {
    for calls in REFUSED {
        for errno in ERRNOS {
            eprintln!("without {calls:?}: {errno}");
            test(calls, errno);
        }
    }
}

#[test]
fn a_stream_is_moved_and_ended_by_a_signal() {
    let needs = [testkit::needs::Need::Splice];
    each(|calls, errno| {
        // Without splice(2) too, no call is left to write with.
        let name = "a_stream_is_moved_and_ended_by_a_signal, without write(2)";
        if calls.contains(&libc::SYS_write) && testkit::needs::missing(name, &needs) {
            return;
        }
        for args in [&["splice", "-", "-"][..], &["cat"]] {
            let (child, mut feed, mut out) = start_without(calls, errno, args);
            feed.write_all(b"twelve bytes").unwrap();
            let mut twelve = [0; 12];
            out.read_exact(&mut twelve).unwrap();
            assert_eq!(&twelve, b"twelve bytes");
            settled(&child);
            signal(child.id(), Signal::TERM);
            assert_eq!(end(child).code(), 143);
            let (child, feed, mut out) = start_without(calls, errno, args);
            drop(feed);
            let mut none = Vec::new();
            out.read_to_end(&mut none).unwrap();
            assert_eq!((end(child).code(), none.len()), (0, 0));
        }
    });
}

/// A filter that refuses `F_GETFD` does not mean that standard error is closed.
#[test]
fn the_account_comes_though_descriptors_cannot_be_asked() {
    let start = |args: &[&str]| {
        let child = apart(|| {
            refuse_where(FCNTL, 1, libc::F_GETFD as u32, libc::EPERM);
            let mut command = cordboard();
            command.args(args).stdout(Stdio::piped());
            command.stderr(Stdio::piped()).start()
        });
        end(child)
    };
    let run = start(&["splice", "/dev/zero", "-", "--size", "9", "--json"]);
    assert_eq!(run.ok().stdout(), [0; 9]);
    assert_eq!(run.json()["written"], 9);
    let run = start(&["splice", "-", "-", "--json"]);
    assert_eq!(run.ok().json()["ended"], "eof");
    // A descriptor that may be the command's own is not used, and not reported
    // as closed.
    let run = start(&["splice", "fd:0", "/dev/null", "--json"]);
    run.fails(
        1,
        &["fd:0: Operation not permitted (EPERM) opening the source"],
    );
    assert_eq!(run.json()["errno"], "EPERM");
}

/// Small and large files, by several threads and without an engine.
#[test]
fn many_files_are_copied() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let mut sources = Vec::new();
    for n in 0..80 {
        let large = usize::from(n < 3) * (5 << 20);
        std::fs::write(path(&n.to_string()), vec![n; large + 100]).unwrap();
        sources.push(path(&n.to_string()));
    }
    std::fs::create_dir(path("to")).unwrap();
    let mut args = vec!["copy"];
    args.extend(sources.iter().map(String::as_str));
    let to = path("to");
    args.push(&to);
    each(|calls, errno| {
        // What is written by write(2) cannot be written here.
        if calls.contains(&libc::SYS_write) {
            return;
        }
        let (child, _feed, _out) = start_without(calls, errno, &args);
        assert_eq!(end(child).code(), 0);
        for from in &sources {
            let name = std::path::Path::new(from).file_name().unwrap();
            let to = folder.path().join("to").join(name);
            let same = std::fs::read(&to).unwrap() == std::fs::read(from).unwrap();
            assert!(same, "{name:?}");
            std::fs::remove_file(to).unwrap();
        }
    });
}
