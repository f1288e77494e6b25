//! Signals that end or stop the player while the terminal has its modes for keys.

use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Child;

use rustix::process::{Pid, Resource, Rlimit, Signal, getpgrp, ioctl_tiocsctty, prlimit, setsid};
use rustix::termios::{InputModes, OptionalActions, tcgetattr, tcsetattr, tcsetpgrp};

use crate::common::*;
use crate::film::*;
use crate::steering::{at_terminal, begun, job, modes};

/// A film of several hours.
const SLOW: [&str; 4] = ["--frame", "3000", "--fps", "0.0001"];

/// Prevents core dumps.
fn without_core(child: &Child) {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    prlimit(Some(Pid::from_child(child)), Resource::Core, none).unwrap();
}

/// The wait status names the signal, as if it had no handler.
#[test]
fn a_signal_that_ends_it_gives_the_terminal_back() {
    let film = Film::new(2 * FRAME);
    let signals = [
        Signal::QUIT,
        Signal::USR2,
        Signal::ABORT,
        Signal::SEGV,
        Signal::XCPU,
        Signal::VTALARM,
        Signal::SYS,
    ];
    for by in signals
        .map(Signal::as_raw)
        .into_iter()
        .chain([libc::SIGRTMIN(), libc::SIGRTMAX()])
    {
        let (child, _master, slave) = at_terminal(&film, "/dev/null", &SLOW);
        without_core(&child);
        // SAFETY: takes integers; the process is a child that was not waited for.
        unsafe { libc::kill(child.id() as i32, by) };
        let run = end(child);
        assert_eq!(run.0.status.signal(), Some(by), "{}", run.stderr());
        assert_eq!(modes(&slave), modes(&terminal().1), "after signal {by}");
    }
}

/// A shell sets its own modes while it reads a line.
#[test]
fn what_ends_it_in_the_background_leaves_the_modes_of_others() {
    let film = Film::new(0);
    let path = film.path("fifo");
    let (_master, slave) = terminal();
    let mut play = job(&film, &path, &slave);
    play.process_group(0);
    let before = modes(&slave);
    assert!(testkit::child::in_a_child(|| {
        setsid().unwrap();
        ioctl_tiocsctty(&slave).unwrap();
        let mut all_well = true;
        let endings = [Signal::QUIT, Signal::TERM];
        let cases = endings.map(|by| [false, true].map(|others| (by, others)));
        for (by, others) in cases.into_iter().flatten() {
            // SAFETY: takes integers; the process is a child of its own.
            let on_output = |action| unsafe { libc::signal(libc::SIGTTOU, action) };
            on_output(libc::SIG_DFL);
            let child = play.start();
            without_core(&child);
            let pid = Pid::from_child(&child);
            // Taking the foreground from another process does not stop this
            // one.
            on_output(libc::SIG_IGN);
            tcsetpgrp(&slave, pid).unwrap();
            let film = begun(&path, &slave, before);
            tcsetpgrp(&slave, getpgrp()).unwrap();
            let mut theirs = tcgetattr(&slave).unwrap();
            if others {
                theirs.input_modes -= InputModes::ICRNL;
                tcsetattr(&slave, OptionalActions::Now, &theirs).unwrap();
            }
            signal(child.id(), by);
            let status = next_of(child.id());
            all_well &= match by {
                Signal::TERM => status.exit_status() == Some(143),
                by => status.terminating_signal() == Some(by.as_raw()),
            };
            all_well &= (modes(&slave) == before) != others;
            theirs.local_modes = before;
            theirs.input_modes |= InputModes::ICRNL;
            tcsetattr(&slave, OptionalActions::Now, &theirs).unwrap();
            drop(film);
        }
        all_well
    }));
}

/// The key is Ctrl-\, which ends only the job.
#[test]
fn the_key_that_quits_and_the_signals_that_stop_give_the_terminal_back() {
    let film = Film::new(0);
    let path = film.path("fifo");
    let (mut master, slave) = terminal();
    let mut play = job(&film, &path, &slave);
    play.process_group(0);
    let before = modes(&slave);
    assert!(testkit::child::in_a_child(|| {
        setsid().unwrap();
        ioctl_tiocsctty(&slave).unwrap();
        let child = play.start();
        without_core(&child);
        let pid = Pid::from_child(&child);
        tcsetpgrp(&slave, pid).unwrap();
        let film = begun(&path, &slave, before);
        let keys = modes(&slave);
        let next = || next_of(child.id());
        for by in [Signal::TTIN, Signal::TTOU] {
            signal(child.id(), by);
            if next().stopping_signal() != Some(by.as_raw()) || modes(&slave) != before {
                return false;
            }
            signal(child.id(), Signal::CONT);
            until("keys again", || (modes(&slave) == keys).then_some(()));
        }
        master.write_all(b"\x1c").unwrap();
        let by = next().terminating_signal();
        drop(film);
        by == Some(libc::SIGQUIT) && modes(&slave) == before
    }));
}
