//! Signals that are blocked or ignored at the start of the command, and an
//! earlier alarm.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use super::common::*;
use super::{settled, start};

#[test]
fn signals_that_were_blocked_for_us_still_end_it() {
    let block = "--block-signal=INT,TERM,HUP,USR1,ALRM";
    let can = Command::new("env").args([block, "true"]).output();
    if !can.is_ok_and(|tried| tried.status.success()) {
        testkit::skip::here("a blocked signal needs an env that can block");
        return;
    }
    let mut child = Command::new("env")
        .args([block, env!("CARGO_BIN_EXE_cordboard")])
        .args(["splice", "-", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .start();
    let stdin = child.stdin.take();
    settled(&child);
    signal(child.id(), Signal::TERM);
    let run = end(child);
    assert_eq!(run.code(), 143, "{}", run.stderr());
    assert_eq!(run.json()["ended"], "cancelled");
    drop(stdin);
}

/// Twelve bytes have passed through it.
fn moves_twelve(child: &mut Owned) {
    let stdin = child.stdin.as_mut().unwrap();
    stdin.write_all(b"twelve bytes").unwrap();
    let stdout = child.stdout.as_mut().unwrap();
    stdout.read_exact(&mut [0; 12]).unwrap();
}

const MOVING: [&[&str]; 2] = [&["splice", "-", "-", "--json"], &["cat", "--json"]];

#[test]
fn an_alarm_that_somebody_sends_ends_it_with_the_report() {
    for command in MOVING {
        let mut child = start(command);
        moves_twelve(&mut child);
        settled(&child);
        signal(child.id(), Signal::ALARM);
        let stdin = child.stdin.take();
        let run = end(child);
        let says = "interrupted by SIGALRM: 12 bytes read, 12 written";
        run.fails(142, &[says]);
        assert_eq!(run.json()["ended"], "cancelled");
        drop(stdin);
    }
}

#[test]
fn an_alarm_that_was_set_before_ends_it_with_the_report() {
    let dir = dir();
    let film = file(&dir, "film", &[0; 1 << 20]);
    let film = film.to_str().unwrap();
    let endless = [
        "copy",
        "/dev/zero",
        "/dev/null",
        "--size",
        "1000T",
        "--json",
    ];
    let play = ["play", film, film, "--frame", "1", "--fps", "1", "--json"];
    let play = [
        &play[..],
        &["--audio-to", "/dev/null", "--video-to", "/dev/null"],
    ]
    .concat();
    for words in [MOVING[0], MOVING[1], &endless, &play] {
        let mut after = Duration::from_millis(300);
        let run = loop {
            let mut command = cordboard();
            command
                .args(words)
                .stdin(Stdio::piped())
                .stderr(Stdio::piped());
            testkit::child::alarmed(&mut command, after);
            let mut child = command.stdout(Stdio::piped()).start();
            let stdin = child.stdin.take();
            let run = end(child);
            drop(stdin);
            // It has come before the handlers were installed.
            if run.0.status.signal() != Some(14) {
                break run;
            }
            after *= 2;
        };
        run.fails(142, &["interrupted by SIGALRM: "]);
        assert_eq!(run.json()["ended"], "cancelled");
    }
}

/// The timer that draws progress, and the one that repeats a signal, do not
/// change the alarm.
#[test]
fn an_alarm_that_was_set_before_comes_after_other_signals() {
    let mut after = Duration::from_millis(500);
    let run = loop {
        let mut command = cordboard();
        let words = ["splice", "-", "-", "--progress", "always"];
        command
            .args(words)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped());
        testkit::child::alarmed(&mut command, after);
        let mut child = command.stdout(Stdio::piped()).start();
        let pid = child.id();
        let begun = until("handlers, or the end", || {
            let ended = child.try_wait().unwrap().is_some();
            (ended || handles(pid, 14) && sleeping(pid)).then_some(!ended)
        });
        if begun {
            signal(pid, Signal::USR1);
        }
        let stdin = child.stdin.take();
        let run = end(child);
        drop(stdin);
        // It has come before the other signal.
        if begun && run.0.status.signal().is_none() {
            break run;
        }
        after *= 2;
    };
    assert_eq!(run.code(), 142, "{}", run.stderr());
    assert!(
        run.stderr().contains("interrupted by SIGALRM"),
        "{}",
        run.stderr()
    );
}

#[test]
fn what_was_ignored_asks_for_nothing() {
    let mut child = Command::new("sh")
        .args(["-c", r#"trap '' USR1 ALRM; exec "$0" splice - - --json"#])
        .arg(env!("CARGO_BIN_EXE_cordboard"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .start();
    moves_twelve(&mut child);
    until("handlers", || handles(child.id(), 14).then_some(()));
    for ignored in [Signal::USR1, Signal::ALARM] {
        signal(child.id(), ignored);
    }
    moves_twelve(&mut child);
    drop(child.stdin.take());
    let run = end(child);
    // The report alone.
    assert_eq!(run.ok().stderr().lines().count(), 1, "{}", run.stderr());
    assert_eq!(
        (run.json()["ended"].as_str(), run.json()["written"].as_u64()),
        (Some("eof"), Some(24))
    );
}
