//! `cordboard`: bytes moved between any two endpoints, at the shell.

#![cfg_attr(not(test), no_main)]
#![deny(unsafe_code)]

mod cat;
mod copy;
mod endpoint;
mod explain;
mod failure;
mod flags;
mod hints;
mod memory;
mod pages;
mod patient;
mod play;
mod problem;
mod progress;
mod removal;
mod report;
mod request;
mod session;
mod signals;
mod splice;
mod stages;
mod stat;
#[allow(unsafe_code)]
mod sys;
mod there;
mod units;
mod usage;

use std::ffi::OsString;

use flags::{Command, Common};
use session::Session;

/// Runs the command of these words, and returns its exit status.
fn run(words: Vec<OsString>) -> u8 {
    // A file that may not grow (`RLIMIT_FSIZE`) is an error to be told of.
    sys::ignore(libc::SIGXFSZ);
    let cli = match usage::parse(&words) {
        Ok(cli) => cli,
        Err(error) => return leave(usage::misused(&error, &words)),
    };
    let status = match cli.command {
        Command::Splice(flags) => moving(&flags.common, "moved", |s| splice::run(&flags, s)),
        Command::Copy(flags) => moving(&flags.common, "copied", |s| copy::run(&flags, s)),
        Command::Cat(flags) => moving(&flags.common, session::CAT, |s| cat::run(&flags, s)),
        Command::Play(flags) => play::run(&flags),
        Command::Explain(flags) => explain::run(&flags),
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { what } => pages::man(what.as_deref()),
    };
    leave(status)
}

/// The status to exit with; or the command dies of the signal that it stands
/// for, as a shell expects of a command in a pipeline whose reader has gone.
///
/// A signal to stop because of which something was left unwritten decides.
fn leave(status: u8) -> u8 {
    if let Some(signal) = patient::given_up() {
        return signals::status_of(signal);
    }
    if status == signals::READER_LEFT {
        signals::die_of_sigpipe();
    }
    status
}

/// A command that moves bytes, from its first signal handler to its last line.
fn moving(common: &Common, verb: &'static str, run: impl FnOnce(&mut Session)) -> u8 {
    let mut session = Session::begin(common, verb);
    run(&mut session);
    session.finish()
}
