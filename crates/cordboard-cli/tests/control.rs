//! `--control` and `cordboard cue`.

mod common;
#[path = "control/connections.rs"]
mod connections;
#[path = "control/reports.rs"]
mod reports;

use std::io::Write;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cordboard::Report;
use cordboard::cue::{Cue, Done, Record};
use rustix::process::Signal;
use testkit::refuse::refuse;

use common::{Owned, Run, Start, apart, cordboard, dir, end, run, signal, until};

/// A command that is steered by the socket in this directory.
fn steered(folder: &Path, args: &[&str]) -> (Owned, PathBuf) {
    let socket = folder.join("control");
    let child = cordboard()
        .args(args)
        .arg("--control")
        .arg(&socket)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .start();
    until("the control socket", || UnixStream::connect(&socket).ok());
    (child, socket)
}

fn cue(socket: &Path, args: &[&str]) -> Run {
    run(cordboard().arg("cue").arg(socket).args(args))
}

fn status(socket: &Path, args: &[&str]) -> serde_json::Value {
    let run = cue(socket, &[args, &["--json"]].concat());
    assert_eq!(run.code(), 0, "{}", run.stderr());
    serde_json::from_slice(run.stdout()).unwrap()
}

#[test]
fn a_transfer_is_paused_resumed_paced_and_cancelled() {
    let folder = dir();
    let (child, socket) = steered(
        folder.path(),
        &["splice", "/dev/zero", "/dev/null", "--json"],
    );
    let mode = std::fs::metadata(&socket).unwrap();
    assert!(mode.file_type().is_socket());
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    let first = until("the start", || {
        let now = status(&socket, &["status"]);
        (now["state"] == "running").then_some(now)
    });
    assert_eq!(first["schedule"], serde_json::Value::Null);
    assert_eq!(status(&socket, &["pause"])["state"], "paused");
    // At most the step that was under way ends.
    let written = || status(&socket, &["status"])["written"].as_u64().unwrap();
    let paused = written();
    for _ in 0..3 {
        assert!(written() - paused <= 1 << 20);
    }
    let rated = status(&socket, &["rate", "10MB/s"]);
    assert_eq!(rated["schedule"]["rate"], 10_000_000);
    assert_eq!(status(&socket, &["resume"])["state"], "running");
    until("progress", || {
        let now = status(&socket, &["status"]);
        (now["written"].as_u64().unwrap() > paused + (1 << 20)).then_some(())
    });
    for (words, rest) in [
        (&["schedule", "4,70"][..], 70),
        (&["schedule", "4", "50"], 50),
    ] {
        assert_eq!(
            status(&socket, words)["schedule"],
            serde_json::json!({"blocks": 4, "rest_ms": rest})
        );
    }
    for aim in ["background", "share=3", "throughput"] {
        let auto = status(&socket, &["auto", aim]);
        assert_eq!(auto["schedule"]["auto"], aim);
    }
    assert_eq!(
        status(&socket, &["rate", "0"])["schedule"],
        serde_json::Value::Null
    );
    status(&socket, &["limit", "schedule", "5,70"]);
    status(&socket, &["limit", "schedule", "4", "60"]);
    let limited = status(&socket, &["limit", "rate", "1K"]);
    assert_eq!(
        limited["limits"],
        serde_json::json!([{"rate": 1024}, {"blocks": 4, "rest_ms": 70}])
    );
    let cancelled = cue(&socket, &["cancel"]);
    assert_eq!(cancelled.code(), 0, "{}", cancelled.stderr());
    let run = end(child);
    assert_eq!(run.code(), 143, "{}", run.stderr());
    assert_eq!(run.json()["ended"], "cancelled");
    assert!(!socket.exists(), "the socket is removed");
}

/// The cancellation is no signal that the parent process can let the command ignore.
#[test]
fn a_transfer_that_ignores_sigterm_is_cancelled() {
    let folder = dir();
    let socket = folder.path().join("control");
    let script = r#"trap '' TERM; exec "$0" splice --json /dev/zero - --control "$1""#;
    let child = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_cordboard")])
        .arg(&socket)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .start();
    until("the control socket", || UnixStream::connect(&socket).ok());
    signal(child.id(), Signal::TERM);
    until("progress", || {
        (status(&socket, &["status"])["written"].as_u64() > Some(0)).then_some(())
    });
    assert_eq!(cue(&socket, &["cancel"]).code(), 0);
    let run = end(child);
    assert_eq!(run.code(), 143, "{}", run.stderr());
    assert!(run.stderr().contains("\"cancelled\""), "{}", run.stderr());
}

