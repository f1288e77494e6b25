//! `cordboard splice SRC DST DST…`: one source and several sinks.

use std::ffi::OsStr;
use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use cordboard::fan_out::{Refused, SinkEnded, SinkReport};
use cordboard::{Ended, Errno, FanOut, FanOutOutcome, OnSlow, Report, Request, Side, Size};

use crate::buffer;
use crate::directory::sync_parent;
use crate::endpoint::{self, Opened, Preview};
use crate::fan_in;
use crate::flags::{Slow, Splice};
use crate::problem::{Action, Problem, operand_of, refusal_problem, transfer_failed, wait_failed};
use crate::progress::is_on;
use crate::report::{DeclinedLine, SinkLine};
use crate::request;
use crate::session::Session;
use crate::signals::check_stop;
use crate::splice::wait_for_peers;
use crate::units;

/// Runs the command, and leaves the result to the session.
pub fn run(flags: &Splice, session: &mut Session) {
    if let Err(problem) = fan_out(flags, session) {
        session.problem(&problem);
    }
}

fn fan_out(flags: &Splice, session: &mut Session) -> Result<(), Problem> {
    if flags.common.stages.any() {
        let text = "--hash, --zstd and --unzstd need a single DST";
        return Err(Problem::usage("", text));
    }
    if flags.writing.sink_offset.is_some() {
        return Err(Problem::usage("", "--sink-offset needs a single DST").help("omit it"));
    }
    fan_in::check_none(flags)?;
    buffer::check_none(flags)?;
    let request = Request {
        idle: flags.idle,
        ..request::for_writing(&flags.range, &flags.common.paths, &flags.writing)?
    };
    let source_name = endpoint::parse(&flags.source, Side::Source)?;
    let names: Vec<&OsStr> = [&flags.sink]
        .into_iter()
        .chain(&flags.more_sinks)
        .map(|n| &**n)
        .collect();
    let shown: Vec<String> = (names.iter())
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    let parsed: Result<Vec<_>, Problem> = names
        .iter()
        .map(|name| endpoint::parse(name, Side::Sink))
        .collect();
    let parsed = parsed?;
    let existing = request::existing(&flags.writing);
    let from = flags.source.to_string_lossy();
    endpoint::check_source_offset(&source_name, &from, request.source_offset)?;
    let sinks: Vec<_> = parsed
        .iter()
        .zip(shown.iter().map(|name| &**name))
        .collect();
    let ends = (&[(&source_name, &*from)][..], &sinks[..]);
    endpoint::examine(ends, existing, &request, |from, to| {
        let fds: Vec<BorrowedFd<'_>> = to.iter().map(Preview::itself).collect();
        let shown = (&*from[0].shown, |sink: usize| &*to[sink].shown);
        let fan = FanOut::new(from[0].itself(), &fds, request.clone());
        fan.map(drop).map_err(|refused| refused_by(&refused, shown))
    })?;
    let mut shared = endpoint::Shared::by([&source_name].into_iter().chain(&parsed));
    let source = endpoint::source_sharing(&source_name, &from, &mut shared)?;
    let sinks = endpoint::sinks(&parsed, &shown, existing, &mut shared)
        .map_err(|failed| endpoint::leaving(failed.problem, failed.opened))?;
    let (outcome, elapsed) = match transfer(flags, session, (&source, &sinks), request) {
        Ok(ended) => ended,
        Err(problem) => return Err(endpoint::leaving(problem, sinks)),
    };
    session.set_sinks(sinks.iter().zip(&outcome.sinks).map(line).collect());
    let total = total(&outcome, elapsed);
    session.add(&total);
    report(session, (&source, &total), &sinks, &outcome);
    remove_empty(&sinks, &outcome);
    if outcome.ended == Ended::Cancelled {
        check_stop()?;
    }
    // A sink that has failed was reported.
    let complete = (sinks.into_iter().zip(&outcome.sinks))
        .filter(|(_, report)| report.ended == SinkEnded::Complete);
    end_all(
        flags,
        session,
        complete.map(|(sink, _)| sink),
        outcome.ended,
    );
    Ok(())
}

