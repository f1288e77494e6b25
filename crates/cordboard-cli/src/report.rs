//! The account of a whole command: one transfer's report, or the sum of many.

use std::time::Duration;

use cordboard::route::Declined;
use cordboard::{Ended, Errno, PathName, Report, Side};
use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::problem::Problem;
use crate::units;

/// As [`Report`], and in JSON the same line.
#[derive(Debug, Clone, PartialEq)]
pub struct Account {
    /// Bytes taken from sources.
    pub read: u64,
    /// Bytes that sinks accepted.
    pub written: u64,
    /// Bytes taken and neither accepted nor put back.
    pub stranded: u64,
    /// Why it ended; of many transfers, the worst.
    pub ended: Ended,
    /// The side of the first failure.
    pub failed: Option<Side>,
    /// The errno of the first failure.
    pub errno: Option<Errno>,
    /// The paths that carried bytes.
    pub path: Vec<PathName>,
    /// The paths that did not, and why.
    pub declined: Vec<Declined>,
    /// Datagrams that were cut.
    pub truncated: u64,
    /// The time of a transfer; of many, from the first to the end.
    pub elapsed: Duration,
}

impl Default for Account {
    fn default() -> Account {
        Account {
            read: 0,
            written: 0,
            stranded: 0,
            ended: Ended::Eof,
            failed: None,
            errno: None,
            path: Vec::new(),
            declined: Vec::new(),
            truncated: 0,
            elapsed: Duration::ZERO,
        }
    }
}

impl Account {
    /// Adds a transfer.
    pub fn add(&mut self, report: &Report) {
        self.read += report.read;
        self.written += report.written;
        self.stranded += report.stranded;
        self.truncated += report.truncated;
        self.elapsed += report.elapsed;
        for path in &report.path {
            if !self.path.contains(path) {
                self.path.push(*path);
            }
        }
        for declined in &report.declined {
            if !self.declined.contains(declined) {
                self.declined.push(declined.clone());
            }
        }
        if report.ended == Ended::Error {
            self.fail(report.failed, report.errno);
        } else {
            self.end(report.ended);
        }
    }

    /// Adds what went wrong outside a transfer.
    pub fn problem(&mut self, problem: &Problem) {
        self.fail(problem.side, problem.errno);
    }

    /// Ends so, unless a failure or an interrupt came before.
    pub fn end(&mut self, ended: Ended) {
        if !matches!(self.ended, Ended::Error | Ended::Cancelled) || ended == Ended::Cancelled {
            self.ended = ended;
        }
    }

    fn fail(&mut self, side: Option<Side>, errno: Option<Errno>) {
        // The first failure is the one that is told.
        if self.errno.is_none() && self.failed.is_none() {
            (self.failed, self.errno) = (side, errno);
        }
        self.end(Ended::Error);
    }

    /// `copied 2.0 GiB in 1.2 s (1.7 GiB/s) by copy_file_range`.
    pub fn summary(&self, verb: &str) -> String {
        let seconds = self.elapsed.as_secs_f64();
        let mut line = format!(
            "{verb} {} in {}",
            units::bytes(self.written),
            units::time(self.elapsed)
        );
        if seconds > 0.0 {
            line += &format!(" ({})", units::rate(self.written as f64 / seconds));
        }
        if !self.path.is_empty() {
            line += " by ";
            line += &self.paths();
        }
        line
    }

    /// The paths taken, for people.
    pub fn paths(&self) -> String {
        let names: Vec<&str> = self.path.iter().map(|p| p.name()).collect();
        names.join(", ")
    }

    /// The JSON line, with its line feed.
    pub fn json(&self) -> String {
        let mut line = serde_json::to_string(self).expect("plain data");
        line.push('\n');
        line
    }
}

impl Serialize for Account {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("Report", 10)?;
        out.serialize_field("read", &self.read)?;
        out.serialize_field("written", &self.written)?;
        out.serialize_field("stranded", &self.stranded)?;
        out.serialize_field("ended", self.ended.name())?;
        out.serialize_field("failed", &self.failed.map(Side::name))?;
        let errno = self
            .errno
            .map(|e| e.name().map_or_else(|| e.raw().to_string(), str::to_owned));
        out.serialize_field("errno", &errno)?;
        let path: Vec<&str> = self.path.iter().map(|p| p.name()).collect();
        out.serialize_field("path", &path)?;
        out.serialize_field("declined", &self.declined)?;
        if self.truncated > 0 {
            out.serialize_field("truncated", &self.truncated)?;
        }
        out.serialize_field("seconds", &self.elapsed.as_secs_f64())?;
        out.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_nothing() {
        let mut account = Account::default();
        account.problem(&Problem::call(
            "x",
            Side::Sink,
            Errno::ENOSPC,
            crate::hints::Doing::Opening,
        ));
        assert_eq!(
            account.json(),
            "{\"read\":0,\"written\":0,\"stranded\":0,\"ended\":\"error\",\"failed\":\"sink\",\
             \"errno\":\"ENOSPC\",\"path\":[],\"declined\":[],\"seconds\":0.0}\n"
        );
    }

    #[test]
    fn the_first_failure_is_told_and_an_interrupt_outranks() {
        let mut account = Account::default();
        account.fail(Some(Side::Source), Some(Errno::ENOENT));
        account.fail(Some(Side::Sink), Some(Errno::ENOSPC));
        account.end(Ended::Eof);
        assert_eq!(account.failed, Some(Side::Source));
        assert_eq!(
            (account.errno, account.ended),
            (Some(Errno::ENOENT), Ended::Error)
        );
        account.end(Ended::Cancelled);
        account.end(Ended::Error);
        assert_eq!(account.ended, Ended::Cancelled);
    }

    #[test]
    fn summary() {
        let account = Account {
            written: 2 << 30,
            elapsed: Duration::from_millis(1200),
            path: vec![PathName::CopyFileRange],
            ..Account::default()
        };
        assert_eq!(
            account.summary("copied"),
            "copied 2.0 GiB in 1.2 s (1.7 GiB/s) by copy_file_range"
        );
    }
}