/// A filter refuses to send it.
#[test]
fn a_transfer_is_cancelled_without_kill() {
    for errno in [libc::EPERM, libc::ENOSYS] {
        let folder = dir();
        let (child, socket) = apart(|| {
            refuse(&[libc::SYS_kill], errno);
            let args = ["splice", "--json", "/dev/zero", "/dev/null"];
            steered(folder.path(), &args)
        });
        assert_eq!(cue(&socket, &["cancel"]).code(), 0);
        let run = end(child);
        assert_eq!(run.code(), 143, "{errno}: {}", run.stderr());
        assert_eq!(run.json()["ended"], "cancelled");
    }
}

/// The slowest of several sinks counts: a pipe from which nothing is read.
#[test]
fn the_status_of_several_sinks_has_their_progress() {
    let folder = dir();
    let args = ["splice", "/dev/zero", "/dev/null", "-", "--size", "1G"];
    let (child, socket) = steered(folder.path(), &args);
    let moved = until("progress", || {
        let now = status(&socket, &["status"]);
        (now["written"].as_u64() > Some(0)).then_some(now)
    });
    assert_eq!(
        (&moved["state"], &moved["total"]),
        (&"running".into(), &(1u64 << 30).into())
    );
    assert!(moved["written"].as_u64() < Some(1 << 30), "{moved}");
    assert!(moved["path"].is_string(), "{moved}");
    signal(child.id(), Signal::USR1);
    // Otherwise the cancellation may come first.
    until("the answer to the signal", || {
        let stderr = child.stderr.as_ref().unwrap();
        (rustix::io::ioctl_fionread(stderr).unwrap() > 0).then_some(())
    });
    assert_eq!(cue(&socket, &["cancel"]).code(), 0);
    let run = end(child);
    assert_eq!(run.code(), 143, "{}", run.stderr());
    assert!(run.stderr().contains(" written, "), "{}", run.stderr());
}

/// The bytes read and the bytes written are those of the two sides: a stage changes their
/// number, and a fan-in takes bytes before the sink accepts them.
#[test]
fn the_status_counts_both_sides() {
    let folder = dir();
    let from = common::file(&folder, "from", &vec![0; 64 << 20]);
    let from = from.to_str().unwrap();
    let compressed = ["splice", from, "/dev/null", "--zstd", "--rate", "4M"];
    let joined = ["splice", from, "/dev/zero", "-", "--fan-in", "turn"];
    for (args, most) in [(&compressed[..], 100_000), (&joined[..], 1 << 20)] {
        let (child, socket) = steered(folder.path(), args);
        let moved = until("more is read than written", || {
            let now = status(&socket, &["status"]);
            let [read, written] = ["read", "written"].map(|side| now[side].as_u64().unwrap());
            (read > written + (1 << 19)).then_some(written)
        });
        assert!(moved <= most, "{args:?}: {moved}");
        assert_eq!(cue(&socket, &["cancel"]).code(), 0);
        assert_eq!(end(child).code(), 143);
    }
}

/// The rate of a command that sleeps changes at once, on each path.
#[test]
fn a_slow_rate_is_lifted() {
    let folder = dir();
    let from = common::file(&folder, "from", &common::bytes(300_000));
    let to = folder.path().join("to");
    for command in ["splice", "copy"] {
        let args = [
            command,
            from.to_str().unwrap(),
            to.to_str().unwrap(),
            "--rate",
            "1",
        ];
        let (child, socket) = steered(folder.path(), &args);
        assert_eq!(cue(&socket, &["rate", "0"]).code(), 0);
        let run = end(child);
        assert_eq!(run.code(), 0, "{}", run.stderr());
        assert_eq!(common::read(&to), common::bytes(300_000), "{command}");
    }
}

