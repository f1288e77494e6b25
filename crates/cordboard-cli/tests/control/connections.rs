//! Connections to a control socket: hostile ones, too many, and from another PID namespace.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Stdio;

use cordboard::cue::{Cue, Record};

use rustix::process::Signal;
use testkit::refuse::{POLL, PPOLL, refuse};

use super::common::{Start, apart, cordboard, dir, end, is_stopped, run, signal, until};
use super::{cue, steered};

/// Garbage, half commands, and clients that read nothing or are too many.
#[test]
fn hostile_clients_harm_nothing() {
    let folder = dir();
    let (child, socket) = steered(folder.path(), &["splice", "/dev/zero", "/dev/null"]);
    let mut clients = Vec::new();
    for n in 0..20u8 {
        let mut client = UnixStream::connect(&socket).unwrap();
        client.set_nonblocking(true).unwrap();
        // Status commands without end, and garbage.
        let bytes: Vec<u8> = match n % 2 {
            0 => [0x0b, 0, 0, 0x43].repeat(100_000),
            _ => (0..100_000u32)
                .flat_map(|i| (i * 77).to_le_bytes())
                .collect(),
        };
        let _ = client.write(&bytes[..bytes.len() - 1]);
        clients.push(client);
    }
    // The connections are closed once there are too many.
    drop(clients);
    until("an answer", || {
        (cue(&socket, &["status"]).code() == 0).then_some(())
    });
    // It is closed at once while some of the others are open.
    let mut client = until("a connection that is kept", || {
        let mut client = UnixStream::connect(&socket).ok()?;
        client.write_all(&[2, 0, 0, 0x43]).ok()?;
        client.read_exact(&mut [0; 12]).ok()?;
        Some(client)
    });
    // A transfer cannot be commanded. The code of each command, and the number of words.
    for (code, words) in [
        (1, 1),
        (2, 0),
        (3, 1),
        (4, 1),
        (5, 1),
        (13, 1),
        (14, 4),
        (18, 1),
    ] {
        let mut command = vec![code, 0, words, 0x43];
        command.resize(4 + 4 * usize::from(words), 9);
        client.write_all(&command).unwrap();
        let mut answer = [0; 12];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..4], [4, 0, 2, 0x52]);
        assert_eq!(answer[4], code);
        assert_eq!(i32::from(answer[8]), libc::EOPNOTSUPP, "{code}");
    }
    // Connections of the first clients may still be open.
    until("a cancel", || {
        (cue(&socket, &["cancel"]).code() == 0).then_some(())
    });
    assert_eq!(end(child).code(), 143);
}

/// A peer that has shut down its writing side gets all its records, up to the end.
#[test]
fn a_peer_that_sends_no_more_commands_gets_its_records() {
    let folder = dir();
    let (child, socket) = steered(folder.path(), &["splice", "/dev/zero", "/dev/null"]);
    let mut client = UnixStream::connect(&socket).unwrap();
    // The command *status*, and one byte of another command.
    client.write_all(&[0x0b, 0, 0, 0x43, 7]).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let mut client = Cue::from(std::os::fd::OwnedFd::from(client));
    assert!(matches!(client.receive(), Ok(Some(Record::Status(_)))));
    let refusal = Record::Refused {
        word: 1,
        errno: cordboard::Errno::ENODATA,
    };
    assert_eq!(client.receive(), Ok(Some(refusal)));
    assert_eq!(cue(&socket, &["cancel"]).code(), 0);
    assert!(matches!(client.receive(), Ok(Some(Record::Done(_)))));
    assert_eq!(client.receive(), Ok(None));
    assert_eq!(end(child).code(), 143);
}

/// The commands *status* and *cancel*, in one message.
const STATUS_AND_CANCEL: [u8; 8] = [0x0b, 0, 0, 0x43, 0x0a, 0, 0, 0x43];

/// The status cannot be sent any more when the command comes to it.
#[test]
fn commands_that_have_arrived_before_the_close_are_carried_out() {
    let folder = dir();
    let (child, socket) = steered(folder.path(), &["splice", "/dev/zero", "/dev/null"]);
    signal(child.id(), Signal::STOP);
    until("a stop", || is_stopped(child.id()).then_some(()));
    let mut client = UnixStream::connect(&socket).unwrap();
    client.write_all(&STATUS_AND_CANCEL).unwrap();
    drop(client);
    signal(child.id(), Signal::CONT);
    assert_eq!(end(child).code(), 143);
}

