//! Signals end a transfer with its report, and request progress.
#![allow(missing_docs)]

mod at_terminal;
#[path = "../common/mod.rs"]
mod common;
mod inherited;
mod lookup;
mod refused;
mod stops;
mod typed;
mod unread;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

use common::*;
use rustix::process::Signal;

fn start(args: &[&str]) -> Owned {
    piped(cordboard().args(args))
}

/// Waits until it has its handlers and sleeps.
fn settled(child: &Child) {
    let pid = child.id();
    until("handlers", || {
        (handles(pid, 10) && handles(pid, 14)).then_some(())
    });
    until("sleep", || sleeping(pid).then_some(()));
}

#[test]
fn one_byte_is_singular() {
    let mut child = start(&["splice", "-", "-"]);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"x").unwrap();
    let stdout = child.stdout.as_mut().unwrap();
    stdout.read_exact(&mut [0]).unwrap();
    settled(&child);
    signal(child.id(), Signal::INT);
    end(child).fails(130, &["interrupted by SIGINT: 1 byte read, 1 written"]);
}

#[test]
fn an_interrupt_ends_with_the_report() {
    for (signal_, name, code) in [
        (Signal::INT, "SIGINT", 130),
        (Signal::TERM, "SIGTERM", 143),
        (Signal::HUP, "SIGHUP", 129),
    ] {
        for command in [&["splice", "-", "-", "--json"][..], &["cat", "--json"]] {
            let mut child = start(command);
            let mut stdin = child.stdin.take().unwrap();
            stdin.write_all(b"twelve bytes").unwrap();
            let mut twelve = [0; 12];
            child
                .stdout
                .as_mut()
                .unwrap()
                .read_exact(&mut twelve)
                .unwrap();
            settled(&child);
            signal(child.id(), signal_);
            let run = end(child);
            run.fails(code, &["interrupted by", name, "12 bytes read, 12 written"]);
            let json = run.json();
            assert_eq!(json["ended"], "cancelled");
            assert_eq!(json["written"], 12);
            assert!(json["failed"].is_null() && json["errno"].is_null());
            drop(stdin);
        }
    }
}

#[test]
fn an_interrupt_while_the_sink_is_full_counts_what_it_took() {
    let mut child = start(&["splice", "/dev/zero", "-", "--json"]);
    settled(&child);
    let mut stdout = child.stdout.take().unwrap();
    signal(child.id(), Signal::INT);
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        stdout.read_to_end(&mut all).unwrap();
        all.len()
    });
    let run = end(child);
    assert_eq!(run.code(), 130);
    assert_eq!(run.json()["written"], reader.join().unwrap());
}

#[test]
fn an_interrupt_while_a_fifo_is_opened() {
    let dir = dir();
    let fifo = dir.path().join("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let fifo = fifo.to_str().unwrap();
    for args in [
        ["splice", fifo, "-", "--json"],
        ["splice", "-", fifo, "--json"],
    ] {
        let child = start(&args);
        settled(&child);
        signal(child.id(), Signal::INT);
        let run = end(child);
        run.fails(130, &["interrupted by SIGINT: 0 bytes read"]);
        let json = run.json();
        assert_eq!(
            (&json["ended"], &json["read"]),
            (&"cancelled".into(), &0.into())
        );
    }
}

#[test]
fn an_interrupt_while_a_connection_is_awaited() {
    let dir = dir();
    let path = dir.path().join("s");
    let name = format!("unix-listen:{}", path.display());
    for endpoint in ["tcp-listen:127.0.0.1:0", &name] {
        let child = start(&["splice", endpoint, "-", "--json"]);
        settled(&child);
        signal(child.id(), Signal::INT);
        let run = end(child);
        assert_eq!(run.code(), 130, "{}", run.stderr());
        assert_eq!(run.json()["ended"], "cancelled");
        assert!(!path.exists());
    }
}

#[test]
fn two_interrupts_at_once_still_give_the_report() {
    let child = start(&["splice", "-", "-", "--json"]);
    settled(&child);
    signal(child.id(), Signal::INT);
    // It may have ended by now.
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    let _ = rustix::process::kill_process(pid, Signal::INT);
    let run = end(child);
    assert_eq!(run.code(), 130);
    assert_eq!(run.json()["ended"], "cancelled");
}

#[test]
fn a_copy_that_is_interrupted_says_what_there_is() {
    let dir = dir();
    let source = dir.path().join("s");
    std::fs::File::create(&source)
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    let sink = "/dev/null";
    let child = start(&[
        "copy",
        "--json",
        "--route",
        "read/write",
        "--sparse",
        "never",
        source.to_str().unwrap(),
        sink,
    ]);
    let pid = child.id();
    until("handlers", || handles(pid, 14).then_some(()));
    signal(pid, Signal::INT);
    let run = end(child);
    assert_eq!(run.code(), 130, "{}", run.stderr());
    let json = run.json();
    assert_eq!(json["ended"], "cancelled");
    assert_eq!(json["read"], json["written"]);
}

#[test]
fn what_was_ignored_stays_ignored() {
    let script = r#"trap '' HUP INT; exec "$@""#;
    let mut child = Command::new("sh")
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_cordboard")])
        .args(["splice", "-", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .start();
    settled(&child);
    signal(child.id(), Signal::HUP);
    signal(child.id(), Signal::INT);
    feed(&mut child, b"still here");
    assert_eq!(end(child).ok().stdout(), b"still here");
}

#[test]
fn usr1_prints_a_line_and_nothing_ends() {
    let mut child = start(&["splice", "-", "-"]);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&bytes(2048)).unwrap();
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut [0; 2048])
        .unwrap();
    settled(&child);
    signal(child.id(), Signal::USR1);
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.starts_with("2048 bytes (2.0 KiB) written, "), "{line}");
    let by = format!("/s, path {}", between_pipes());
    assert!(line.contains(&by), "{line}");
    stdin.write_all(b"more").unwrap();
    drop(stdin);
    let run = end(child);
    assert_eq!(run.0.status.code(), Some(0));
    assert_eq!(run.0.status.signal(), None);
    assert_eq!(run.stdout(), b"more");
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}

