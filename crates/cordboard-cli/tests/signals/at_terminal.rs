//! Signals that the terminal generates end the command as their default action does. Those
//! that a process sends give a status: the other modules.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Signal, ioctl_tiocsctty, setsid};
use testkit::stall::{Call, Stall, why};

use super::common::*;

/// The terminal controls this command, which is in its foreground. Its standard input is the
/// terminal.
fn at_terminal(command: &mut Command) -> File {
    let (master, terminal) = terminal_of(80);
    command.stdin(terminal);
    // SAFETY: two system calls.
    unsafe {
        command.pre_exec(|| {
            setsid()?;
            ioctl_tiocsctty(rustix::stdio::stdin())?;
            Ok(())
        });
    }
    master
}

/// A writer of this FIFO, once a process opens it for reading.
fn writer_of(fifo: &Path) -> std::os::fd::OwnedFd {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    until("a reader", || open(fifo, flags, Mode::empty()).ok())
}

/// bash ends a loop if SIGINT has ended its child.
#[test]
fn ctrl_c_ends_a_loop_of_bash() {
    if Command::new("bash").args(["-c", ":"]).status().is_err() {
        return testkit::skip::here("no bash here");
    }
    let dir = dir();
    let path = dir.path().join("fifo");
    let fifo = fifo(&path);
    // Only the first turn runs the command.
    let script = r#"for i in 1 2; do echo "turn $i" >&2; test $i = 2 || "$@"; done"#;
    for args in [&["cat", fifo][..], &["splice", fifo, "-"]] {
        let mut bash = Command::new("bash");
        bash.args(["-c", script, "bash", env!("CARGO_BIN_EXE_cordboard")]);
        let mut master = at_terminal(bash.args(args));
        let child = bash.stdout(Stdio::null()).stderr(Stdio::piped()).start();
        let _writer = writer_of(&path);
        master.write_all(b"\x03").unwrap();
        let run = end(child);
        let stderr = run.stderr();
        assert_eq!(run.0.status.signal(), Some(libc::SIGINT), "{stderr}");
        let lines: Vec<&str> = stderr.lines().collect();
        let [first, report] = lines[..] else {
            panic!("{stderr}");
        };
        assert_eq!(first, "turn 1");
        assert!(
            report.starts_with("cordboard: interrupted by SIGINT: 0 bytes read"),
            "{report}"
        );
    }
}

/// After the report, and after its control socket and its entry for `top` are removed.
#[test]
fn a_key_and_a_hangup_end_it_by_their_signal() {
    let dir = dir();
    let path = dir.path().join("fifo");
    let (fifo, control) = (fifo(&path), dir.path().join("control"));
    for (by, name) in [(Signal::INT, "SIGINT"), (Signal::HUP, "SIGHUP")] {
        let mut command = cordboard();
        command.args(["splice", "--json", fifo, "/dev/null", "--control"]);
        command
            .arg(&control)
            .env("CORDBOARD_RUNTIME_DIR", dir.path());
        let mut master = at_terminal(&mut command);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).start();
        let _writer = writer_of(&path);
        assert!(control.exists());
        match by {
            Signal::INT => master.write_all(b"\x03").unwrap(),
            _ => drop(master),
        }
        let run = end(child);
        assert_eq!(run.0.status.signal(), Some(by.as_raw()), "{}", run.stderr());
        assert!(run.stderr().contains(name), "{}", run.stderr());
        assert_eq!(run.json()["ended"], "cancelled");
        assert!(!control.exists());
        let entries = std::fs::read_dir(dir.path().join("cordboard")).unwrap();
        assert_eq!(entries.count(), 0, "the entry for top");
    }
}

/// The first key is taken while the main thread blocks in the kernel.
#[test]
fn a_second_key_ends_it_by_its_signal() {
    let dir = dir();
    let from = file(&dir, "from", b"all of it");
    let mut command = cordboard();
    command.args(["splice".as_ref(), from.as_os_str(), "/dev/null".as_ref()]);
    let mut master = at_terminal(&mut command);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let path = from.clone();
    let held = Stall::spawn(&mut command, move |call, at| {
        call == Call::Open && at == path.as_os_str()
    });
    let (mut child, stall) = match held {
        Ok(held) => held,
        Err(error) => return testkit::skip::here(why(&error)),
    };
    let _held = stall.reached();
    // One that comes soon after the first counts as the same.
    let status = until("its end", || {
        master.write_all(b"\x03").unwrap();
        child.try_wait().unwrap()
    });
    assert_eq!(status.signal(), Some(libc::SIGINT));
}

/// No default action ends the init process of a PID namespace.
#[test]
fn an_init_process_returns_the_status() {
    // `unshare` needs the same rights.
    if !can_mount() {
        return;
    }
    let dir = dir();
    let path = dir.path().join("fifo");
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", env!("CARGO_BIN_EXE_cordboard")]);
    command.args(["cat", fifo(&path)]);
    let mut master = at_terminal(&mut command);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).start();
    let _writer = writer_of(&path);
    master.write_all(b"\x03").unwrap();
    end(child).fails(130, &["interrupted by SIGINT: 0 bytes read"]);
}