/// Removes the files that were created and have stayed empty, if the command or their sink has
/// failed.
fn remove_empty(sinks: &[Opened], outcome: &FanOutOutcome) {
    let all = matches!(outcome.ended, Ended::Error | Ended::Cancelled);
    let failed = (sinks.iter().zip(&outcome.sinks))
        .filter(|(_, report)| all || report.ended == SinkEnded::Failed);
    failed.for_each(|(sink, _)| sink.remove_or_say());
}

/// The problem of a refused request. `sinks` returns the name of a sink by its index.
fn refused_by<'a>(
    refused: &Refused,
    (source, sinks): (&'a str, impl Fn(usize) -> &'a str),
) -> Problem {
    let side = refused.refusal.side().unwrap_or(Side::Sink);
    let shown = match side {
        Side::Source => source,
        Side::Sink => sinks(refused.sink),
    };
    refusal_problem(shown, side, &refused.refusal)
}

fn transfer(
    flags: &Splice,
    session: &mut Session,
    (source, sinks): (&Opened, &[Opened]),
    request: Request,
) -> Result<(FanOutOutcome, Duration), Problem> {
    let owned = source.is_owned() && sinks.iter().all(Opened::is_owned);
    let request = Request {
        source_unshared: source.is_owned(),
        sink_unshared: owned,
        ..request
    };
    let policy = match flags.on_slow.unwrap_or(Slow::Block) {
        Slow::Block => OnSlow::Block,
        Slow::Drop => OnSlow::Drop,
        Slow::Detach => OnSlow::Detach,
    };
    let fds: Vec<BorrowedFd<'_>> = sinks.iter().map(AsFd::as_fd).collect();
    let refused =
        |refused: Refused| refused_by(&refused, (&source.shown, |sink: usize| &*sinks[sink].shown));
    for sink in sinks {
        endpoint::check_sparse(sink.as_fd(), &sink.shown, &request)?;
        let from = (source.as_fd(), &source.shown as &dyn Display);
        if request.size == Size::Eof {
            endpoint::check_append_to_itself(from, (sink.as_fd(), &sink.shown))?;
        }
        endpoint::check_kept_alias(from, (sink.as_fd(), &sink.shown), &request)?;
    }
    // The sinks are truncated only after all other checks.
    FanOut::new(source.as_fd(), &fds, request.clone()).map_err(refused)?;
    if sinks.iter().any(|sink| sink.replace) {
        let none = request::for_no_bytes(&request);
        let fan = FanOut::new(source.as_fd(), &fds, none).map_err(refused)?;
        fan.run().map_err(refused)?;
    }
    empty_all(source, sinks)?;
    session.warn_of_offset((source.as_fd(), &source.shown), &request);
    let total = request::total(source.as_fd(), &request);
    let fan = FanOut::new(source.as_fd(), &fds, request).map_err(refused)?;
    let fan = fan.on_slow(policy).control(session.control());
    let on_screen = is_on(source) || sinks.iter().any(is_on);
    let watch = session.watch(on_screen, total);
    watch.show_sinks(sinks.len());
    let start = Instant::now();
    let outcome = fan.observe(watch).run().map_err(refused)?;
    Ok((outcome, start.elapsed()))
}

/// Truncates the sinks that are to be replaced. All are checked before the first is
/// truncated: a refused command leaves the contents of every sink.
fn empty_all(source: &Opened, sinks: &[Opened]) -> Result<(), Problem> {
    let from = source.as_fd();
    let mut replaced = Vec::new();
    for sink in sinks.iter().filter(|sink| sink.replace) {
        let before = endpoint::check_alias(from, &source.shown, sink.as_fd(), &sink.shown)?;
        replaced.push((sink, before));
    }
    for (sink, _) in &replaced {
        sink.empty()?;
    }
    for (sink, before) in &replaced {
        endpoint::check_not_emptied(from, &source.shown, before, &sink.shown)?;
    }
    Ok(())
}

