//! The terminal is as before, however the command ends or stops.

use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;
use testkit::refuse::{POLL, PPOLL, refuse};

use super::common::{self, Start, until};
use super::tty::Tty;
use super::{Home, Moving};

#[test]
fn every_ending_restores_the_terminal() {
    let home = Home::make();
    for signal in [
        Signal::TERM,
        Signal::HUP,
        Signal::INT,
        Signal::QUIT,
        Signal::USR1,
    ] {
        let mut tty = Tty::start(home.cordboard().arg("top"), 8, 80);
        tty.shows(&["No transfers are running."]);
        assert_eq!(tty.is_taken(), Some(true));
        common::signal(tty.child.id(), signal);
        assert_eq!(tty.ends().signal(), Some(signal.as_raw()));
    }
}

/// Ctrl-S stops the output. A handler that waited for it could be ended only by SIGKILL.
#[test]
fn a_terminal_whose_output_is_stopped_is_restored() {
    let home = Home::make();
    let mut tty = Tty::start(home.cordboard().arg("top"), 8, 80);
    tty.shows(&["No transfers are running."]);
    tty.press("\x13");
    // What is typed behind it is echoed only once the output continues.
    let mut stops = tty.stops();
    until("a stop of the output", || stops().then_some(()));
    common::signal(tty.child.id(), Signal::TERM);
    assert_eq!(tty.ends().signal(), Some(Signal::TERM.as_raw()));
}

#[test]
fn a_terminal_without_escape_sequences_gets_the_table() {
    let home = Home::make();
    let moving = home.moving("s", &["--rate", "1M"]);
    let mut top = home.cordboard();
    let mut tty = Tty::start(top.arg("top").env("TERM", "dumb"), 8, 130);
    assert_eq!(tty.ends().code(), Some(0));
    tty.shows(&["PID", "STATE", "RATE"]);
    tty.shows(&[&moving.child.id().to_string(), "/dev/zero -> /dev/null"]);
}

/// Otherwise only lines that change are drawn.
#[test]
fn the_screen_is_drawn_again_on_request() {
    let home = Home::make();
    let mut tty = Tty::start(home.cordboard().arg("top"), 8, 80);
    tty.shows(&["No transfers are running."]);
    tty.print("\x1b[5;1Hfrom another process");
    tty.shows(&["from another process"]);
    tty.press("\x0c");
    tty.sees("the screen as before", |lines| {
        lines[1] == "No transfers are running." && lines[4].is_empty()
    });
    tty.press("q");
    assert_eq!(tty.ends().code(), Some(0));
}

#[test]
fn a_stop_gives_the_terminal_back_and_a_continuation_draws_again() {
    let home = Home::make();
    let mut tty = Tty::start(home.cordboard().arg("top"), 8, 80);
    tty.shows(&["No transfers are running."]);
    let pid = tty.child.id();
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(") ").next().unwrap().chars().next()
    };
    // The default action of SIGTSTP does not stop an orphaned process group: the handler
    // then takes the terminal again. SIGSTOP has no handler.
    assert_eq!(tty.entered(), 1);
    tty.press("\x1a");
    until("the terminal, again", || {
        (tty.entered() == 2 && tty.is_taken() == Some(true)).then_some(())
    });
    tty.shows(&["No transfers are running."]);
    common::signal(pid, Signal::STOP);
    until("a stop", || (state() == Some('T')).then_some(()));
    // As a shell, whose editor of lines shows the cursor.
    tty.print("\x1b[5;1Hstopped\x1b[?25h");
    tty.shows(&["stopped"]);
    common::signal(pid, Signal::CONT);
    tty.sees("the screen as before", |lines| {
        lines[1] == "No transfers are running." && lines[4].is_empty()
    });
    until("the terminal, again", || {
        (tty.is_taken() == Some(true)).then_some(())
    });
    assert_eq!(tty.entered(), 2);
    tty.press("?");
    tty.shows(&["pause or resume"]);
    tty.press("q");
    assert_eq!(tty.ends().code(), Some(0));
}

/// Without ICANON, a terminal is readable from VMIN bytes on (`stty min 5`).
#[test]
fn one_key_is_enough() {
    use rustix::termios::{OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr};
    let home = Home::make();
    let mut tty = Tty::start_at(home.cordboard().arg("top"), 8, 80, |slave| {
        let mut modes = tcgetattr(slave).unwrap();
        modes.special_codes[SpecialCodeIndex::VMIN] = 5;
        tcsetattr(slave, OptionalActions::Now, &modes).unwrap();
    });
    tty.shows(&["No transfers are running."]);
    tty.press("q");
    assert_eq!(tty.ends().code(), Some(0));
    let after = tcgetattr(&tty.slave).unwrap();
    assert_eq!(after.special_codes[SpecialCodeIndex::VMIN], 5);
}

/// The C library starts without `ppoll(2)` where there is `poll(2)`.
#[test]
fn keys_are_read_without_ppoll() {
    if POLL.is_empty() {
        return testkit::skip::here("this architecture has no older call");
    }
    let home = Home::make();
    for errno in [libc::EPERM, libc::ENOSYS] {
        let mut tty = common::apart(|| {
            refuse(PPOLL, errno);
            Tty::start(home.cordboard().arg("top"), 8, 80)
        });
        tty.shows(&["No transfers are running."]);
        tty.press("q");
        assert_eq!(tty.ends().code(), Some(0));
    }
}

/// It neither spins, nor ends only by a signal.
#[test]
fn a_terminal_whose_keys_cannot_be_waited_for_is_an_error() {
    let home = Home::make();
    let mut tty = common::apart(|| {
        refuse(&[PPOLL, POLL].concat(), libc::EINVAL);
        Tty::start(home.cordboard().arg("top"), 8, 80)
    });
    assert_eq!(tty.ends().code(), Some(1));
    tty.shows(&["EINVAL) using the terminal"]);
}

