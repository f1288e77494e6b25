//! One run of the command: its transfers, its account, its last lines.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use cordboard::{Control, Ended, Errno, Failure, PathName, Report, Request, Side, Stage, Transfer};

use crate::failure::{failed, operand, refused};
use crate::flags::{Common, Stages, When};
use crate::hints::Doing;
use crate::problem::{Problem, one_line};
use crate::progress::Watch;
use crate::report::Account;
use crate::{signals, stages, units};

/// Runs longer than this get a summary on a terminal.
const QUICK: Duration = Duration::from_millis(300);

/// What `cat` does; it has no summary of its own accord.
pub const CAT: &str = "written";

/// One run of the command.
pub struct Session {
    verb: &'static str,
    json: bool,
    stages: Stages,
    verify: bool,
    always: bool,
    usage: bool,
    transfers: u64,
    control: &'static Control,
    watch: Watch,
    account: Account,
}

impl Session {
    /// Ready to move bytes: signals handled, progress as asked for.
    pub fn begin(common: &Common, verb: &'static str) -> Result<Session, Problem> {
        // What a signal prints while a name is looked up.
        let zero = if common.json {
            let mut account = Account::default();
            account.end(Ended::Cancelled);
            account.json().into_bytes()
        } else {
            b"cordboard: interrupted: nothing was moved\n".to_vec()
        };
        let control = signals::install(zero)
            .map_err(|errno| Problem::call("", Side::Source, errno, Doing::Opening))?;
        let drawing = match common.progress {
            When::Auto => std::io::stderr().is_terminal(),
            When::Always => true,
            When::Never => false,
        };
        Ok(Session {
            verb,
            json: common.json,
            stages: common.stages.clone(),
            verify: false,
            always: common.progress == When::Always,
            usage: false,
            transfers: 0,
            control,
            watch: Watch::new(drawing),
            account: Account::default(),
        })
    }

    /// Moves the bytes of one request; accounts for them. `total` is how many
    /// there will be, where known.
    pub fn transfer(
        &mut self,
        (source, source_name): (BorrowedFd<'_>, &dyn Display),
        (sink, sink_name): (BorrowedFd<'_>, &dyn Display),
        request: Request,
        total: Option<u64>,
    ) -> Result<Report, Problem> {
        let name = |side| operand(side, source_name, sink_name);
        let transfer = match self.staged(source, sink, request)? {
            Ok(transfer) => transfer,
            Err(failure) => {
                self.account.add(&failure.report);
                return Err(refused(name(failure.report.failed), &failure));
            }
        };
        // How many bytes will be written is not known where they change.
        let total = total.filter(|_| !self.stages.transform());
        // Lines of progress among what is written would spoil both.
        if self.watch.draws() && !self.always && rustix::termios::isatty(sink) {
            self.watch.mute();
        }
        self.transfers += 1;
        self.watch.begin(total);
        let transfer = transfer.control(self.control).observe(&mut self.watch);
        let report = transfer.run().report;
        self.account.add(&report);
        if !matches!(report.ended, Ended::Error | Ended::Cancelled) {
            for line in stages::sums(&self.stages, &report, &source_name.to_string()) {
                self.say(&line);
            }
        }
        match report.ended {
            Ended::Error => Err(failed(name(report.failed), &report)),
            Ended::Cancelled => Err(Problem::interrupted()),
            _ => Ok(report),
        }
    }

    /// A transfer with its stages in it.
    fn staged<'a>(
        &self,
        source: BorrowedFd<'a>,
        sink: BorrowedFd<'a>,
        request: Request,
    ) -> Result<Result<Transfer<'a>, Failure>, Problem> {
        let mut all = stages::build(&self.stages)?;
        let transfer = match Transfer::new(source, sink, request) {
            Ok(transfer) => transfer,
            Err(failure) => return Ok(Err(failure)),
        };
        let first = transfer.route().choices[0].path;
        if self.verify && (self.stages.any() || first == PathName::ReadWrite) {
            // It costs next to nothing, and the source is not read twice.
            all.push(Stage::xxh3());
        }
        Ok(all.into_iter().try_fold(transfer, Transfer::stage))
    }

