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

use std::ffi::{OsStr, OsString};

use clap::Parser;

use flags::{Cli, Command, Common};
use problem::tell;
use session::Session;

/// Runs the command of these words, and returns its exit status.
fn run(words: Vec<OsString>) -> u8 {
    // A file that may not grow (`RLIMIT_FSIZE`) is an error to be told of.
    sys::ignore(libc::SIGXFSZ);
    let cli = match Cli::try_parse_from(&words) {
        Ok(cli) => cli,
        Err(error) => return leave(misused(&error, &words)),
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

/// Help that was asked for; or wrong usage, which has its report too where one
/// was asked for.
fn misused(error: &clap::Error, words: &[OsString]) -> u8 {
    // The standard library takes EBADF for success.
    let asked = pages::writable().map(|_| ());
    let printed = error
        .print()
        .and_then(|()| std::io::Write::flush(&mut std::io::stdout()));
    if !error.use_stderr() {
        let unwritten = |failed| pages::unwritten("standard output", &failed);
        // What was asked for has not come.
        if let Err(problem) = asked.and(printed.map_err(unwritten)) {
            return pages::failed(&problem);
        }
    }
    let words = words.get(1..).unwrap_or_default();
    let moves = ["splice", "copy", "cat", "play"].map(OsStr::new);
    let asked = words
        .first()
        .is_some_and(|word| moves.contains(&word.as_os_str()))
        && words
            .iter()
            .take_while(|word| *word != "--")
            .any(|word| word == "--json");
    let plays = words.first().is_some_and(|word| word == "play");
    if error.use_stderr() && asked && plays {
        play::misused();
    } else if error.use_stderr() && asked {
        let mut account = report::Account::default();
        account.problem(&problem::Problem::usage("", ""));
        let copies = words.first().is_some_and(|word| word == "copy");
        account.files = copies.then_some(report::Files::NONE);
        tell(account.json().trim_end());
    }
    u8::try_from(error.exit_code()).unwrap_or(2)
}

/// A command that moves bytes, from its first signal handler to its last line.
fn moving(common: &Common, verb: &'static str, run: impl FnOnce(&mut Session)) -> u8 {
    let mut session = Session::begin(common, verb);
    run(&mut session);
    session.finish()
}