/// A shell with job control, at its prompt.
fn shell(home: &Home) -> Tty {
    shell_by(home, &["sh", "-i"])
}

fn shell_by(home: &Home, command: &[&str]) -> Tty {
    let mut shell = std::process::Command::new(command[0]);
    shell
        .args(&command[1..])
        .env("PS1", "ready$ ")
        .env_remove("ENV")
        .env("CORDBOARD_RUNTIME_DIR", home.path());
    let tty = Tty::start(&mut shell, 12, 80);
    tty.shows(&["ready$"]);
    tty
}

/// Brings the job to the foreground, and ends it and its shell.
fn continues_in_the_foreground(mut tty: Tty) {
    tty.press("fg\n");
    tty.shows(&["No transfers are running."]);
    assert_eq!(tty.is_taken(), Some(true));
    quits_to_the_shell(tty, "No transfers");
}

/// Ends the program, which shows this text, and its shell.
fn quits_to_the_shell(mut tty: Tty, shown: &str) {
    tty.press("q");
    tty.sees("the prompt", |lines| {
        lines.iter().any(|line| line.starts_with("ready$"))
            && !lines.iter().any(|line| line.contains(shown))
    });
    tty.press("exit 7\n");
    assert_eq!(tty.ends().code(), Some(7));
}

/// Under a shell with job control, as a person uses it.
#[test]
fn a_shell_has_the_terminal_while_the_job_is_stopped() {
    let home = Home::make();
    let mut tty = shell(&home);
    let program = env!("CARGO_BIN_EXE_cordboard");
    tty.press(&format!("{program} top\n"));
    tty.shows(&["No transfers are running."]);
    assert_eq!(tty.is_taken(), Some(true));
    tty.press("\x1a");
    tty.shows(&["Stopped"]);
    let lines = tty.lines();
    assert!(
        !lines.iter().any(|line| line.contains("No transfers")),
        "{lines:?}"
    );
    tty.press("echo $((6*7))\n");
    tty.sees("the shell", |lines| lines.iter().any(|line| line == "42"));
    continues_in_the_foreground(tty);
}

/// A frame waits while Ctrl-S stops the output. Ctrl-Z starts it again.
#[test]
fn a_frame_that_waits_is_not_drawn_in_the_background() {
    waits_in_the_background(&["sh", "-i"]);
}

/// This shell sends no SIGCONT to a running job that comes to the foreground.
#[test]
fn a_running_job_takes_the_terminal_in_the_foreground() {
    if std::process::Command::new("bash")
        .arg("--version")
        .output()
        .is_err()
    {
        return testkit::skip::here("bash is not installed");
    }
    waits_in_the_background(&["bash", "--norc", "--noediting", "-i"]);
}

fn waits_in_the_background(command: &[&str]) {
    let home = Home::make();
    let moving = home.moving("s", &["--rate", "1M"]);
    let mut tty = shell_by(&home, command);
    let program = env!("CARGO_BIN_EXE_cordboard");
    tty.press(&format!("{program} top\n"));
    tty.shows(&["> /dev/zero -> /dev/null", "running"]);
    tty.press("\x13");
    let top = std::path::PathBuf::from(format!("/proc/{}", tty.foreground()));
    until("a frame that waits", || {
        testkit::locked::sleeps_in(&top, &[libc::SYS_write]).then_some(())
    });
    tty.press("\x1a");
    tty.shows(&["Stopped"]);
    tty.press("bg\n");
    until("a wait for the next event", || {
        testkit::locked::polls(&top).then_some(())
    });
    tty.press("echo $((6*7))\n");
    let lines = tty.sees("the shell", |lines| lines.iter().any(|line| line == "42"));
    assert!(
        !lines.iter().any(|line| line.contains("/dev/zero")),
        "{lines:?}"
    );
    tty.press("fg\n");
    tty.shows(&["> /dev/zero -> /dev/null", "running"]);
    until("the terminal", || {
        (tty.is_taken() == Some(true)).then_some(())
    });
    quits_to_the_shell(tty, "/dev/zero");
    moving.cue(&["cancel"]);
}

/// Setting the modes stops it in the background; it continues in the foreground.
#[test]
fn a_job_that_is_started_in_the_background_comes_to_the_foreground() {
    let home = Home::make();
    let mut tty = shell(&home);
    let program = env!("CARGO_BIN_EXE_cordboard");
    tty.press(&format!("{program} top &\n"));
    // The shell's own report may have left the screen when it is looked at.
    tty.press("j=$CORDBOARD_RUNTIME_DIR/jobs; until jobs > $j; grep -q Stopped $j; do :; done\n");
    tty.press("echo \"all\" jobs have stopped\n");
    tty.shows(&["all jobs have stopped"]);
    continues_in_the_foreground(tty);
}

#[test]
fn names_cannot_affect_the_terminal() {
    let home = Home::make();
    let evil = home.path().join("\x1b[2J\x1b]0;title\x07\nx");
    std::fs::write(&evil, vec![0; 100_000]).unwrap();
    let socket = home.path().join("s");
    let child = home
        .cordboard()
        .arg("splice")
        .arg(&evil)
        .args(["/dev/null", "--rate", "1", "--control"])
        .arg(&socket)
        .start();
    // Ends at the end of the test.
    let _moving = Moving { child, socket };
    let mut tty = Tty::start(home.cordboard().arg("top"), 8, 200);
    tty.shows(&[
        "> ",
        "\\u{1b}[2J\\u{1b}]0;title\\u{7}\\nx -> /dev/null",
        "0 %",
    ]);
    tty.press("q");
    assert_eq!(tty.ends().code(), Some(0));
}
