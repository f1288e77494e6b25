//! The log: a line for each transfer, each change and each failed login.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

use super::time::{Utc, now};
use crate::output::one_line;

/// The output for log lines.
pub struct Log(Mutex<Option<File>>);

impl Log {
    /// Opens a log that appends to this file, or writes to standard error.
    pub fn open(path: Option<&Path>) -> std::io::Result<Log> {
        let file = match path {
            Some(path) => Some(File::options().append(true).create(true).open(path)?),
            None => None,
        };
        Ok(Log(Mutex::new(file)))
    }

    /// Writes a line. Control characters in names are escaped. Ignores an error: there is no
    /// other output to report it to.
    pub fn line(&self, text: &str) {
        let line = format!("{} {}\n", Utc::of(now()).rfc3339(), one_line(text));
        let Ok(mut file) = self.0.lock() else {
            return;
        };
        let _ = match &mut *file {
            Some(file) => file.write_all(line.as_bytes()),
            None => std::io::stderr().write_all(line.as_bytes()),
        };
    }
}