/// The account of the source: the bytes that were read, and passed on to the sinks. `elapsed`:
/// the time until all sinks have ended, which is not that of the source.
fn total(outcome: &FanOutOutcome, elapsed: Duration) -> Report {
    let mut report = outcome.source.clone();
    report.elapsed = elapsed;
    report.ended = outcome.ended;
    report.errno = outcome.errno;
    report.failed = match (outcome.ended, outcome.failed_sink) {
        (Ended::Error, Some(_)) => Some(Side::Sink),
        (Ended::Error, None) if !outcome.wait_failed => Some(Side::Source),
        _ => None,
    };
    report
}

fn line((sink, report): (&Opened, &SinkReport)) -> SinkLine {
    let mut path: Vec<&'static str> = report.carried.iter().map(|carry| carry.name()).collect();
    let further = report.transfer.iter().flat_map(|transfer| &transfer.path);
    path.extend(further.map(|path| path.name()));
    path.dedup();
    let mut declined: Vec<DeclinedLine> = (report.declined.iter())
        .map(|(carry, why)| DeclinedLine {
            path: carry.name(),
            why: why.to_string(),
        })
        .collect();
    for further in report.transfer.iter().flat_map(DeclinedLine::of) {
        if !declined.contains(&further) {
            declined.push(further);
        }
    }
    let name = |errno: Errno| {
        errno
            .name()
            .map_or_else(|| errno.raw().to_string(), str::to_owned)
    };
    SinkLine {
        sink: sink.shown.clone(),
        read: report.read,
        written: report.written,
        dropped: report.dropped,
        gaps: report.gaps,
        stranded: report.stranded,
        ended: report.ended.name(),
        errno: report.errno.map(name),
        path,
        declined,
    }
}

fn lost(bytes: u64) -> String {
    match bytes {
        1 => "1 more byte was read and is lost".to_owned(),
        bytes => format!("{bytes} more bytes were read and are lost"),
    }
}

/// Prints what is wrong with the source and with each sink.
fn report(
    session: &mut Session,
    (source, total): (&Opened, &Report),
    sinks: &[Opened],
    outcome: &FanOutOutcome,
) {
    if outcome.ended == Ended::Error && outcome.failed_sink.is_none() {
        session.problem(&match outcome.wait_failed {
            true => wait_failed(operand_of(None, &source.shown, &"the sinks"), total),
            false => {
                let action = Action::transfer(source.as_fd());
                transfer_failed(source.shown.clone(), total, action)
            }
        });
    } else if outcome.ended == Ended::Error && outcome.source.stranded > 0 {
        session.print(&format_args!(
            "cordboard: {}: {}",
            source.shown,
            lost(outcome.source.stranded)
        ));
    }
    for (index, (sink, report)) in sinks.iter().zip(&outcome.sinks).enumerate() {
        let lost = match report.stranded {
            0 => String::new(),
            bytes => format!(" ({})", lost(bytes)),
        };
        let written = units::number_of(report.written, "byte");
        match report.ended {
            SinkEnded::Failed => {
                let mut failed = Report::default();
                (failed.ended, failed.failed) = (Ended::Error, Some(Side::Sink));
                (failed.errno, failed.read) = (report.errno, report.read);
                (failed.written, failed.stranded) = (report.written, report.stranded);
                let action = Action::transfer(sink.as_fd());
                let problem = transfer_failed(sink.shown.clone(), &failed, action);
                // The fan-out has ended with it, as a transfer with one sink does.
                session.problem(&match outcome.failed_sink == Some(index) {
                    true => problem.at(sink.as_fd()),
                    false => problem,
                });
            }
            SinkEnded::Detached => {
                let text = format!(
                    "the sink was detached, because it was too slow, after {written}{lost}"
                );
                let errno = Errno::ETIMEDOUT;
                session.problem(&Problem::refused(&sink.shown, Side::Sink, errno, text));
            }
            SinkEnded::Stopped if outcome.ended == Ended::Idle && report.stranded == 0 => {
                let text = "the sink was not synced: it accepted the last bytes too late";
                let errno = Errno::ETIMEDOUT;
                session.problem(&Problem::refused(&sink.shown, Side::Sink, errno, text));
            }
            SinkEnded::Stopped if outcome.ended == Ended::Idle => {
                let mut idle = Report::default();
                (idle.ended, idle.read) = (Ended::Idle, report.read);
                (idle.written, idle.stranded) = (report.written, report.stranded);
                session.report_idle_loss(&idle, &sink.shown);
            }
            SinkEnded::Stopped if report.stranded > 0 => session.print(&format_args!(
                "cordboard: {}: stopped after {written}{lost}",
                sink.shown
            )),
            _ => {}
        }
        let is_reported = matches!(report.ended, SinkEnded::Failed | SinkEnded::Detached);
        if report.dropped > 0 && !is_reported {
            let were = if report.dropped == 1 { "was" } else { "were" };
            session.print(&format_args!(
                "cordboard: {}: warning: {} {were} dropped, in {}",
                sink.shown,
                units::number_of(report.dropped, "byte"),
                units::number_of(report.gaps, "gap")
            ));
        }
    }
}

