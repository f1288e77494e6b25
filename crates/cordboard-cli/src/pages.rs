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
    let pages = all_pages();
    let Some(what) = what else {
        return show(&pages[0].text);
    };
    let is_named = |page: &&Page| page.of.as_ref().is_some_and(|of| what == of.as_str());
    if let Some(page) = pages.iter().find(is_named) {
        return show(&page.text);
    }
    let shown = what.to_string_lossy();
    if !Path::new(what).is_dir() {
        tell(format_args!(
            "cordboard: {shown}: neither a command nor a directory"
        ));
        return 2;
    }
    for page in pages {
        let path = Path::new(what).join(page.file);
        if let Err(error) = std::fs::write(&path, page.text) {
            let shown = path.to_string_lossy();
            tell(Problem::call(
                shown,
                Side::Sink,
                errno(&error),
                Doing::Moving,
            ));
            return 1;
        }
    }
    0
}

/// A man page.
struct Page {
    /// The command that it is of; `None`: all of them.
    of: Option<String>,
    /// What it is called in a directory.
    file: String,
    text: Vec<u8>,
}

/// All of them, the command's own first.
fn all_pages() -> Vec<Page> {
    let mut whole = Cli::command().disable_help_subcommand(true);
    whole.build();
    let package = format!("cordboard {}", env!("CARGO_PKG_VERSION"));
    let page = |command: &clap::Command, of: Option<&str>| {
        let man = clap_mangen::Man::new(command.clone()).source(&package);
        let mut text = Vec::new();
        man.render(&mut text).expect("memory does not fail");
        Page {
            of: of.map(str::to_owned),
            file: man.get_filename(),
            text,
        }
    };
    let commands = whole.get_subcommands().filter(|sub| !sub.is_hide_set());
    let of_commands = commands.map(|sub| page(sub, Some(sub.get_name())));
    std::iter::once(page(&whole, None))
        .chain(of_commands)
        .collect()
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
