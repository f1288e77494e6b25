//! `cordboard splice SRC DST --buffer SIZE`: a large buffer between the two.

use std::os::fd::AsFd;

use cordboard::buffer::{Place, Refused};
use cordboard::{Buffered, BufferedOutcome, Ended, Errno, Report, Request, Schedule, Side, Size};
use rustix::fs::FileType;

use crate::endpoint::{self, Opened};
use crate::fan_in;
use crate::fan_out::{self, end};
use crate::files::kind;
use crate::flags::Splice;
use crate::problem::{
    Action, Problem, buffer_failed, operand_of, past_largest_offset, refusal_problem,
    transfer_failed, wait_failed,
};
use crate::progress::is_on;
use crate::report::{BufferLine, joined};
use crate::request;
use crate::session::Session;
use crate::signals::{self, check_stop, retry};

/// Runs the command, and stores the result in the session.
pub fn run(flags: &Splice, session: &mut Session) {
    if let Err(problem) = buffer(flags, session) {
        session.problem(&problem);
    }
}

/// Refuses flags that a buffer excludes.
fn check(flags: &Splice) -> Result<(), Problem> {
    if flags.common.stages.any() {
        let text = "--buffer excludes --hash, --zstd and --unzstd";
        return Err(Problem::usage("", text).help("run a second cordboard for them, with a pipe"));
    }
    if flags.fan_in.fan_in.is_some() || !flags.more_sinks.is_empty() {
        let text = "--buffer needs a single SRC and a single DST";
        return Err(Problem::usage("", text).help("run a second cordboard for the buffer"));
    }
    if (flags.buffering.buffer_file.as_ref()).is_some_and(|directory| directory.is_empty()) {
        let problem = Problem::usage("", "the name of the directory for the buffer is empty");
        return Err(problem.help("use --buffer-file DIR, for example --buffer-file /var/tmp"));
    }
    fan_in::check_none(flags)?;
    fan_out::check_none(flags)
}

/// Refuses flags that are useless without a buffer.
pub fn check_none(flags: &Splice) -> Result<(), Problem> {
    let given = [
        (flags.buffering.buffer_file.is_some(), "--buffer-file"),
        (flags.buffering.intake_rate.is_some(), "--intake-rate"),
    ];
    match given.into_iter().find(|(is_given, _)| *is_given) {
        Some((_, flag)) => {
            Err(Problem::usage("", format!("{flag} needs --buffer")).help("add --buffer SIZE"))
        }
        None => Ok(()),
    }
}

/// Refuses a directory for the buffer that does not exist. Called before the source waits for
/// its peer.
fn examine_directory(flags: &Splice) -> Result<(), Problem> {
    let Some(directory) = flags.buffering.buffer_file.as_deref() else {
        return Ok(());
    };
    match retry(|| rustix::fs::stat(directory)) {
        Ok(stat) if kind(&stat) == FileType::Directory => Ok(()),
        Ok(_) => Err(buffer_failed(Some(directory), Errno::ENOTDIR, None)),
        Err(errno) => Err(buffer_failed(Some(directory), errno.into(), None)),
    }
}

fn buffer(flags: &Splice, session: &mut Session) -> Result<(), Problem> {
    check(flags)?;
    let request = Request {
        idle: flags.idle,
        ..request::for_writing(&flags.range, &flags.common.paths, &flags.writing)?
    };
    let source_name = endpoint::parse(&flags.source, Side::Source)?;
    let sink_name = endpoint::parse(&flags.sink, Side::Sink)?;
    let existing = request::existing(&flags.writing);
    let [from, to] = [&flags.source, &flags.sink].map(|name| name.to_string_lossy());
    endpoint::check_source_offset(&source_name, &from, request.source_offset)?;
    let ends = ([(&source_name, &*from)], [(&sink_name, &*to)]);
    endpoint::examine((&ends.0, &ends.1), existing, &request, |from, to| {
        let (source, sink, size) = (from[0].itself(), to[0].itself(), size(flags));
        let buffered = Buffered::new(source, sink, size, request.clone());
        let shown = (&*from[0].shown, &*to[0].shown);
        buffered
            .map(drop)
            .map_err(|refused| refused_by(flags, &refused, shown))
    })?;
    examine_directory(flags)?;
    let mut shared = endpoint::Shared::by([&source_name, &sink_name]);
    let source = endpoint::source_sharing(&source_name, &from, &mut shared)?;
    let sink = endpoint::sink_sharing(&sink_name, &to, existing, &mut shared)?;
    let moved = transfer(flags, session, (&source, &sink), request);
    let outcome = moved.map_err(|problem| problem.leaving(sink.remove_if_unused()))?;
    session.set_buffered(BufferLine {
        size: outcome.size,
        most: outcome.most,
        stored: outcome.stored,
    });
    let total = total(&outcome);
    session.add(&total);
    report(flags, session, &source, &sink, (&outcome, &total));
    if outcome.ended == Ended::Cancelled {
        sink.remove_or_say();
        check_stop()?;
    }
    // A sink that has failed was reported.
    match outcome.failed == Some(Side::Sink) {
        true => Ok(()),
        false => end(flags, session, sink, outcome.ended),
    }
}

