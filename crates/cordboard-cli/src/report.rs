//! The account of a whole command: one transfer's report, or the sum of
//! several.

use cordboard::{Ended, Errno, Report, Side, StageReport};

use crate::output::one_line_json;
use crate::problem::Problem;
use crate::units;

/// A [`Report`] to which others are added. Of several transfers, `ended` is the
/// worst ending, the failure is the first, and `elapsed` is the sum until the
/// command sets it.
#[derive(Debug, Clone, PartialEq, Default, serde::Serialize)]
pub struct Account {
    /// The sum. For each stage its bytes and the first fault; a digest only of
    /// a single transfer, since each transfer has its own.
    #[serde(flatten)]
    pub total: Report,
    /// Bytes that were read back and are identical.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified: Option<u64>,
    /// The number of files, if they are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<Files>,
    /// Attributes that copies lack with `-p`: each extended attribute, the
    /// owner or group, and the special bits of the mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unkept: Option<u64>,
    /// The sinks of a fan-out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sinks: Vec<SinkLine>,
    /// The sources of a fan-in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceLine>,
    /// The buffer, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffered: Option<BufferLine>,
}

/// The account of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct BufferLine {
    /// The size of the buffer.
    pub size: u64,
    /// The highest level.
    pub most: u64,
    /// Bytes that have passed through the files of the buffer.
    pub stored: u64,
}

/// The account of one of several sources.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SourceLine {
    /// Its name on the command line.
    pub source: String,
    /// Bytes read from it.
    pub read: u64,
    /// Bytes of this source that the sink has accepted.
    pub written: u64,
    /// Bytes that were read from it and are lost.
    pub stranded: u64,
    /// The number of turns in which it gave bytes.
    pub turns: u64,
    /// The number of records that were divided, because they were too long.
    pub divided: u64,
    /// Why it gave no more bytes.
    pub ended: &'static str,
    /// The errno of a failure.
    pub errno: Option<String>,
    /// The paths by which its bytes reached the channel.
    pub path: Vec<&'static str>,
    /// The preferred paths that were not taken.
    pub declined: Vec<DeclinedLine>,
}

/// The account of one of several sinks.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SinkLine {
    /// Its name on the command line.
    pub sink: String,
    /// Bytes read for it.
    pub read: u64,
    /// Bytes that it has accepted.
    pub written: u64,
    /// Bytes dropped because it was slow.
    pub dropped: u64,
    /// Contiguous ranges of dropped bytes.
    pub gaps: u64,
    /// Bytes that were read for it and are lost.
    pub stranded: u64,
    /// Why it got no more bytes.
    pub ended: &'static str,
    /// The errno of a failure.
    pub errno: Option<String>,
    /// The paths by which the bytes reached the sink.
    pub path: Vec<&'static str>,
    /// The preferred paths that were not taken.
    pub declined: Vec<DeclinedLine>,
}

/// A path to a sink, or from a source, that was not taken.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct DeclinedLine {
    /// The path, or `tee`.
    pub path: &'static str,
    /// Why it was not taken.
    pub why: String,
}

impl DeclinedLine {
    /// Returns the paths that a transfer has not taken.
    pub fn of(report: &Report) -> impl Iterator<Item = DeclinedLine> {
        report.declined.iter().map(|declined| DeclinedLine {
            path: declined.path.name(),
            why: declined.why.to_string(),
        })
    }
}

/// Files and symlinks of a copy; of directories, those that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Files {
    /// Files that are complete.
    pub copied: u64,
    /// Files that have failed.
    pub failed: u64,
    /// The command ended before all files were started, or one of them
    /// completed.
    pub left_out: bool,
}

impl Files {
    /// No file was started.
    pub const NONE: Files = Files {
        copied: 0,
        failed: 0,
        left_out: true,
    };
}

impl std::fmt::Display for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [copied, failed] = [self.copied, self.failed].map(units::count);
        match (self.failed, self.left_out) {
            (0, true) => write!(f, "{copied} copied, the rest left out"),
            (_, true) => write!(f, "{copied} copied, {failed} failed, the rest left out"),
            (_, false) => write!(f, "{copied} copied, {failed} failed"),
        }
    }
}

impl Account {
    /// From one transfer.
    pub fn of(report: &Report) -> Account {
        let mut account = Account::default();
        account.add(report);
        account
    }

