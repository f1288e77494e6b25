//! The outcome of one file: what was moved, and the messages about it.

use std::fmt;

use cordboard::Report;

use crate::problem::Problem;
use crate::stages::HashLine;

/// A message about a file.
#[derive(Debug)]
pub enum Message {
    /// A transfer that has not succeeded.
    Report(Report),
    /// A problem.
    Problem(Problem),
    /// A problem whose cause was reported before.
    Repeated(Problem),
    /// The file was left out, since nothing more can be written.
    LeftOut,
    /// A line that does not affect the result.
    Line(String),
    /// An attribute that could not be copied.
    AttributeLost {
        /// The line to print.
        line: String,
        /// The reason, if other files are likely to have the same: they are
        /// counted, and one is reported.
        reason: Option<String>,
    },
    /// An owner or mode bits that were not kept. They are counted.
    Unkept,
    /// A hash.
    Hash {
        /// The line to print.
        line: HashLine,
        /// The source is a regular file, whose end no other process determines.
        of_file: bool,
    },
}

impl Message {
    /// Whether the file has failed.
    pub fn is_failure(&self) -> bool {
        match self {
            Message::Problem(problem) | Message::Repeated(problem) => !problem.is_stop(),
            _ => false,
        }
    }

    /// Whether the file was not started, or not completed.
    pub fn is_left_out(&self) -> bool {
        match self {
            Message::Problem(problem) => problem.is_stop(),
            message => matches!(message, Message::LeftOut),
        }
    }
}

impl From<String> for Message {
    fn from(line: String) -> Message {
        Message::Line(line)
    }
}

impl From<fmt::Arguments<'_>> for Message {
    fn from(line: fmt::Arguments<'_>) -> Message {
        Message::Line(line.to_string())
    }
}

/// The outcome of one file.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The report, if the transfer was tried.
    pub report: Option<Report>,
    /// Bytes that were read back and are identical.
    pub verified: Option<u64>,
    /// The messages in their order.
    pub messages: Vec<Message>,
}

impl Outcome {
    /// Adds a message.
    pub fn add(&mut self, message: impl Into<Message>) {
        self.messages.push(message.into());
    }
}
