//! Dispatch: from the words of the command line to the exit status.

use std::ffi::OsString;

use crate::exit::leave;
use crate::flags::{Command, Common, Label};
use crate::session::{CAT, Session};
use crate::{
    buffer, cat, copy, explain, fan_in, fan_out, man, play, serve, splice, sys, top, usage,
};

/// Runs the command of these words, and returns its exit status.
pub fn run(words: Vec<OsString>) -> u8 {
    // Reaching a limit of file size (`RLIMIT_FSIZE`) is reported as an error.
    sys::ignore(libc::SIGXFSZ);
    let cli = match usage::parse(&words) {
        Ok(cli) => cli,
        Err(error) => return leave(usage::misused(&error, &words)),
    };
    let status = match cli.command {
        Command::Splice(flags) if flags.buffering.buffer.is_some() => {
            transfer(&flags.common, "moved", &flags.label(), |s| {
                buffer::run(&flags, s)
            })
        }
        Command::Splice(flags) if flags.fan_in.fan_in.is_some() => {
            transfer(&flags.common, "moved", &flags.label(), |s| {
                fan_in::run(&flags, s)
            })
        }
        Command::Splice(flags) if !flags.more_sinks.is_empty() => {
            transfer(&flags.common, "moved", &flags.label(), |s| {
                fan_out::run(&flags, s)
            })
        }
        Command::Splice(flags) => transfer(&flags.common, "moved", &flags.label(), |s| {
            splice::run(&flags, s)
        }),
        Command::Copy(flags) => {
            let mut session = Session::begin(&flags.common, "copied");
            session.count_files(flags.recursive || flags.operands().0.len() > 1);
            steered(session, &flags.common, &flags.label(), |s| {
                copy::run(&flags, s)
            })
        }
        Command::Cat(flags) => {
            transfer(&flags.common, CAT, &flags.label(), |s| cat::run(&flags, s))
        }
        Command::Play(flags) => play::run(&flags),
        Command::Cue(flags) => crate::cue::run(&flags),
        Command::Top(flags) => top::run(&flags),
        Command::Serve(flags) => serve::run(&flags),
        Command::Explain(flags) => explain::run(&flags),
        Command::Completions { shell } => man::completions(shell),
        Command::Man { what } => man::man(what.as_deref()),
    };
    leave(status)
}

/// Runs a command that moves bytes, from installing the signal handlers to
/// printing the report.
fn transfer(
    common: &Common,
    verb: &'static str,
    label: &Label,
    run: impl FnOnce(&mut Session),
) -> u8 {
    steered(Session::begin(common, verb), common, label, run)
}

/// Runs a command whose session has begun.
fn steered(
    mut session: Session,
    common: &Common,
    label: &Label,
    run: impl FnOnce(&mut Session),
) -> u8 {
    match session.steer(common, label) {
        Ok(()) => run(&mut session),
        Err(problem) => session.none_copied(&problem),
    }
    session.finish()
}
