//! What the status of a command with a control socket reports.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use cordboard::cue::{Command, Cue, Record, State, Status};
use testkit::needs::Need;

use super::common::{cordboard, dir, end, run, until};
use super::{status, steered};

/// The status, on one connection.
fn ask(cue: &mut Cue) -> Status {
    cue.send(Command::Status).unwrap();
    match cue.receive().unwrap() {
        Some(Record::Status(status)) => status,
        other => panic!("{other:?}"),
    }
}

/// The time is that of the transfer, without the wait for its endpoints.
#[test]
fn a_command_that_waits_for_an_endpoint_is_idle() {
    let folder = dir();
    let source = folder.path().join("source");
    let listening = format!("unix-listen:{}", source.display());
    let (child, socket) = steered(folder.path(), &["splice", &listening, "/dev/null"]);
    assert_eq!(status(&socket, &["pause"])["state"], "paused");
    assert_eq!(status(&socket, &["resume"])["state"], "idle");
    let mut cue = Cue::from(OwnedFd::from(UnixStream::connect(&socket).unwrap()));
    let waiting = ask(&mut cue);
    assert_eq!(
        (waiting.state, waiting.elapsed),
        (State::Idle, Duration::ZERO)
    );
    let mut feed = until("the listener", || UnixStream::connect(&source).ok());
    feed.write_all(b"x").unwrap();
    let running = until("a byte", || {
        let now = ask(&mut cue);
        (now.written == 1).then_some(now)
    });
    assert_eq!(running.state, State::Running);
    drop(feed);
    let Some(Record::Done(done)) = cue.receive().unwrap() else {
        panic!("no record of the end");
    };
    assert_eq!(done.written, 1);
    assert!(done.elapsed >= running.elapsed, "{done:?} {running:?}");
    assert_eq!(end(child).code(), 0);
}

/// The socket of another command is an error.
#[test]
fn the_own_control_socket_is_not_copied() {
    let folder = dir();
    let from = folder.path().join("from");
    std::fs::create_dir(&from).unwrap();
    std::fs::write(from.join("file"), b"contents").unwrap();
    let copy = |to: &str| {
        let to = folder.path().join(to);
        let mut copy = cordboard();
        copy.args(["copy", "-r", ".", "--control", "s", "--json"]);
        // Without a directory for its entry, it would print a warning.
        copy.env("CORDBOARD_RUNTIME_DIR", folder.path());
        let copied = run(copy.arg(&to).current_dir(&from));
        (copied, std::fs::read_dir(to).unwrap().count())
    };
    let (copied, entries) = copy("to");
    assert_eq!(copied.code(), 0, "{}", copied.stderr());
    let files = &copied.json()["files"];
    assert_eq!((&files["copied"], &files["failed"]), (&1.into(), &0.into()));
    assert_eq!(entries, 1);
    let _other = std::os::unix::net::UnixListener::bind(from.join("other")).unwrap();
    let (copied, entries) = copy("again");
    copied.fails(1, &["other: is a socket, which copy does not copy"]);
    assert_eq!(entries, 1);
}

/// The total of the first file would be a share that reaches 100 % with each file. That of all
/// files is known once they are counted.
#[test]
fn the_total_of_several_files_is_that_of_all() {
    let folder = dir();
    let (short, long) = (folder.path().join("short"), folder.path().join("long"));
    std::fs::write(&short, [0; 100]).unwrap();
    std::fs::write(&long, [0; 1 << 20]).unwrap();
    let all = serde_json::Value::from(100 + (1 << 20));
    for files in [[&long, &short], [&short, &long]] {
        let [first, last] = files.map(|file| file.to_str().unwrap());
        let (_child, socket) = steered(folder.path(), &["cat", first, last, "--rate", "1K"]);
        let moved = until("more than the short file", || {
            let now = status(&socket, &["status"]);
            (now["written"].as_u64() > Some(200)).then_some(now)
        });
        let total = &moved["total"];
        if Need::CloseRange.is_met() {
            assert!(total.is_null() || *total == all, "{moved}");
            until("the total", || {
                (status(&socket, &["status"])["total"] == all).then_some(())
            });
        } else {
            // It is known with the last file.
            let last = if first.ends_with("short") {
                all.clone()
            } else {
                ().into()
            };
            assert_eq!(*total, last);
        }
    }
}