/// The next source is a FIFO without a writer, which the open waits for.
#[test]
fn usr1_between_two_files_prints_what_is_written() {
    let dir = dir();
    let first = file(&dir, "first", &bytes(2048));
    let second = dir.path().join("second");
    fifo(&second);
    let mut child = piped(cordboard().arg("cat").args([&first, &second]));
    let stdout = child.stdout.as_mut().unwrap();
    stdout.read_exact(&mut [0; 2048]).unwrap();
    settled(&child);
    signal(child.id(), Signal::USR1);
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    let expected = "2048 bytes written: still waiting for an endpoint\n";
    assert_eq!(line, expected);
    std::fs::write(&second, b"more").unwrap();
    assert_eq!(end(child).ok().stdout(), b"more");
}

#[test]
fn progress_is_drawn_while_it_waits_and_wiped_at_the_end() {
    let mut child = start(&["splice", "-", "-", "--progress", "always", "--size", "4K"]);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&bytes(1024)).unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let mut seen = String::new();
    while !seen.contains("1.0 KiB of 4.0 KiB (25 %)") {
        let mut piece = [0; 256];
        let n = stderr.read(&mut piece).unwrap();
        assert!(n > 0, "{seen}");
        seen += std::str::from_utf8(&piece[..n]).unwrap();
    }
    let by = format!("by {}", between_pipes());
    assert!(seen.contains(&by), "{seen}");
    stdin.write_all(&bytes(3072)).unwrap();
    let run = end(child);
    run.ok();
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    let summary = rest.lines().last().unwrap_or_default();
    assert!(summary.starts_with("moved 4.0 KiB in "), "{rest}");
    assert!(summary.contains(&format!("/s) {by}")), "{rest}");
}

/// Moves one KiB of a longer transfer, and returns the output.
fn moving_a_little(terminal: impl Into<Stdio>) -> (Owned, std::process::ChildStdin) {
    let mut child = cordboard()
        .args(["splice", "-", "/dev/null"])
        .stdin(Stdio::piped())
        .stderr(terminal)
        .start();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&bytes(1024)).unwrap();
    (child, stdin)
}