    /// Transfers will be verified: where their bytes pass through user space,
    /// the last stage is to be an xxh3 of what is written.
    pub fn verify(&mut self, verify: bool) {
        self.verify = verify;
    }

    /// What is written is not what is read.
    pub fn transforms(&self) -> bool {
        self.stages.transform()
    }

    /// Adds bytes that were read back and found to be the same.
    pub fn verified(&mut self, bytes: u64) {
        *self.account.verified.get_or_insert(0) += bytes;
    }

    /// The handle that ends whatever is running.
    pub fn control(&self) -> &'static Control {
        self.control
    }

    /// Whether a request would be taken up; nothing moves.
    pub fn check(
        &mut self,
        (source, source_name): (BorrowedFd<'_>, &dyn Display),
        (sink, sink_name): (BorrowedFd<'_>, &dyn Display),
        request: &Request,
    ) -> Result<(), Problem> {
        match self.staged(source, sink, request.clone())? {
            Ok(_) => Ok(()),
            Err(failure) => {
                self.account.add(&failure.report);
                let operand = operand(failure.report.failed, source_name, sink_name);
                Err(refused(operand, &failure))
            }
        }
    }

    /// Tells of a problem; the command goes on if it can.
    pub fn problem(&mut self, problem: &Problem) {
        if problem.errno == Some(Errno::EINTR) && signals::stop().is_some() {
            self.account.end(Ended::Cancelled);
            return;
        }
        self.usage |= problem.usage;
        self.account.problem(problem);
        self.say(problem);
    }

    /// A line on standard error that changes nothing about the outcome.
    pub fn say(&mut self, line: &dyn Display) {
        self.watch.clear();
        let line = line.to_string();
        let _ = writeln!(std::io::stderr().lock(), "{}", one_line(&line));
    }

    /// Whether we were asked to stop.
    pub fn stopped(&mut self) -> bool {
        let stopped = signals::stop().is_some();
        if stopped {
            self.account.end(Ended::Cancelled);
        }
        stopped
    }

    /// Bytes read so far, in all.
    pub fn read(&self) -> u64 {
        self.account.total.read
    }

    /// Bytes written so far, in all.
    pub fn written(&self) -> u64 {
        self.account.total.written
    }

    /// The last lines, and the exit status.
    pub fn finish(mut self) -> u8 {
        self.watch.clear();
        if self.transfers > 1 {
            // Opening and closing so many files takes time too.
            self.account.total.elapsed = self.watch.wall();
        }
        let account = &self.account;
        let stopped = signals::stop().filter(|_| account.total.ended == Ended::Cancelled);
        if let Some(signal) = stopped {
            let stranded = match account.total.stranded {
                0 => String::new(),
                n => format!(", {n} bytes read and not passed on"),
            };
            let by = match account.paths() {
                paths if paths.is_empty() => String::new(),
                paths => format!(", by {paths}"),
            };
            let _ = writeln!(
                std::io::stderr().lock(),
                "cordboard: interrupted by {}: {} bytes read, {} written{stranded}, in {}{by}",
                signals::name(signal),
                account.total.read,
                account.total.written,
                units::time(account.total.elapsed),
            );
        } else if account.total.ended != Ended::Error
            && self.watch.draws()
            && (self.always || (account.total.elapsed > QUICK && self.verb != CAT))
        {
            let _ = writeln!(std::io::stderr().lock(), "{}", account.summary(self.verb));
        }
        if self.json {
            let _ = std::io::stderr()
                .lock()
                .write_all(account.json().as_bytes());
        }
        match stopped {
            Some(signal) => u8::try_from(128 + signal).unwrap_or(130),
            None if self.usage => 2,
            None => u8::from(account.total.ended == Ended::Error),
        }
    }
}