/// The size of the buffer in bytes.
fn size(flags: &Splice) -> u64 {
    flags.buffering.buffer.unwrap_or(1)
}

/// The problem of a refused request.
fn refused_by(flags: &Splice, refused: &Refused, (source, sink): (&str, &str)) -> Problem {
    let refusal = &refused.0;
    if let cordboard::Refusal::NoBuffer { errno } = refusal {
        return buffer_failed(flags.buffering.buffer_file.as_deref(), *errno, None);
    }
    match refusal.side() {
        Some(Side::Sink) => refusal_problem(sink, Side::Sink, refusal),
        _ => refusal_problem(source, Side::Source, refusal),
    }
}

fn transfer(
    flags: &Splice,
    session: &mut Session,
    (source, sink): (&Opened, &Opened),
    request: Request,
) -> Result<BufferedOutcome, Problem> {
    let request = Request {
        source_unshared: source.is_owned(),
        sink_unshared: sink.is_owned(),
        ..request
    };
    let size = size(flags);
    let place = match &flags.buffering.buffer_file {
        Some(directory) => Place::Directory(directory.into()),
        None => Place::Memory,
    };
    let refused = |refused: Refused| refused_by(flags, &refused, (&source.shown, &sink.shown));
    endpoint::check_sparse(sink.as_fd(), &sink.shown, &request)?;
    if request.size == Size::Eof {
        let from = (source.as_fd(), &source.shown as &dyn std::fmt::Display);
        endpoint::check_append_to_itself(from, (sink.as_fd(), &sink.shown))?;
    }
    let from = (source.as_fd(), &source.shown as &dyn std::fmt::Display);
    endpoint::check_kept_alias(from, (sink.as_fd(), &sink.shown), &request)?;
    let (from, to) = (source.as_fd(), sink.as_fd());
    // The sink is truncated only after all other checks.
    Buffered::new(from, to, size, request.clone()).map_err(refused)?;
    if sink.replace {
        let none = request::for_no_bytes(&request);
        let buffered = Buffered::new(from, to, size, none).map_err(refused)?;
        buffered.place(place.clone()).run().map_err(refused)?;
        let before = endpoint::check_alias(from, &source.shown, to, &sink.shown)?;
        sink.empty()?;
        endpoint::check_not_emptied(from, &source.shown, &before, &sink.shown)?;
    }
    session.warn_of_offset((from, &source.shown), &request);
    let total = request::total(from, &request);
    let buffered = Buffered::new(from, to, size, request).map_err(refused)?;
    let intake = (flags.buffering.intake_rate).map_or(Schedule::Unlimited, Schedule::rate);
    let on_screen = is_on(from) || is_on(to);
    let watch = session.watch(on_screen, total);
    watch.show_buffer(buffered.size());
    // The transfer to the sink runs on another thread, which no signal interrupts.
    let buffered = buffered.control(signals::polled()).observe(watch);
    let buffered = buffered.place(place).intake_schedule(intake);
    buffered.run().map_err(refused)
}

/// Returns the account of both transfers together.
fn total(outcome: &BufferedOutcome) -> Report {
    let mut report = joined([&outcome.source], &outcome.sink);
    (report.read, report.written) = (outcome.read, outcome.written);
    report.stranded = outcome.stranded;
    (report.ended, report.failed) = (outcome.ended, outcome.failed);
    report.errno = outcome.errno;
    report
}

/// Reports the failure, if there is one.
fn report(
    flags: &Splice,
    session: &mut Session,
    source: &Opened,
    sink: &Opened,
    (outcome, total): (&BufferedOutcome, &Report),
) {
    session.report_idle_loss(total, &sink.shown);
    let problem = match (outcome.ended, outcome.failed, outcome.errno) {
        (Ended::Error, ..) if outcome.wait_failed => {
            wait_failed(operand_of(None, &source.shown, &sink.shown), total)
        }
        (Ended::Error, None, Some(errno)) => {
            let directory = flags.buffering.buffer_file.as_deref();
            buffer_failed(directory, errno, Some(outcome.written))
        }
        (Ended::Error, Some(Side::Source), _) => {
            transfer_failed(source.shown.clone(), total, Action::transfer(source))
        }
        (Ended::Error, ..) => transfer_failed(sink.shown.clone(), total, Action::transfer(sink)),
        _ => return,
    };
    let first = (flags.range.offset, flags.writing.sink_offset);
    let problem = match past_largest_offset(total, first) {
        Some(hint) => problem.help(hint),
        None => problem,
    };
    let problem = problem.leaving(sink.remove_if_unused());
    session.problem(&problem.at(sink.as_fd()));
}
