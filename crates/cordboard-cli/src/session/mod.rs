//! One run of the command: its transfers, its account and its last lines.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Display;
use std::io::IsTerminal;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use cordboard::{Control, Ended, Report, Request, Schedule, Size, Stage, Transfer, fstat};
use rustix::fs::FileType;
use rustix::stdio::stderr;

use crate::endpoint;
use crate::exit::Ending;
use crate::files::kind;
use crate::flags::{Common, Label, ProgressMode};
use crate::output::{print_line, print_result, stops};
use crate::problem::{
    Left, Problem, Refused, changes_bytes, dropped_line, left_by_idle_limit, lost_by_idle_limit,
    past_largest_offset, result_of,
};
use crate::progress::{Watch, is_on};
use crate::report::{Account, BufferLine, Files, SinkLine, SourceLine};
use crate::stages::{HashLine, Staging, TransferExtras, cut_by_size};
use crate::steering::Steering;
use crate::{signals, units};

mod progress;
mod warnings;

/// Runs longer than this print a summary on a terminal.
const QUICK: Duration = Duration::from_millis(300);

/// The verb of `cat`, which prints a summary only on request.
pub const CAT: &str = "written";

/// A transfer that has ended, or was refused: its report, if there is one, and
/// the result.
pub type Moved = (Option<Report>, Result<(), Problem>);

/// One run of the command.
pub struct Session {
    verb: &'static str,
    json: bool,
    staging: Staging,
    /// Progress was requested: it is shown everywhere, with the totals at the end.
    requested: bool,
    usage: bool,
    /// There may be several files to copy.
    many: bool,
    transfers: u64,
    /// The reader of standard output has closed it.
    reader_left: bool,
    /// An idle limit has lost bytes, or left some in the source, which was reported.
    lost: bool,
    /// Hashes that are held back until the end: of bytes that another process
    /// writes, and all after them. A signal to stop may have ended that process
    /// too.
    hashes: Vec<HashLine>,
    control: &'static Control,
    steering: Option<Steering>,
    watch: Watch,
    account: Account,
    /// Reasons for missing attributes, and the number of attributes that were
    /// not reported because their reason was.
    reasons: BTreeSet<String>,
    unreported: u64,
}

impl Session {
    /// Installs the signal handlers and sets up progress.
    pub fn begin(common: &Common, verb: &'static str) -> Session {
        // What a signal handler prints during a name lookup.
        let zero = if common.json {
            let mut account = Account::default();
            account.end(Ended::Cancelled);
            account.json().into_bytes()
        } else {
            b"cordboard: interrupted: no bytes were moved\n".to_vec()
        };
        let control = signals::install(zero);
        common.pacing.apply(control);
        Session {
            verb,
            json: common.json,
            staging: Staging {
                stages: common.stages.clone(),
                verify: false,
            },
            requested: matches!(common.progress, ProgressMode::Always | ProgressMode::Lines),
            usage: false,
            many: false,
            transfers: 0,
            reader_left: false,
            lost: false,
            hashes: Vec::new(),
            control,
            steering: None,
            watch: Watch::new(progress::style(common.progress, verb)),
            account: Account::default(),
            reasons: BTreeSet::new(),
            unreported: 0,
        }
    }

    /// Opens the control socket of `--control`. Transfers then do not sleep inside
    /// calls, from which only a signal could wake them.
    /// It is listed for `cordboard top` by the label.
    pub fn steer(&mut self, common: &Common, label: &Label) -> Result<(), Problem> {
        let Some(path) = &common.control else {
            return Ok(());
        };
        self.control = signals::polled();
        let block = (common.paths.block).map_or(Schedule::BLOCK, |block| block.get() as u64);
        let steering = Steering::begin(path, (self.control, block), label)?;
        self.watch.report_to(Arc::clone(steering.live()));
        self.steering = Some(steering);
        Ok(())
    }

