//! Parsing the command line, and what is printed if there is no command to run.

use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, FromArgMatches, Parser};

use crate::flags::{Cli, Command};
use crate::output::{affects_line, one_line, print_line};
use crate::problem::Problem;
use crate::report::{Account, Files};
use crate::{output, print};

/// Parses the words of the command line.
pub fn parse(words: &[OsString]) -> Result<Cli, clap::Error> {
    if let Some(cli) = parse_alone(words) {
        return Ok(cli);
    }
    const MISSING: ErrorKind = ErrorKind::MissingRequiredArgument;
    let is_of_operands = |kind| matches!(kind, ErrorKind::UnknownArgument | MISSING);
    let mut error = match Cli::try_parse_from(words) {
        Err(error) if of_copy(words) && is_of_operands(error.kind()) => error,
        done => return done,
    };
    // clap takes an operand for DST if the next word begins with a dash, also
    // behind `--` (`Parser::get_matches_with`): all that follows is too many
    // then. Without DST, all operands are SRC.
    let copy = |copy: clap::Command| {
        copy.override_usage("cordboard copy [OPTIONS] <SRC>... <DST>")
            .mut_arg("sink", |sink| sink.long("\0").required(false).hide(true))
    };
    let read = Cli::command().mut_subcommand("copy", copy);
    let read = read.try_get_matches_from(words);
    match read.and_then(|mut read| Cli::from_arg_matches_mut(&mut read)) {
        // The only operand is SRC, which clap takes for DST.
        Ok(cli) if matches!(&cli.command, Command::Copy(copy) if copy.operands().0.is_empty()) => {
            let missing = ContextValue::Strings(vec!["<DST>".to_owned()]);
            error.insert(ContextKind::InvalidArg, missing);
            Err(error)
        }
        Err(other) if other.kind() == MISSING => Err(error),
        // The help is the same as before.
        Err(error) if error.kind() == ErrorKind::DisplayHelp => {
            let before = words.iter().take_while(|word| *word != "--");
            let long = before.into_iter().any(|word| word == "--help");
            let help = if long { "--help" } else { "-h" };
            Cli::try_parse_from(["cordboard", "copy", help])
        }
        done => done,
    }
}

/// Parses the words by the definition of their own command alone: that of all commands takes
/// a fifth of the time of a copy of one byte. `None`: there is help or an error to print,
/// which names the other commands too.
fn parse_alone(words: &[OsString]) -> Option<Cli> {
    fn parse<T: Args>(words: &[OsString], command: fn(T) -> Command) -> Option<Cli> {
        let own = clap::Command::new("cordboard").args_override_self(true);
        let own = T::augment_args(own);
        let mut read = own.try_get_matches_from(words).ok()?;
        let flags = T::from_arg_matches_mut(&mut read).ok()?;
        Some(Cli {
            command: command(flags),
        })
    }
    // The word of the command is in the place of the program's name.
    let own = words.get(1..)?;
    match own.first()?.to_str()? {
        "splice" => parse(own, Command::Splice),
        "copy" => parse(own, Command::Copy),
        "cat" => parse(own, Command::Cat),
        _ => None,
    }
}

fn of_copy(words: &[OsString]) -> bool {
    words.get(1).is_some_and(|word| word == "copy")
}

/// Prints requested help, or the error of wrong usage, with a report if one was
/// requested. Returns the exit status.
pub fn misused(error: &clap::Error, words: &[OsString]) -> u8 {
    let text = match words
        .iter()
        .any(|word| word.to_string_lossy().contains(affects_line))
    {
        true => plain(error),
        false => colored(error),
    };
    if error.use_stderr() {
        // There is nowhere else to report an error.
        let _ = output::write_all(rustix::stdio::stderr(), text.as_bytes());
    } else if let Err(problem) = print::print(text.as_bytes()) {
        // The requested text was not written.
        return print::failed(&problem);
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
        crate::play::misused();
    } else if error.use_stderr() && asked {
        let mut account = Account::default();
        account.problem(&Problem::usage("", ""));
        let copies = words.first().is_some_and(|word| word == "copy");
        account.files = copies.then_some(Files::NONE);
        print_line(account.json().trim_end());
    }
    u8::try_from(error.exit_code()).unwrap_or(2)
}

/// Renders the text without colors, and escapes what affects a terminal: the error quotes the
/// words. A line feed in a word stays one.
fn plain(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let lines: Vec<_> = text.split('\n').map(one_line).collect();
    lines.join("\n")
}

/// Renders the text, in colors if it goes to a terminal that supports them.
fn colored(error: &clap::Error) -> String {
    let choice = match error.use_stderr() {
        true => anstream::AutoStream::choice(&std::io::stderr()),
        false => anstream::AutoStream::choice(&std::io::stdout()),
    };
    match choice {
        anstream::ColorChoice::Never => error.render().to_string(),
        _ => error.render().ansi().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_word_does_not_affect_a_terminal() {
        let words = ["cordboard", "copy", "--\u{9b}31m\u{7}\u{1b}]0;x", "a", "b"];
        let words = words.map(OsString::from);
        let error = parse(&words).err().unwrap();
        let text = plain(&error);
        assert!(text.contains("unexpected argument"), "{text:?}");
        let affects = |c| c != '\n' && affects_line(c);
        assert!(!text.contains(affects), "{text:?}");
    }
}