/// A limit of the schedule counts blocks of --block. The rest after the first burst is an hour.
#[test]
fn a_limit_of_the_schedule_has_the_blocks_of_the_command() {
    let folder = dir();
    let source = folder.path().join("source");
    let listening = format!("unix-listen:{}", source.display());
    for (block, limit, sent, written) in [
        (Some("4K"), "2,3600000", 8193, 8192),
        (Some("1M"), "1,3600000", 300_000, 300_000),
        (None, "1,3600000", 300_000, 128 << 10),
    ] {
        let block = block.map(|block| ["--block", block]);
        let args = ["splice", &listening, "/dev/null", "--json"];
        let args = [&args[..], block.as_ref().map_or(&[], |block| block)].concat();
        let (child, socket) = steered(folder.path(), &args);
        assert_eq!(cue(&socket, &["limit", "schedule", limit]).code(), 0);
        let mut feed = until("the listener", || UnixStream::connect(&source).ok());
        let feeder = std::thread::spawn(move || {
            // Fails at the cancellation if not all bytes are read.
            let _ = feed.write_all(&vec![0; sent]);
            feed
        });
        until("the first burst", || {
            (status(&socket, &["status"])["written"].as_u64()? >= written).then_some(())
        });
        assert_eq!(cue(&socket, &["cancel"]).code(), 0);
        let run = end(child);
        drop(feeder.join().unwrap());
        assert_eq!(run.code(), 143, "{}", run.stderr());
        assert_eq!(run.json()["written"], written, "{args:?}");
    }
}

#[test]
fn many_files_are_steered_together() {
    let folder = dir();
    let tree = folder.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    for n in 0..8 {
        std::fs::write(tree.join(n.to_string()), common::bytes(50_000)).unwrap();
    }
    let to = folder.path().join("to");
    let args = [
        "copy",
        "-r",
        "--jobs",
        "4",
        "--rate",
        "1",
        tree.to_str().unwrap(),
        to.to_str().unwrap(),
    ];
    let (child, socket) = steered(folder.path(), &args);
    assert_eq!(status(&socket, &["status"])["schedule"]["rate"], 1);
    if testkit::needs::Need::CloseRange.is_met() {
        until("the total of the tree", || {
            (status(&socket, &["status"])["total"] == 400_000).then_some(())
        });
    }
    assert_eq!(cue(&socket, &["rate", "0"]).code(), 0);
    assert_eq!(end(child).code(), 0);
    for n in 0..8 {
        assert_eq!(common::read(to.join(n.to_string())), common::bytes(50_000));
    }
}

/// The engine copies large files, while no other thread does anything.
#[test]
fn large_files_are_steered_and_their_status_is_current() {
    let folder = dir();
    let tree = folder.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let content = common::bytes(5 << 20);
    for name in ["a", "b"] {
        std::fs::write(tree.join(name), &content).unwrap();
    }
    let to = folder.path().join("to");
    let [from, into] = [&tree, &to].map(|path| path.to_str().unwrap());
    let args = ["copy", "-r", "--jobs", "4", "--rate", "64K", from, into];
    let (child, socket) = steered(folder.path(), &args);
    until("progress", || {
        let now = status(&socket, &["status"]);
        (now["written"].as_u64() > Some(0)).then_some(())
    });
    assert_eq!(status(&socket, &["pause"])["state"], "paused");
    assert_eq!(cue(&socket, &["rate", "0"]).code(), 0);
    // Without a rate, a file that is not paused ends at once.
    let copied = || ["a", "b"].map(|name| std::fs::metadata(to.join(name)).unwrap().len());
    let mut before = copied();
    until("the end of the steps", || {
        let now = copied();
        (std::mem::replace(&mut before, now) == now).then_some(())
    });
    assert!(before.iter().all(|len| *len < 5 << 20), "{before:?}");
    // Without a rate, both may have ended before the status is read.
    let resumed = &status(&socket, &["resume"])["state"];
    assert!(resumed == "running" || resumed == "ended", "{resumed}");
    assert_eq!(end(child).code(), 0);
    for name in ["a", "b"] {
        assert_eq!(common::read(to.join(name)), content);
    }
}