    /// Moves the bytes of one request and adds them to the account. `total` is
    /// their number, if it is known. `named` is the name that is printed with a
    /// hash. `stages`: those that were built before.
    pub fn transfer(
        &mut self,
        named: &OsStr,
        (source, source_name): (BorrowedFd<'_>, &dyn Display),
        (sink, sink_name): (BorrowedFd<'_>, &dyn Display),
        request: Request,
        (total, stages): (Option<u64>, Option<Vec<Stage>>),
    ) -> Result<Report, Problem> {
        let source = (source, source_name);
        if request.size == Size::Eof {
            endpoint::check_append_to_itself(source, (sink, sink_name))?;
        }
        endpoint::check_kept_alias(source, (sink, sink_name), &request)?;
        let extras = TransferExtras {
            built: stages,
            ..TransferExtras::default()
        };
        let (report, done) = self.run_transfer(source, (sink, sink_name), request, (total, extras));
        let Some(report) = report else {
            return Err(done.expect_err("a transfer without a report has failed"));
        };
        self.add(&report);
        self.transfers += 1;
        if let Some(line) = dropped_line(&report, sink_name) {
            self.print(&line);
        }
        done.map_err(|problem| problem.at(sink))?;
        // The same signal may have ended the source, if it went to a whole
        // pipeline.
        signals::check_stop()?;
        let of_file = is_file(source.0);
        let left = || match total.filter(|_| of_file) {
            Some(total) => Left::Bytes(total.saturating_sub(report.read)),
            None => Left::Ready(rustix::io::ioctl_fionread(source.0).unwrap_or(0)),
        };
        if self.report_idle_loss(&report, sink_name)
            || self.report_incomplete(left_by_idle_limit(&report, left, sink_name))
        {
            return Ok(report);
        }
        for line in self.staging.hash_lines(&report, named) {
            self.hash(line, of_file);
        }
        Ok(report)
    }

    /// Moves the bytes of one request, with extra stages, and reports nothing.
    pub fn run_transfer(
        &mut self,
        (source, source_name): (BorrowedFd<'_>, &dyn Display),
        (sink, sink_name): (BorrowedFd<'_>, &dyn Display),
        request: Request,
        (total, extras): (Option<u64>, TransferExtras),
    ) -> Moved {
        let asked = request.clone();
        let packed = self.staging.packed_size(source, &request);
        let transfer = Transfer::new(source, sink, request);
        let staged = (self.staging).onto(transfer, extras, source_name, sink_name);
        let transfer = match staged {
            Ok(transfer) => transfer,
            Err(refused) => return refused.into_moved(),
        };
        // The number of bytes written is unknown if stages change them.
        let total = total.filter(|_| !self.staging.stages.transform());
        // Lines of progress would mix with what is typed or written there.
        if self.watch.draws() && !self.requested && (is_on(source) || is_on(sink)) {
            self.watch.mute();
        }
        self.watch.begin(total);
        let transfer = transfer.control(self.control).observe(&mut self.watch);
        let report = transfer.run().report;
        let done = result_of(&report, (source, source_name), (sink, sink_name));
        let first = (asked.source_offset, asked.sink_offset);
        let hint = cut_by_size(&report, &asked, packed);
        let hint = hint.or_else(|| past_largest_offset(&report, first));
        let done = done.map_err(|problem| match hint {
            Some(help) => problem.help(help),
            None => problem,
        });
        (Some(report), done)
    }

    /// Has transfers verified: if their bytes pass through user space, the last
    /// stage is an xxh3 of what is written.
    pub fn verify(&mut self, verify: bool) {
        self.staging.verify = verify;
    }

    /// The stages of each transfer.
    pub fn staging(&self) -> &Staging {
        &self.staging
    }

    /// The handle that cancels the running transfer.
    pub fn control(&self) -> &'static Control {
        self.control
    }

    /// Checks whether a request would be accepted. Moves nothing.
    pub fn check(
        &mut self,
        (source, source_name): (BorrowedFd<'_>, &dyn Display),
        (sink, sink_name): (BorrowedFd<'_>, &dyn Display),
        request: &Request,
    ) -> Result<(), Problem> {
        let transfer = Transfer::new(source, sink, request.clone());
        let extras = TransferExtras::default();
        let checked = (self.staging).onto(transfer, extras, source_name, sink_name);
        checked.map(drop).map_err(|refused| self.refused(refused))
    }

    /// Builds the stages of a request that replaces the contents of its sink. Checks all that
    /// can be checked before the sink is emptied. Moves nothing.
    pub fn prepare(
        &mut self,
        (source, source_name): (BorrowedFd<'_>, &dyn Display),
        (sink, sink_name): (BorrowedFd<'_>, &dyn Display),
        request: &Request,
    ) -> Result<Vec<Stage>, Problem> {
        let ends = ((source, source_name), (sink, sink_name));
        let prepared = self.staging.prepare(ends.0, ends.1, request);
        prepared.map_err(|refused| self.refused(refused))
    }

    fn refused(&mut self, refused: Refused) -> Problem {
        let Refused { report, problem } = refused;
        report.iter().for_each(|report| self.account.add(report));
        *problem
    }

    /// Adds transfers that succeeded.
    pub fn merge(&mut self, account: &Account, transfers: u64) {
        self.transfers += transfers;
        self.account.add_verified(account.verified);
        self.unkept(account.unkept.unwrap_or(0));
        if account.total != Account::default().total {
            self.add(&account.total);
            // The order of the paths of several threads has no meaning.
            self.account.total.path.sort_unstable();
        }
    }

    /// Sets the accounts of several sinks.
    pub fn set_sinks(&mut self, sinks: Vec<SinkLine>) {
        self.account.sinks = sinks;
    }

    /// Sets the account of a buffer.
    pub fn set_buffered(&mut self, buffered: BufferLine) {
        self.account.buffered = Some(buffered);
    }

    /// Sets the accounts of several sources.
    pub fn set_sources(&mut self, sources: Vec<SourceLine>) {
        self.account.sources = sources;
    }

    /// Reports bytes that an idle limit has lost. Returns whether there are any.
    pub fn report_idle_loss(&mut self, report: &Report, sink: &dyn Display) -> bool {
        self.report_incomplete(lost_by_idle_limit(report, sink))
    }

    fn report_incomplete(&mut self, line: Option<String>) -> bool {
        self.lost |= line.is_some();
        line.iter().for_each(|line| self.print(line));
        line.is_some()
    }

    /// Adds one transfer.
    pub fn add(&mut self, report: &Report) {
        self.account.add(report);
        signals::set_written(self.account.total.written);
    }

    /// Adds time to the last transfer, which took longer than its report says.
    pub fn add_wait(&mut self, time: Duration) {
        let elapsed = &mut self.account.total.elapsed;
        *elapsed = elapsed.saturating_add(time);
    }

    /// Sets the ending, unless the transfer has failed.
    pub fn end(&mut self, ended: Ended) {
        self.account.end(ended);
    }

    /// Reports a problem, unless it is that the reader of standard output has closed it. The
    /// command continues if possible.
    pub fn problem(&mut self, problem: &Problem) {
        self.fail(problem);
        let quiet = problem.is_closed_reader();
        self.reader_left |= quiet;
        if !quiet && !problem.is_stop() {
            self.print(problem);
        }
    }

    /// Counts a problem that was reported before.
    pub fn fail(&mut self, problem: &Problem) {
        if problem.is_stop() {
            self.account.end(Ended::Cancelled);
            self.left_out();
            return;
        }
        self.usage |= problem.usage;
        self.account.problem(problem);
    }

    /// Counts files from now on, of which there may be `many`.
    pub fn count_files(&mut self, many: bool) {
        self.many = many;
        self.account.files.get_or_insert_default();
    }

    /// Reports the problem because of which no file was copied. The totals are
    /// omitted, unless the problem is a stop.
    pub fn none_copied(&mut self, problem: &Problem) {
        self.many &= problem.is_stop();
        self.left_out();
        self.problem(problem);
    }

    /// Adds to the number of files that were copied, and that failed.
    pub fn count(&mut self, copied: u64, failed: u64) {
        if let Some(files) = &mut self.account.files {
            files.copied += copied;
            files.failed += failed;
        }
    }

    /// Records that some files were left out.
    pub fn left_out(&mut self) {
        if let Some(files) = &mut self.account.files {
            files.left_out = true;
        }
    }

    /// Prints a hash of a file, or keeps another one until the end: the same signal may end the
    /// command and the process that writes the source. Lines stay in their order.
    pub fn hash(&mut self, line: HashLine, of_file: bool) {
        match of_file && self.hashes.is_empty() {
            true => self.print_hash(&line),
            false => self.hashes.push(line),
        }
    }

    fn print_hash(&mut self, line: &HashLine) {
        self.watch.clear();
        let terminal = std::io::stderr().is_terminal();
        if let Err(errno) = print_result(&line.bytes(terminal)) {
            self.account.unwritten(errno);
        }
    }

    /// Whether a signal to stop has arrived. The ending is cancelled then.
    pub fn stopped(&mut self) -> bool {
        let stopped = signals::stop().is_some();
        if stopped {
            self.account.end(Ended::Cancelled);
        }
        stopped
    }

    /// The account so far.
    #[cfg(test)]
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// The number of bytes read so far.
    pub fn read(&self) -> u64 {
        self.account.total.read
    }

    /// Prints the last lines and returns the exit status. A signal to stop that
    /// arrived before makes the ending a cancelled one, whatever was done by
    /// then, and hashes of possibly incomplete data are not printed. A later
    /// signal changes nothing.
    pub fn finish(mut self) -> u8 {
        match signals::stop_so_far() {
            Some(_) => self.account.end(Ended::Cancelled),
            None => std::mem::take(&mut self.hashes)
                .iter()
                .for_each(|line| self.print_hash(line)),
        }
        self.watch.clear();
        if self.unreported > 0 {
            let unreported = self.unreported;
            self.print(&format_args!(
                "cordboard: warning: {unreported} more attributes were not copied, for the reasons above"
            ));
        }
        if self.transfers > 1 || self.account.files.is_some() {
            // Files are also found, opened, synced and verified.
            self.account.total.elapsed = self.watch.wall();
        }
        let account = &self.account;
        if let Some(steering) = &self.steering {
            steering.end(&account.total);
        }
        let stopped = signals::stop().filter(|_| account.total.ended == Ended::Cancelled);
        if let Some(signal) = stopped {
            let stranded = match account.total.stranded {
                0 => String::new(),
                n if changes_bytes(&account.total) => {
                    let produced = units::number_of(n, "byte");
                    format!(", {produced} produced and not written")
                }
                n => format!(", {} read and not written", units::number_of(n, "byte")),
            };
            let by = match account.paths() {
                paths if paths.is_empty() => String::new(),
                paths => format!(", by {paths}"),
            };
            print_line(format_args!(
                "cordboard: interrupted by {}: {} read, {}{stranded}, in {}{by}",
                signals::name(signal),
                units::number_of(account.total.read, "byte"),
                account.written(),
                units::time(account.total.elapsed),
            ));
        } else if account.total.ended != Ended::Error
            && !self.lost
            && self.watch.draws()
            && (self.requested
                || (account.total.elapsed > QUICK && self.verb != CAT && !stops(stderr())))
        {
            print_line(account.summary(self.verb));
        }
        let some_failed = |files: &Files| files.failed > 0 && files.copied + files.failed > 1;
        let sum = account.files.filter(|_| self.many);
        if let Some(files) = sum.filter(|files| files.left_out || some_failed(files)) {
            print_line(format_args!("cordboard: {files}"));
        }
        let unwritten = self.json && print_result(account.json().as_bytes()).is_err();
        let ending = Ending {
            stopped,
            reader_left: self.reader_left,
            usage: self.usage,
            failed: unwritten || self.lost || account.total.ended == Ended::Error,
        };
        ending.status()
    }
}

/// Whether the source is a regular file, whose end no other process determines.
fn is_file(source: BorrowedFd<'_>) -> bool {
    fstat(source).is_ok_and(|stat| kind(&stat) == FileType::RegularFile)
}