    /// Adds a transfer.
    pub fn add(&mut self, report: &Report) {
        let sum = &mut self.total;
        // The sum of the sizes of sparse files can exceed 2^64.
        sum.read = sum.read.saturating_add(report.read);
        sum.written = sum.written.saturating_add(report.written);
        sum.stranded = sum.stranded.saturating_add(report.stranded);
        sum.truncated = sum.truncated.saturating_add(report.truncated);
        sum.dropped += report.dropped;
        sum.elapsed = sum.elapsed.saturating_add(report.elapsed);
        self.add_stages(&report.stages);
        add_paths(&mut self.total, report);
        if report.ended == Ended::Error {
            self.fail(report.failed, report.errno);
        } else {
            self.end(report.ended);
        }
    }

    /// All transfers of one command have the same stages, or none, if the
    /// kernel copied.
    fn add_stages(&mut self, stages: &[StageReport]) {
        for (at, stage) in stages.iter().enumerate() {
            let sum = self.total.stages.get_mut(at);
            match sum.filter(|sum| sum.stage == stage.stage) {
                Some(sum) => {
                    sum.bytes_in = sum.bytes_in.saturating_add(stage.bytes_in);
                    sum.bytes_out = sum.bytes_out.saturating_add(stage.bytes_out);
                    sum.digest = None;
                    sum.fault = sum.fault.take().or_else(|| stage.fault.clone());
                }
                None => self.total.stages.push(stage.clone()),
            }
        }
    }

    /// Adds bytes that were read back and are identical.
    pub fn add_verified(&mut self, bytes: Option<u64>) {
        if let Some(bytes) = bytes {
            let sum = self.verified.get_or_insert(0);
            *sum = sum.saturating_add(bytes);
        }
    }

    /// Adds attributes that copies lack.
    pub fn add_unkept(&mut self, count: u64) {
        if count > 0 {
            *self.unkept.get_or_insert(0) += count;
        }
    }

    /// Adds a problem outside a transfer.
    pub fn problem(&mut self, problem: &Problem) {
        self.fail(problem.side, problem.errno);
    }

    /// Adds a result that could not be written.
    pub fn unwritten(&mut self, errno: Errno) {
        self.fail(None, Some(errno));
    }

    /// Sets the ending, unless a failure or an interrupt came before.
    pub fn end(&mut self, ended: Ended) {
        if !matches!(self.total.ended, Ended::Error | Ended::Cancelled) || ended == Ended::Cancelled
        {
            self.total.ended = ended;
        }
    }

    fn fail(&mut self, side: Option<Side>, errno: Option<Errno>) {
        // The first failure is reported.
        if self.total.errno.is_none() && self.total.failed.is_none() {
            (self.total.failed, self.total.errno) = (side, errno);
        }
        self.end(Ended::Error);
    }

    /// `copied 2.0 GiB in 1.2 s (1.7 GiB/s) by copy_file_range`.
    pub fn summary(&self, verb: &str) -> String {
        let seconds = self.total.elapsed.as_secs_f64();
        let mut line = format!(
            "{verb} {} in {}",
            units::bytes(self.total.written),
            units::time(self.total.elapsed)
        );
        if seconds > 0.0 {
            line += &format!(" ({})", units::rate(self.total.written as f64 / seconds));
        }
        if !self.total.path.is_empty() {
            line += " by ";
            line += &self.paths();
        }
        if self.verified.is_some() {
            line += ", verified";
        }
        line
    }

    /// The bytes written, for messages. Of several sinks, each has accepted another
    /// number of bytes, and has a line of its own if it lacks some.
    pub fn written(&self) -> String {
        match self.sinks.iter().map(|sink| sink.written).min() {
            Some(least) => format!("at least {least} written to each sink"),
            None => format!("{} written", self.total.written),
        }
    }

    /// The paths taken, for messages.
    pub fn paths(&self) -> String {
        let names: Vec<&str> = self.total.path.iter().map(|p| p.name()).collect();
        names.join(", ")
    }

    /// The JSON line, with its line feed.
    pub fn json(&self) -> String {
        let mut line = one_line_json(&serde_json::to_string(self).expect("plain data"));
        line.push('\n');
        line
    }
}

/// Adds the paths of a transfer, and those that declined.
pub fn add_paths(sum: &mut Report, report: &Report) {
    for path in &report.path {
        if !sum.path.contains(path) {
            sum.path.push(*path);
        }
    }
    for one in &report.by_path {
        match sum.by_path.iter_mut().find(|sum| sum.path == one.path) {
            Some(sum) => sum.bytes = sum.bytes.saturating_add(one.bytes),
            None => sum.by_path.push(one.clone()),
        }
    }
    for declined in &report.declined {
        if !sum.declined.contains(declined) {
            sum.declined.push(declined.clone());
        }
    }
}