#[test]
fn wrong_sockets_are_reported() {
    let folder = dir();
    let none = folder.path().join("none");
    cue(&none, &["status"]).fails(1, &["ENOENT", "--control"]);
    let file = common::file(&folder, "file", b"");
    let listening = |name: &Path| {
        let args = ["splice", "/dev/null", "/dev/null", "--control"];
        run(cordboard().args(args).arg(name))
    };
    listening(&file).fails(1, &["exists and is not a socket"]);
    for (name, errno, hint) in [
        (folder.path().join("d".repeat(120)), "ENAMETOOLONG", "108"),
        (none.join("s"), "ENOENT", "mkdir -p"),
    ] {
        let problem = &format!("({errno}) listening as the control socket; ");
        listening(&name).fails(1, &[problem, hint]);
    }
    let datagrams = folder.path().join("datagrams");
    let _bound = UnixDatagram::bind(&datagrams).unwrap();
    cue(&datagrams, &["status"]).fails(1, &["EPROTOTYPE", "another type"]);
    for name in ["", "@"] {
        cue(Path::new(name), &["status"]).fails(2, &["empty", "@NAME"]);
        let shown = run(cordboard().args(["top", "--once", name]));
        shown.fails(2, &["empty", "@NAME"]);
        let listening = run(cordboard()
            .args(["splice", "/dev/null", "/dev/null", "--control"])
            .arg(name));
        listening.fails(2, &["empty", "@NAME"]);
    }
    let missing = cue(&none, &["rate"]);
    assert_eq!(missing.code(), 2);
    assert!(missing.stderr().contains("BYTES"), "{}", missing.stderr());
    for wrong in ["4", "0 70", "4 -1", "4,70 5", "4 70 5"] {
        for words in ["schedule", "limit schedule"] {
            let words: Vec<_> = words.split(' ').chain(wrong.split(' ')).collect();
            let run = cue(&none, &words);
            assert_eq!(run.code(), 2, "{words:?}: {}", run.stderr());
            let says = match wrong {
                "4 70 5" => "unexpected argument '5'",
                _ => "for example 4,70",
            };
            assert!(run.stderr().contains(says), "{words:?}: {}", run.stderr());
        }
    }
    // That of a command that is killed is replaced.
    let (mut child, socket) = steered(folder.path(), &["splice", "/dev/zero", "/dev/null"]);
    let used = ["EADDRINUSE", "control socket", "choose another address"];
    listening(&socket).fails(1, &used);
    child.kill().unwrap();
    child.wait().unwrap();
    listening(&socket).ok();
}

/// The status after a command shows that it was carried out. A limit may forbid it.
#[test]
fn a_command_whose_status_is_forbidden_succeeds() {
    use cordboard::cue::{Command, Limit};
    let dir = dir();
    let socket = dir.path().join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    let (source, _feed) = std::io::pipe().unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    let target = Cue::new(&source, &sink).unwrap();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("`unknown`"), "the state below");
    // Pause alone.
    target
        .send(Command::Limit(Limit::Commands(1 << 8)))
        .unwrap();
    for (action, code) in [("pause", 0), ("resume", 1), ("status", 1)] {
        let run = std::thread::scope(|scope| {
            let run = scope.spawn(|| cue(&socket, &[action, "--json"]));
            let (client, _) = listener.accept().unwrap();
            let link = Cue::new(&client, &target).unwrap();
            link.send(Command::WriteToEnd).unwrap();
            drop(client);
            run.join().unwrap()
        });
        match code {
            0 => assert_eq!(run.ok().stdout(), b"{\"state\":\"unknown\"}\n"),
            _ => _ = run.fails(1, &[&format!("the command {action} was refused"), "limit"]),
        }
    }
}

/// The record of the end is read although the connection is closed.
#[test]
fn an_end_during_the_command_is_reported() {
    let folder = dir();
    let socket = folder.path().join("ending");
    let listener = UnixListener::bind(&socket).unwrap();
    let ending = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let done = Record::Done(Done::of(1, &Report::default()));
        let mut bytes = Vec::new();
        done.encode(&mut bytes);
        client.write_all(&bytes).unwrap();
    });
    let run = cue(&socket, &["status"]);
    assert_eq!(
        (run.code(), run.stdout()),
        (0, &b"ended\n"[..]),
        "{}",
        run.stderr()
    );
    ending.join().unwrap();
}
