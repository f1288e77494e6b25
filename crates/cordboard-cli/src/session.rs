//! One run of the command: its transfers, its account, its last lines.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use cordboard::{
    Control, Ended, Errno, Failure, Refusal, Report, Request, Side, Size, Sparse, Switches,
    Transfer,
};

use crate::flags::{Common, Paths, Range, When};
use crate::hints::{Doing, hint};
use crate::problem::Problem;
use crate::progress::Watch;
use crate::report::Account;
use crate::{signals, units};

/// Runs longer than this get a summary on a terminal.
const QUICK: Duration = Duration::from_millis(300);

/// One run of the command.
pub struct Session {
    verb: &'static str,
    json: bool,
    always: bool,
    usage: bool,
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
            always: common.progress == When::Always,
            usage: false,
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
        let transfer = match Transfer::new(source, sink, request) {
            Ok(transfer) => transfer,
            Err(failure) => {
                self.account.add(&failure.report);
                return Err(refused(name(failure.report.failed), &failure));
            }
        };
        self.watch.begin(total);
        let transfer = transfer.control(self.control).observe(&mut self.watch);
        let report = transfer.run().report;
        self.account.add(&report);
        match report.ended {
            Ended::Error => Err(failed(name(report.failed), &report)),
            Ended::Cancelled => Err(Problem::interrupted()),
            _ => Ok(report),
        }
    }

    /// Whether a request would be taken up; nothing moves.
    pub fn check(
        &mut self,
        (source, source_name): (BorrowedFd<'_>, &dyn Display),
        (sink, sink_name): (BorrowedFd<'_>, &dyn Display),
        request: &Request,
    ) -> Result<(), Problem> {
        match Transfer::new(source, sink, request.clone()) {
            Ok(_) => Ok(()),
            Err(failure) => {
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
        let _ = writeln!(std::io::stderr().lock(), "{line}");
    }

    /// Whether we were asked to stop.
    pub fn stopped(&mut self) -> bool {
        let stopped = signals::stop().is_some();
        if stopped {
            self.account.end(Ended::Cancelled);
        }
        stopped
    }

    /// Bytes written so far, in all.
    pub fn written(&self) -> u64 {
        self.account.written
    }

    /// The last lines, and the exit status.
    pub fn finish(mut self) -> u8 {
        self.watch.clear();
        let account = &self.account;
        let stopped = signals::stop().filter(|_| account.ended == Ended::Cancelled);
        if let Some(signal) = stopped {
            let stranded = match account.stranded {
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
                account.read,
                account.written,
                units::time(account.elapsed),
            );
        } else if account.ended != Ended::Error
            && self.watch.draws()
            && (self.always || account.elapsed > QUICK)
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
            None => u8::from(account.ended == Ended::Error),
        }
    }
}

fn operand(side: Option<Side>, source: &dyn Display, sink: &dyn Display) -> String {
    match side {
        Some(Side::Source) => source.to_string(),
        Some(Side::Sink) => sink.to_string(),
        None => format!("{source} to {sink}"),
    }
}

/// A failure in the midst of a transfer.
fn failed(operand: String, report: &Report) -> Problem {
    let side = report.failed.unwrap_or(Side::Source);
    let meaning = match report.errno {
        Some(errno) => errno.to_string(),
        None => "it failed".to_owned(),
    };
    let mut text = format!("{meaning} at the {side}, after {} bytes", report.written);
    if report.stranded > 0 {
        text += &format!(" ({} more were read, and are lost)", report.stranded);
    }
    if report.truncated > 0 {
        text += &format!(" ({} datagrams were cut)", report.truncated);
    }
    Problem {
        operand,
        side: report.failed,
        errno: report.errno,
        text,
        hint: report
            .errno
            .and_then(|errno| hint(errno, side, Doing::Moving))
            .map(str::to_owned),
        usage: false,
    }
}

/// A request that was refused before anything moved.
pub fn refused(operand: String, failure: &Failure) -> Problem {
    let report = &failure.report;
    let Some(refusal) = &failure.refusal else {
        return failed(operand, report);
    };
    let help = match refusal {
        Refusal::Directory { side } => hint(Errno::EISDIR, *side, Doing::Moving),
        Refusal::NotSeekable { side, .. } => hint(Errno::ESPIPE, *side, Doing::Moving),
        Refusal::NoPath { .. } => Some("see `cordboard explain`, and allow another with --route"),
        _ => None,
    };
    let usage = matches!(refusal, Refusal::BadSwitch(_));
    Problem {
        operand: if usage { String::new() } else { operand },
        side: report.failed,
        errno: report.errno,
        text: refusal.to_string(),
        hint: help.map(str::to_owned),
        usage,
    }
}

/// The switches of `--route` and `--without`, each in place of its
/// environment variable; `None` where neither is given.
pub fn switches(paths: &Paths) -> Result<Option<Switches>, Problem> {
    let bad = |bad: cordboard::route::BadSwitch| Problem::usage("", bad.to_string());
    // Also a bad word that would not be used is told of before anything is opened.
    Switches::from_env().map_err(bad)?;
    if paths.route.is_empty() && paths.without.is_empty() {
        return Ok(None);
    }
    let env = |name| std::env::var(name).unwrap_or_default();
    let mut switches = if paths.route.is_empty() {
        Switches::parse(&env("CORDBOARD_ROUTE"), "").map_err(bad)?
    } else {
        Switches::only(&paths.route)
    };
    if paths.without.is_empty() {
        for path in cordboard::PathName::ALL {
            let off = Switches::parse("", &env("CORDBOARD_WITHOUT")).map_err(bad)?;
            if !off.allows(path) {
                switches = switches.without(path);
            }
        }
    }
    for path in &paths.without {
        switches = switches.without(*path);
    }
    if !cordboard::PathName::ALL
        .iter()
        .any(|path| switches.allows(*path))
    {
        let none = Problem::usage("", "--route and --without leave no path");
        return Err(none.help("read/write takes every pair"));
    }
    Ok(Some(switches))
}

/// What all commands ask for in the same way.
pub fn request(range: &Range, paths: &Paths, sparse: Sparse) -> Result<Request, Problem> {
    Ok(Request {
        size: range.size.map_or(Size::Eof, Size::Bytes),
        source_offset: range.offset,
        block: paths.block,
        stable: paths.stable,
        sparse,
        switches: switches(paths)?,
        ..Request::default()
    })
}

/// How many bytes there will be to move, where it is known beforehand.
pub fn total(source: BorrowedFd<'_>, request: &Request) -> Option<u64> {
    use rustix::fs::FileType;
    let wanted = match request.size {
        Size::Bytes(n) => Some(n),
        Size::Eof => None,
    };
    let there = rustix::fs::fstat(source).ok().and_then(|stat| {
        // A size of 0 is what made-up files have.
        let file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let size = u64::try_from(stat.st_size)
            .ok()
            .filter(|n| file && *n > 0)?;
        let from = match request.source_offset {
            Some(offset) => offset,
            None => rustix::fs::tell(source).ok()?,
        };
        Some(size.saturating_sub(from))
    });
    match (wanted, there) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => b.or(a),
    }
}
