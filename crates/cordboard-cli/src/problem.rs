//! What went wrong, in one line: the operand, the meaning, the side, the help.

use std::borrow::Cow;
use std::fmt;
use std::io;

use cordboard::{Errno, Side};
use rustix::stdio::stderr;

use crate::endpoint::standard_was_closed;
use crate::hints::{Doing, hint};
use crate::{patient, signals};

/// A line on standard error. Where nobody takes it, there is nobody to be told
/// of that either.
pub fn tell(line: impl fmt::Display) {
    let _ = patient::write_all(stderr(), format!("{line}\n").as_bytes());
}

/// What is left behind where nothing went wrong.
pub fn tell_left(left: &str) {
    tell(one_line(&format!("cordboard: {left}")));
}

/// A status line on standard error: nothing waits for who reads it. SIGALRM has
/// to come again and again meanwhile.
pub fn status(line: impl fmt::Display) {
    patient::at_once(stderr(), format!("{line}\n").as_bytes());
}

/// Writes to standard error what was asked for by an option: that it could not
/// be written is a failure, as of anything else that was asked for, though there
/// is nowhere to tell of it.
pub fn give(bytes: &[u8]) -> Result<(), Errno> {
    if standard_was_closed(2) {
        return Err(Errno::EBADF);
    }
    let done = patient::write_all(stderr(), bytes);
    done.map_err(|error| errno(&error))
}

/// The errno of an error of the standard library's; where it has none, it is
/// one of reading or writing.
pub fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

/// One thing that went wrong.
#[derive(Debug)]
pub struct Problem {
    /// The operand it concerns, as it was given; empty: the command itself.
    pub operand: String,
    /// Which side of the transfer it is.
    pub side: Option<Side>,
    /// The errno, where there is one.
    pub errno: Option<Errno>,
    /// What happened.
    pub text: String,
    /// What helps.
    pub hint: Option<String>,
    /// Wrong usage, exit 2, rather than failure, exit 1.
    pub usage: bool,
}

impl Problem {
    /// A system call that failed.
    pub fn call(
        operand: impl Into<String>,
        side: Side,
        errno: impl Into<Errno>,
        doing: Doing,
    ) -> Problem {
        let errno = errno.into();
        let what = match doing {
            Doing::Opening => "opening",
            Doing::Connecting => "connecting",
            Doing::Listening => "listening as",
            Doing::Emptying => "emptying",
            Doing::Moving
            | Doing::MovingBySocket
            | Doing::MovingBlocks
            | Doing::MovingCharacters => "at",
            Doing::Listing => "listing",
            Doing::Syncing => "syncing",
            Doing::ReadingBack => "reading back",
        };
        Problem {
            operand: operand.into(),
            side: Some(side),
            errno: Some(errno),
            text: format!("{errno} {what} the {side}"),
            hint: hint(errno, side, doing).map(str::to_owned),
            usage: false,
        }
    }

    /// A failure in our own words.
    pub fn refused(
        operand: impl Into<String>,
        side: Side,
        errno: Errno,
        text: impl Into<String>,
    ) -> Problem {
        Problem {
            operand: operand.into(),
            side: Some(side),
            errno: Some(errno),
            text: text.into(),
            hint: None,
            usage: false,
        }
    }

    /// A source of many has an empty name, which no file has (`ENOENT`,
    /// path_resolution(7)).
    pub fn unnamed() -> Problem {
        Problem::call("''", Side::Source, Errno::ENOENT, Doing::Opening)
    }

    /// What `close(2)` says of a sink.
    pub fn closing(operand: impl Into<String>, errno: rustix::io::Errno) -> Problem {
        if errno != rustix::io::Errno::INTR {
            return Problem::call(operand, Side::Sink, errno, Doing::Moving);
        }
        let errno = Errno::from(errno);
        let text = format!("{errno} closing the sink; whether it has all of it is not known");
        Problem::refused(operand, Side::Sink, errno, text).help("write it again")
    }

    /// Wrong usage.
    pub fn usage(operand: impl Into<String>, text: impl Into<String>) -> Problem {
        Problem {
            operand: operand.into(),
            side: None,
            errno: Some(Errno::EINVAL),
            text: text.into(),
            hint: None,
            usage: true,
        }
    }

    /// A frame's time could not be waited for.
    pub fn unwaitable(errno: Errno) -> Problem {
        Problem {
            operand: String::new(),
            side: None,
            errno: Some(errno),
            text: format!("{errno} waiting for a frame's time"),
            hint: None,
            usage: false,
        }
    }

    /// A wait was ended by a signal that asks us to stop.
    pub fn interrupted() -> Problem {
        Problem {
            operand: String::new(),
            side: None,
            errno: Some(Errno::EINTR),
            text: "interrupted".to_owned(),
            hint: None,
            usage: false,
        }
    }

    /// Whether the sink has no reader any more. For standard output that is no
    /// fault to report: SIGPIPE would end another command at this point.
    pub fn is_a_reader_that_left(&self) -> bool {
        (self.side, self.errno) == (Some(Side::Sink), Some(Errno::EPIPE))
            && signals::sigpipe_kills()
    }

    /// Whether it is that we were asked to stop.
    pub fn is_a_stop(&self) -> bool {
        self.errno == Some(Errno::EINTR) && signals::stop().is_some()
    }

    /// The same with this help.
    #[must_use]
    pub fn help(mut self, hint: impl Into<String>) -> Problem {
        self.hint = Some(hint.into());
        self
    }

    /// The same with what it has left behind. A stop is told of elsewhere, so
    /// that this is a line of its own then.
    #[must_use]
    pub fn leaving(mut self, left: Option<String>) -> Problem {
        match left {
            Some(left) if self.is_a_stop() => tell_left(&left),
            Some(left) => self.text += &format!("; {left}"),
            None => {}
        }
        self
    }

    /// The same, as the fault of this side.
    #[must_use]
    pub fn on(mut self, side: Side) -> Problem {
        self.side = Some(side);
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = String::from("cordboard: ");
        if !self.operand.is_empty() {
            line += &self.operand;
            line += ": ";
        }
        line += &self.text;
        if let Some(hint) = &self.hint {
            line += "; ";
            line += hint;
        }
        f.write_str(&one_line(&line))
    }
}

/// The names of files may hold anything; what is printed stays one line, and
/// does nothing to a terminal.
pub fn one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let escaped = text.chars().map(|c| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    });
    Cow::Owned(escaped.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_errno_of_an_error() {
        let failed = std::fs::File::open("/no/such").unwrap_err();
        assert_eq!(errno(&failed), Errno::ENOENT);
        assert_eq!(errno(&io::ErrorKind::WriteZero.into()), Errno::EIO);
    }

    #[test]
    fn one_line_with_operand_meaning_side_and_help() {
        let p = Problem::call("no\nsuch", Side::Source, Errno::ENOENT, Doing::Opening);
        let line = p.to_string();
        assert!(!line.contains('\n'));
        assert!(line.starts_with(
            "cordboard: no\\nsuch: No such file or directory (ENOENT) opening the source; "
        ));
    }
}