#[test]
fn a_peer_that_reads_no_records_gives_commands() {
    let folder = dir();
    let (child, socket) = steered(folder.path(), &["splice", "/dev/zero", "/dev/null"]);
    let mut client = UnixStream::connect(&socket).unwrap();
    client.shutdown(std::net::Shutdown::Read).unwrap();
    client.write_all(&STATUS_AND_CANCEL).unwrap();
    assert_eq!(end(child).code(), 143);
}

/// The C library starts without `ppoll(2)` where there is `poll(2)`, and if both fail with
/// `EINVAL`, as under `RLIMIT_NOFILE`.
#[test]
fn a_command_is_steered_without_the_calls_to_wait_with() {
    let without = |calls: &[libc::c_long], errno| {
        let folder = dir();
        let (child, socket) = apart(|| {
            refuse(calls, errno);
            steered(folder.path(), &["splice", "/dev/zero", "/dev/null"])
        });
        cue(&socket, &["status"]).ok();
        cue(&socket, &["cancel"]).ok();
        assert_eq!(end(child).code(), 143, "{errno}");
    };
    without(&[PPOLL, POLL].concat(), libc::EINVAL);
    if POLL.is_empty() {
        return testkit::skip::here("this architecture has no older call");
    }
    for errno in [libc::EPERM, libc::ENOSYS] {
        without(PPOLL, errno);
    }
}

/// The command has ended only if a record says so.
#[test]
fn a_connection_that_is_closed_without_an_answer_is_a_failure() {
    let folder = dir();
    let socket = folder.path().join("foreign");
    let listener = UnixListener::bind(&socket).unwrap();
    let closing = std::thread::spawn(move || {
        for _ in 0..2 {
            drop(listener.accept().unwrap());
        }
    });
    for action in [&["status"][..], &["rate", "0"]] {
        let run = cue(&socket, action);
        run.fails(1, &["without an answer", "16 connections", "--control"]);
        assert_eq!(run.stdout(), b"");
    }
    closing.join().unwrap();
    // More connections than a command serves.
    let (child, socket) = steered(folder.path(), &["splice", "/dev/zero", "/dev/null"]);
    let clients: Vec<UnixStream> = (0..16)
        .map(|_| UnixStream::connect(&socket).unwrap())
        .collect();
    cue(&socket, &["pause"]).fails(1, &["without an answer", "16 connections"]);
    drop(clients);
    until("an answer", || {
        (cue(&socket, &["cancel"]).code() == 0).then_some(())
    });
    assert_eq!(end(child).code(), 143);
}

/// The peer has no number in the namespace of the command.
#[test]
fn a_command_in_a_pid_namespace_is_steered_from_outside() {
    let folder = dir();
    let socket = folder.path().join("control");
    let at_home = || {
        let mut command = cordboard();
        command.env("CORDBOARD_RUNTIME_DIR", folder.path());
        command
    };
    let mut command = at_home();
    command
        .args([
            "splice",
            "/dev/zero",
            "/dev/null",
            "--rate",
            "1M",
            "--control",
        ])
        .arg(&socket)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // A thread of its own: its next child is the first process of the namespace. It cannot
    // start other threads then (clone(2), EINVAL).
    testkit::owned::watching();
    let starting = std::thread::spawn(move || {
        let first = testkit::child::next_is_first();
        first.then(|| command.start())
    });
    let Some(child) = starting.join().unwrap() else {
        testkit::skip::here("a PID namespace needs root");
        return;
    };
    until("the control socket", || UnixStream::connect(&socket).ok());
    cue(&socket, &["status"]).ok();
    // Its number is the one outside.
    let listed = until("an entry", || {
        let listed = run(at_home().args(["top", "--json"]));
        serde_json::from_slice::<serde_json::Value>(listed.ok().stdout()).ok()
    });
    assert_eq!(listed["pid"], child.id(), "{listed}");
    cue(&socket, &["cancel"]).ok();
    assert_eq!(end(child).code(), 143);
}