/// Closes the sinks that have accepted all bytes. The readers of all of them see the end before
/// the command waits for the peers, all together.
fn end_all(
    flags: &Splice,
    session: &mut Session,
    sinks: impl Iterator<Item = Opened>,
    ended: Ended,
) {
    let mut connections = Vec::new();
    for sink in sinks {
        match end_writing(flags, sink) {
            Ok(connection) => connections.extend(connection),
            Err(problem) => session.problem(&problem),
        }
    }
    for problem in end_connections(flags, session, connections, ended) {
        session.problem(&problem);
    }
}

/// Closes a sink, except for a connection, of which this direction is shut down.
fn end_writing(flags: &Splice, sink: Opened) -> Result<Option<Opened>, Problem> {
    if flags.writing.sync
        && let Some(path) = sink.new_entry()
    {
        sync_parent(&path, Some(sink.as_fd()))?;
    }
    match flags.writing.sync {
        true => sink.shut_down_synced(),
        false => sink.shut_down(),
    }
}

/// Closes a sink that has accepted all bytes, after its peer has acknowledged them.
pub fn end(
    flags: &Splice,
    session: &mut Session,
    sink: Opened,
    ended: Ended,
) -> Result<(), Problem> {
    let connection = end_writing(flags, sink)?;
    let problems = end_connections(flags, session, connection.into_iter().collect(), ended);
    problems.into_iter().next().map_or(Ok(()), Err)
}

/// Closes connections that are shut down, after their peers have acknowledged all bytes.
fn end_connections(
    flags: &Splice,
    session: &mut Session,
    connections: Vec<Opened>,
    ended: Ended,
) -> Vec<Problem> {
    let waited = wait_for_peers(session, &connections, ended, flags.idle);
    let ends = connections.into_iter().zip(waited);
    let closed = ends.map(|(connection, waited)| {
        waited?;
        match flags.writing.sync {
            true => connection.close_synced(),
            false => connection.close(),
        }
    });
    closed.filter_map(Result::err).collect()
}

/// Refuses flags that are useless with one sink.
pub fn check_none(flags: &Splice) -> Result<(), Problem> {
    match flags.on_slow {
        Some(_) => {
            let text = "--on-slow needs several DST: a single DST determines the rate";
            Err(Problem::usage("", text).help("omit it"))
        }
        None => Ok(()),
    }
}
