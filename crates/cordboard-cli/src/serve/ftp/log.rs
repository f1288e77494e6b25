//! The log: a line for each transfer, each change and each failed login.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

use super::time::{Utc, now};
use crate::output::{errno_of, one_line, print_line};
use crate::problem::Problem;

/// Escapes the spaces of a name, which would otherwise be several fields of the line.
pub fn field(name: &str) -> String {
    name.replace('\\', "\\\\").replace(' ', "\\x20")
}

/// The output for log lines.
pub struct Log(Mutex<Output>);

enum Output {
    StandardError,
    File {
        file: File,
        shown: String,
        /// The last line was lost.
        is_losing: bool,
    },
}

impl Log {
    /// Opens a log that appends to this file, or writes to standard error.
    pub fn open(path: Option<&Path>) -> std::io::Result<Log> {
        let output = match path {
            Some(path) => Output::File {
                file: File::options().append(true).create(true).open(path)?,
                shown: path.display().to_string(),
                is_losing: false,
            },
            None => Output::StandardError,
        };
        Ok(Log(Mutex::new(output)))
    }

    /// Writes a line. Control characters in names are escaped. If the line cannot be written
    /// to the file, and the line before it could be, standard error says so.
    pub fn line(&self, text: &str) {
        let line = format!("{} {}\n", Utc::of(now()).rfc3339(), one_line(text));
        if let Some(problem) = self.write(line.as_bytes()) {
            print_line(problem);
        }
    }

    fn write(&self, line: &[u8]) -> Option<Problem> {
        match &mut *self.0.lock().ok()? {
            Output::StandardError => {
                // There is no other output to report an error to.
                let _ = std::io::stderr().write_all(line);
                None
            }
            Output::File {
                file,
                shown,
                is_losing,
            } => {
                let error = file.write_all(line).err();
                let was_losing = std::mem::replace(is_losing, error.is_some());
                let errno = errno_of(&error.filter(|_| !was_losing)?);
                let text = format!("{errno} writing the log; lines are lost until it succeeds");
                Some(Problem::unsided(shown.as_str(), errno, text))
            }
        }
    }
}
