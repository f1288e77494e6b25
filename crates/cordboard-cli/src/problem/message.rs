//! One problem, and its line: the operand, what failed and why, what helps.

use std::fmt;
use std::os::fd::BorrowedFd;

use cordboard::{Errno, Side};

use super::action::Action;
use super::hints::hint;
use crate::files::is_standard_output;
use crate::inherited::sigpipe_kills;
use crate::output::{one_line, print_line};
use crate::signals::{self, Interrupted};

/// One thing that went wrong.
#[derive(Debug)]
pub struct Problem {
    /// The operand, as it was given; empty for the command itself.
    pub operand: String,
    /// The side of the transfer.
    pub side: Option<Side>,
    /// The errno, if there is one.
    pub errno: Option<Errno>,
    /// What happened.
    pub text: String,
    /// What helps.
    pub hint: Option<String>,
    /// Wrong usage (exit status 2) rather than a failure (1).
    pub usage: bool,
    /// The sink is standard output, which may have been opened by name.
    pub at_standard_output: bool,
    /// Only this file is affected, even if the errno is usually that of a whole
    /// file system.
    pub is_local: bool,
}

impl Problem {
    /// A problem of which only the text is known.
    pub(super) fn new(operand: impl Into<String>, text: impl Into<String>) -> Problem {
        Problem {
            operand: operand.into(),
            side: None,
            errno: None,
            text: text.into(),
            hint: None,
            usage: false,
            at_standard_output: false,
            is_local: false,
        }
    }

    /// A system call that failed: `ERRNO opening the source`, with a hint.
    pub fn call(
        operand: impl Into<String>,
        side: Side,
        errno: impl Into<Errno>,
        action: Action,
    ) -> Problem {
        let errno = errno.into();
        Problem {
            hint: hint(errno, side, action).map(str::to_owned),
            ..Problem::refused(operand, side, errno, format!("{errno} {action} the {side}"))
        }
    }

    /// A refusal by this command, or an error with a text of its own.
    pub fn refused(
        operand: impl Into<String>,
        side: Side,
        errno: Errno,
        text: impl Into<String>,
    ) -> Problem {
        Problem {
            side: Some(side),
            errno: Some(errno),
            ..Problem::new(operand, text)
        }
    }

    /// Wrong usage.
    pub fn usage(operand: impl Into<String>, text: impl Into<String>) -> Problem {
        Problem {
            usage: true,
            ..Problem::unsided(operand, Errno::EINVAL, text)
        }
    }

    /// A failure of neither side.
    pub fn unsided(operand: impl Into<String>, errno: Errno, text: impl Into<String>) -> Problem {
        Problem {
            errno: Some(errno),
            ..Problem::new(operand, text)
        }
    }

    /// A source with an empty name, which no file has (`ENOENT`,
    /// path_resolution(7)).
    pub fn empty_name() -> Problem {
        Problem::call("''", Side::Source, Errno::ENOENT, Action::Open)
    }

    /// Returns the problem of a sink whose name ends in a slash and does not refer to a
    /// directory. `found`: the error of `stat(2)` for this name. `None`: another error.
    pub fn no_directory(operand: impl Into<String>, found: rustix::io::Errno) -> Option<Problem> {
        let (text, hint) = match found {
            rustix::io::Errno::NOENT => (
                "directory does not exist",
                "create it first (mkdir), or omit the slash",
            ),
            rustix::io::Errno::NOTDIR => (
                "is not a directory",
                "specify another name, or omit the slash to overwrite it",
            ),
            _ => return None,
        };
        Some(Problem::refused(operand, Side::Sink, Errno::ENOTDIR, text).help(hint))
    }

    /// An error of `close(2)` of a sink.
    pub fn closing(operand: impl Into<String>, errno: rustix::io::Errno) -> Problem {
        if errno != rustix::io::Errno::INTR {
            return Problem::call(operand, Side::Sink, errno, Action::Transfer);
        }
        let errno = Errno::from(errno);
        let text = format!("{errno} closing the sink; it may be incomplete");
        Problem::refused(operand, Side::Sink, errno, text).help("write it again")
    }

    /// Records whether the sink of this problem is standard output.
    #[must_use]
    pub fn at(mut self, sink: BorrowedFd<'_>) -> Problem {
        self.at_standard_output = is_standard_output(sink);
        self
    }

    /// Returns whether the reader of standard output has closed it. This is not reported:
    /// SIGPIPE would end another command at this point.
    pub fn is_closed_reader(&self) -> bool {
        let is_epipe = (self.side, self.errno) == (Some(Side::Sink), Some(Errno::EPIPE));
        self.at_standard_output && is_epipe && sigpipe_kills()
    }

    /// Whether a signal to stop is the cause.
    pub fn is_stop(&self) -> bool {
        self.errno == Some(Errno::EINTR) && signals::stop().is_some()
    }

    /// Sets the hint.
    #[must_use]
    pub fn help(mut self, hint: impl Into<String>) -> Problem {
        self.hint = Some(hint.into());
        self
    }

    /// Adds what is left behind. A signal to stop is reported elsewhere: the
    /// addition is then printed as a line of its own.
    #[must_use]
    pub fn leaving(mut self, leftover: Option<String>) -> Problem {
        match leftover {
            Some(leftover) if self.is_stop() => print_leftover(&leftover),
            Some(leftover) => self.text += &format!("; {leftover}"),
            None => {}
        }
        self
    }

    /// Sets the side.
    #[must_use]
    pub fn on(mut self, side: Side) -> Problem {
        self.side = Some(side);
        self
    }
}

/// A signal to stop, as a problem.
impl From<Interrupted> for Problem {
    fn from(_: Interrupted) -> Problem {
        Problem::unsided("", Errno::EINTR, "interrupted")
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&one_line(&format!("cordboard: {}", self.message())))
    }
}

impl Problem {
    /// Returns the message without the name of the program.
    pub fn message(&self) -> String {
        let mut line = String::new();
        if !self.operand.is_empty() {
            line += &self.operand;
            line += ": ";
        }
        line += &self.text;
        if let Some(hint) = &self.hint {
            line += "; ";
            line += hint;
        }
        line
    }
}

/// Prints what is left behind without a problem.
pub fn print_leftover(leftover: &str) {
    print_line(one_line(&format!("cordboard: {leftover}")));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_the_operand_the_errno_the_side_and_a_hint() {
        let p = Problem::call("no\nsuch", Side::Source, Errno::ENOENT, Action::Open);
        let line = p.to_string();
        assert!(!line.contains('\n'));
        assert!(line.starts_with(
            "cordboard: no\\nsuch: No such file or directory (ENOENT) opening the source; "
        ));
    }
}