#[test]
fn progress_on_a_terminal_and_not_elsewhere() {
    let (mut master, terminal) = terminal_of(0);
    let (mut child, stdin) = moving_a_little(terminal);
    let mut screen = String::new();
    // The size is unknown: no percentage, no time left.
    while !screen.contains("1.0 KiB  ") {
        assert!(more(&mut master, &mut screen), "{screen}");
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
    while more(&mut master, &mut screen) {}
    assert!(screen.contains("moved 1.0 KiB in "), "{screen}");

    let mut child = start(&["splice", "-", "/dev/null"]);
    feed(&mut child, b"x");
    assert_eq!(end(child).ok().stderr(), "");
}

/// A line that wraps is not overwritten by the next: the screen would fill.
#[test]
fn progress_on_a_narrow_terminal_does_not_wrap() {
    let (mut master, terminal) = terminal_of(12);
    let resize = master.try_clone().unwrap();
    let (mut child, mut stdin) = moving_a_little(terminal);
    let mut screen = String::new();
    while !screen.contains("1.0 KiB\x1b[K") {
        assert!(more(&mut master, &mut screen), "{screen}");
        assert!(!screen.contains("B/s"), "{screen}");
    }
    // Even narrower: the line is cleared, and none is drawn.
    let mut size = rustix::termios::tcgetwinsize(&resize).unwrap();
    size.ws_col = 1;
    rustix::termios::tcsetwinsize(&resize, size).unwrap();
    while !screen.ends_with("\r\x1b[K") {
        assert!(more(&mut master, &mut screen), "{screen}");
    }
    let drawn = screen.len();
    stdin.write_all(&bytes(1024)).unwrap();
    drop(stdin);
    assert!(child.wait().unwrap().success());
    while more(&mut master, &mut screen) {}
    let rest = &screen[drawn..];
    assert!(
        rest.trim_start().starts_with("moved 2.0 KiB in "),
        "{rest:?}"
    );
}

#[test]
fn an_interrupt_while_a_listener_is_busy() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
    let dir = dir();
    let path = dir.path().join("s");
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = || socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let address = SocketAddrUnix::new(&path).unwrap();
    let listener = socket();
    rustix::net::bind(&listener, &address).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let mut queue = Vec::new();
    loop {
        let one = socket();
        match rustix::net::connect(&one, &address) {
            Ok(()) => queue.push(one),
            Err(_) => break,
        }
    }
    let child = start(&["splice", "-", &format!("unix:{}", path.display()), "--json"]);
    settled(&child);
    signal(child.id(), Signal::INT);
    let run = end(child);
    assert_eq!(run.code(), 130, "{}", run.stderr());
    assert_eq!(run.json()["ended"], "cancelled");
}

#[test]
fn a_file_that_was_begun_is_told_of() {
    let dir = dir();
    let source = dir.path().join("s");
    let out = std::fs::File::create(&source).unwrap();
    out.set_len(1 << 40).unwrap();
    let sink = dir.path().join("d");
    let child = cordboard()
        .args([
            "copy",
            "--json",
            "--route",
            "read/write",
            "--sparse",
            "never",
        ])
        .args([&source, &sink])
        .stderr(Stdio::piped())
        .start();
    until("a byte", || sink.metadata().ok().filter(|m| m.len() > 0));
    signal(child.id(), Signal::INT);
    let run = end(child);
    let length = sink.metadata().unwrap().len();
    assert_eq!(run.code(), 130);
    let holds = format!("d holds {length} of {} bytes", 1u64 << 40);
    assert!(run.stderr().contains(&holds), "{}", run.stderr());
    assert_eq!(run.json()["written"], length);
}

/// An entry in a connection's error queue does not make it ready, also when the
/// remaining bytes are passed on at the end.
#[test]
fn an_interrupt_while_a_connection_takes_nothing() {
    let dir = dir();
    let source = file(&dir, "s", &bytes(4 << 20));
    let troubles = testkit::stalled::TROUBLES.into_iter();
    for (trouble, nonblocking) in troubles.flat_map(|t| [(t, false), (t, true)]) {
        for idle in [&[][..], &["--idle", "3600"]] {
            let (sink, peer, filled) = testkit::stalled::stalled(trouble);
            sink.set_nonblocking(nonblocking).unwrap();
            let child = cordboard()
                .args(["splice".as_ref(), source.as_os_str(), "-".as_ref()])
                .arg("--json")
                .args(idle)
                .stdout(std::os::fd::OwnedFd::from(sink))
                .stderr(Stdio::piped())
                .start();
            settled(&child);
            signal(child.id(), Signal::INT);
            let run = end(child);
            run.fails(130, &["interrupted by SIGINT"]);
            let json = run.json();
            assert_eq!(json["ended"], "cancelled", "{trouble:?} {idle:?}");
            let mut all = Vec::new();
            (&peer).read_to_end(&mut all).unwrap();
            let arrived = all.len() - filled;
            assert_eq!(json["written"], arrived, "{trouble:?} {idle:?}");
        }
    }
}
