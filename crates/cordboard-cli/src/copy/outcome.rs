//! The outcome of one file: what was moved, and the messages about it.

use std::fmt;

use cordboard::Report;

use crate::problem::Problem;
use crate::stages::HashLine;

/// Something to tell.
#[derive(Debug)]
pub enum Message {
    /// A transfer that did not go well.
    Report(Report),
    /// What went wrong.
    Problem(Problem),
    /// What went wrong for a reason that was told before.
    Repeated(Problem),
    /// It was left out, since nothing more can be written.
    LeftOut,
    /// A line that changes nothing about the outcome.
    Line(String),
    /// An attribute that a copy does without.
    AttributeLost {
        /// What is told of it.
        line: String,
        /// Why, where others are without it for the same reason: they are
        /// counted, and one is told.
        reason: Option<String>,
    },
    /// An owner, or bits of the mode, that a copy does without: counted.
    Unkept,
    /// A hash.
    Hash(HashLine),
}

impl Message {
    /// Whether what it is about has failed.
    pub fn is_failure(&self) -> bool {
        match self {
            Message::Problem(problem) | Message::Repeated(problem) => !problem.is_stop(),
            _ => false,
        }
    }

    /// Whether it was not begun, or not brought to its end.
    pub fn is_left(&self) -> bool {
        match self {
            Message::Problem(problem) => problem.is_stop(),
            messages => matches!(messages, Message::LeftOut),
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

impl From<HashLine> for Message {
    fn from(line: HashLine) -> Message {
        Message::Hash(line)
    }
}

/// What there is to tell of one file.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What was moved, if it was tried.
    pub report: Option<Report>,
    /// Bytes that were read back and found to be the same.
    pub verified: Option<u64>,
    /// The rest, in its order.
    pub messages: Vec<Message>,
}

impl Outcome {
    /// A line, after what there is to tell already.
    pub fn line(&mut self, line: impl Into<Message>) {
        self.messages.push(line.into());
    }
}