/// Returns the report of transfers through which the bytes pass one after the other: the last
/// one's, with the paths of all.
pub fn joined<'a>(earlier: impl IntoIterator<Item = &'a Report>, last: &Report) -> Report {
    let mut report = last.clone();
    report.path.clear();
    report.by_path.clear();
    report.declined.clear();
    for transfer in earlier {
        report.truncated = report.truncated.saturating_add(transfer.truncated);
        add_paths(&mut report, transfer);
    }
    add_paths(&mut report, last);
    report
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Duration;

    use cordboard::{DataPath, Request, Switches, Transfer};

    use super::*;

    #[test]
    fn the_line_of_nothing() {
        let mut account = Account::default();
        account.problem(&Problem::call(
            "x",
            Side::Sink,
            Errno::ENOSPC,
            crate::problem::Action::Open,
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
        assert_eq!(account.total.failed, Some(Side::Source));
        assert_eq!(
            (account.total.errno, account.total.ended),
            (Some(Errno::ENOENT), Ended::Error)
        );
        account.end(Ended::Cancelled);
        account.end(Ended::Error);
        assert_eq!(account.total.ended, Ended::Cancelled);
    }

    #[test]
    fn sums_stay_at_the_most_there_is() {
        let mut report = Report::default();
        (report.read, report.written) = (u64::MAX / 2, u64::MAX / 2);
        (report.stranded, report.truncated) = (u64::MAX / 2, u64::MAX / 2);
        report.elapsed = Duration::MAX;
        let mut account = Account::default();
        for _ in 0..3 {
            account.add(&report);
            account.add_verified(Some(report.written));
        }
        let total = &account.total;
        assert_eq!((total.read, total.written), (u64::MAX, u64::MAX));
        assert_eq!((total.stranded, total.truncated), (u64::MAX, u64::MAX));
        assert_eq!(total.elapsed, Duration::MAX);
        assert_eq!(account.verified, Some(u64::MAX));
    }

    #[test]
    fn the_page_has_every_member() {
        let account = Account {
            verified: Some(1),
            files: Some(Files::NONE),
            unkept: Some(1),
            sinks: vec![SinkLine {
                sink: String::new(),
                read: 0,
                written: 0,
                dropped: 0,
                gaps: 0,
                stranded: 0,
                ended: "complete",
                errno: None,
                path: Vec::new(),
                declined: Vec::new(),
            }],
            sources: vec![SourceLine {
                source: String::new(),
                read: 0,
                written: 0,
                stranded: 0,
                turns: 0,
                divided: 0,
                ended: "eof",
                errno: None,
                path: Vec::new(),
                declined: Vec::new(),
            }],
            buffered: Some(BufferLine {
                size: 0,
                most: 0,
                stored: 0,
            }),
            ..Account::default()
        };
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md");
        let page = std::fs::read_to_string(page).unwrap();
        let line: serde_json::Value = serde_json::from_str(&account.json()).unwrap();
        let members = line.as_object().unwrap();
        let inner = ["files", "sinks", "sources", "buffered"].map(|name| {
            let value = &members[name];
            value.get(0).unwrap_or(value).as_object().unwrap()
        });
        for name in members
            .keys()
            .chain(inner.into_iter().flat_map(|one| one.keys()))
        {
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn joined_transfers_have_the_paths_of_all() {
        let file = testkit::file::file_with(b"abc");
        let null = std::fs::File::options()
            .write(true)
            .open("/dev/null")
            .unwrap();
        let request = Request {
            switches: Some(Switches::only(&[DataPath::ReadWrite])),
            ..Request::default()
        };
        let transfer = Transfer::new(file.as_fd(), null.as_fd(), request);
        let mut first = transfer.unwrap().run().report;
        assert!(!first.declined.is_empty());
        first.truncated = 1;
        let mut last = Report::default();
        (last.read, last.written, last.truncated) = (3, 2, 2);
        last.path = vec![DataPath::Splice];
        last.by_path = first.by_path.clone();
        last.by_path[0].path = DataPath::Splice;
        let both = joined([&first, &first], &last);
        assert_eq!(both.path, [DataPath::ReadWrite, DataPath::Splice]);
        assert_eq!(both.declined, first.declined);
        let bytes: Vec<_> = (both.by_path.iter())
            .map(|one| (one.path, one.bytes))
            .collect();
        assert_eq!(bytes, [(DataPath::ReadWrite, 6), (DataPath::Splice, 3)]);
        assert_eq!((both.read, both.written, both.truncated), (3, 2, 4));
    }

    #[test]
    fn summary() {
        let mut account = Account::default();
        account.total.written = 2 << 30;
        account.total.elapsed = Duration::from_millis(1200);
        account.total.path = vec![DataPath::CopyFileRange];
        assert_eq!(
            account.summary("copied"),
            "copied 2.0 GiB in 1.2 s (1.7 GiB/s) by copy_file_range"
        );
    }
}
