//! Completions and man pages, from the table of flags.

use std::ffi::OsStr;
use std::path::Path;

use clap::CommandFactory;
use cordboard::Side;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::endpoint::{self, Name};
use crate::flags::Cli;
use crate::hints::Doing;
use crate::problem::{Problem, errno, tell};
use crate::{patient, signals};

/// Prints the completions for a shell.
pub fn completions(shell: clap_complete::Shell) -> u8 {
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "cordboard", &mut out);
    show(&out)
}

/// Writes all man pages into a directory; or prints the one of a command;
/// or, for nothing, the command's own.
pub fn man(what: Option<&OsStr>) -> u8 {
    let mut whole = Cli::command();
    whole.build();
    let page = match what {
        None => Some(whole.clone()),
        Some(name) => name
            .to_str()
            .and_then(|name| whole.find_subcommand(name))
            .filter(|sub| !sub.is_hide_set())
            .map(|sub| sub.clone().name(format!("cordboard-{}", sub.get_name()))),
    };
    match (page, what) {
        (Some(page), _) => {
            let mut out = Vec::new();
            clap_mangen::Man::new(page)
                .render(&mut out)
                .expect("memory does not fail");
            show(&out)
        }
        (None, Some(what)) if Path::new(what).is_dir() => {
            match clap_mangen::generate_to(Cli::command(), what) {
                Ok(()) => 0,
                Err(error) => {
                    tell(format_args!(
                        "cordboard: {}: {error}",
                        what.to_string_lossy()
                    ));
                    1
                }
            }
        }
        (None, what) => {
            let what = what.unwrap_or_default().to_string_lossy();
            tell(format_args!(
                "cordboard: {what}: neither a command nor a directory"
            ));
            2
        }
    }
}

fn show(text: &[u8]) -> u8 {
    match print(text) {
        Ok(()) => 0,
        Err(problem) => failed(&problem),
    }
}

/// The exit status after a failure to print. The failure is reported, unless
/// the reader of standard output has gone.
pub fn failed(problem: &Problem) -> u8 {
    if problem.is_a_reader_that_left() {
        return signals::READER_LEFT;
    }
    tell(problem);
    if problem.usage { 2 } else { 1 }
}

/// Standard output, if it was not closed and is not open for reading only.
pub fn writable() -> Result<endpoint::Opened, Problem> {
    let sink = endpoint::sink(&Name::Standard, "-", false)?;
    match rustix::fs::fcntl_getfl(&sink) {
        Ok(flags) if flags & OFlags::RWMODE == OFlags::RDONLY => {
            Err(unwritten(&sink.shown, &Errno::BADF.into()))
        }
        _ => Ok(sink),
    }
}

/// Writes to standard output, also where it was closed: that is an error.
pub fn print(text: &[u8]) -> Result<(), Problem> {
    let sink = writable()?;
    patient::write_all(rustix::stdio::stdout(), text)
        .map_err(|error| unwritten(&sink.shown, &error))
}

/// What was asked for could not be written here.
pub fn unwritten(where_to: &str, error: &std::io::Error) -> Problem {
    Problem::call(where_to, Side::Sink, errno(error), Doing::Moving)
}
