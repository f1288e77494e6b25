//! `cordboard splice SRC… DST --fan-in HOW`: several sources and one sink.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};

use cordboard::fan_in::{Refused, SourceEnded, SourceReport, Turn};
use cordboard::{
    Control, Ended, Errno, FanIn, FanInOutcome, OnFailure, Report, Request, Side, Size,
};

use crate::buffer;
use crate::endpoint::{self, Opened, Preview};
use crate::fan_out::end;
use crate::flags::{Failing, Splice, Turns};
use crate::problem::{
    Action, Problem, operand_of, past_largest_offset, refusal_problem, transfer_failed, wait_failed,
};
use crate::progress::{Watch, is_on};
use crate::report::{DeclinedLine, SourceLine, joined};
use crate::request;
use crate::session::Session;
use crate::signals::{self, check_stop};
use crate::units;

/// Runs the command, and stores the result in the session.
pub fn run(flags: &Splice, session: &mut Session) {
    if let Err(problem) = fan_in(flags, session) {
        session.problem(&problem);
    }
}

/// Returns how the sources take turns. Refuses flags that a fan-in excludes.
fn turns(flags: &Splice, sources: usize) -> Result<Turn, Problem> {
    let usage = |text: &str, help: &str| Err(Problem::usage("", text).help(help));
    if flags.common.stages.any() {
        let text = "--hash, --zstd and --unzstd need a single SRC";
        return Err(Problem::usage("", text));
    }
    if flags.on_slow.is_some() {
        let text = "--on-slow applies to several sinks, and --fan-in has one sink";
        return usage(text, "for sources that fail, use --on-failure");
    }
    if flags.range.offset.is_some() && sources > 1 {
        let text = "--offset needs a single SRC";
        return usage(text, "omit it");
    }
    let turn = match flags.fan_in.fan_in {
        Some(Turns::Line) => Turn::ByRecord { delimiter: b'\n' },
        Some(Turns::Null) => Turn::ByRecord { delimiter: 0 },
        Some(Turns::Datagram) => Turn::ByDatagram,
        Some(Turns::Turn) | None => {
            let bytes = flags.fan_in.turn;
            let bytes = bytes.map_or(Turn::BYTES, |bytes| bytes.get() as u64);
            return Ok(Turn::ByTurn { bytes });
        }
    };
    match flags.fan_in.turn {
        Some(_) => usage("--turn needs --fan-in turn", "omit it"),
        None => Ok(turn),
    }
}

/// Refuses flags that are useless without --fan-in.
pub fn check_none(flags: &Splice) -> Result<(), Problem> {
    let given = [
        (flags.fan_in.turn.is_some(), "--turn"),
        (flags.fan_in.on_failure.is_some(), "--on-failure"),
    ];
    match given.into_iter().find(|(is_given, _)| *is_given) {
        Some((_, flag)) => {
            let text = format!("{flag} needs --fan-in");
            Err(Problem::usage("", text).help("add --fan-in, or omit it"))
        }
        None => Ok(()),
    }
}

fn fan_in(flags: &Splice, session: &mut Session) -> Result<(), Problem> {
    let operands = [&flags.source, &flags.sink];
    let mut names: Vec<&OsStr> = (operands.into_iter())
        .chain(&flags.more_sinks)
        .map(|name| &**name)
        .collect();
    let Some(sink_name) = names.pop() else {
        return Ok(());
    };
    buffer::check_none(flags)?;
    let turn = turns(flags, names.len())?;
    let request = Request {
        idle: flags.idle,
        ..request::for_writing(&flags.range, &flags.common.paths, &flags.writing)?
    };
    let parsed: Result<Vec<_>, Problem> = (names.iter())
        .map(|name| endpoint::parse(name, Side::Source))
        .collect();
    let parsed = parsed?;
    let sink_parsed = endpoint::parse(sink_name, Side::Sink)?;
    let shown: Vec<String> = (names.iter())
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    let existing = request::existing(&flags.writing);
    let to = sink_name.to_string_lossy();
    for (name, shown) in parsed.iter().zip(&shown) {
        endpoint::check_source_offset(name, shown, request.source_offset)?;
    }
    let from: Vec<_> = parsed
        .iter()
        .zip(shown.iter().map(|name| &**name))
        .collect();
    let ends = (&from[..], &[(&sink_parsed, &*to)][..]);
    endpoint::examine(ends, existing, &request, |from, to| {
        let fds: Vec<BorrowedFd<'_>> = from.iter().map(Preview::itself).collect();
        let fan = FanIn::new(&fds, to[0].itself(), request.clone());
        let fan = fan.and_then(|fan| fan.turn(turn)).map(drop);
        let shown = (|source: usize| &*from[source].shown, &*to[0].shown);
        fan.map_err(|refused| refused_by(&refused, shown))
    })?;
    let mut shared = endpoint::Shared::by(parsed.iter().chain([&sink_parsed]));
    let sources = endpoint::sources(&parsed, &shown, &mut shared);
    let sources = sources.map_err(|failed| failed.problem)?;
    let sink = endpoint::sink_sharing(&sink_parsed, &to, existing, &mut shared)?;
    let moved = transfer(flags, session, (&sources, &sink), request, turn);
    let outcome = moved.map_err(|problem| problem.leaving(sink.remove_if_unused()))?;
    let lines = sources.iter().zip(&outcome.sources).map(line);
    session.set_sources(lines.collect());
    let total = total(&outcome);
    session.add(&total);
    let to = (&sink, flags.writing.sink_offset);
    report(session, &sources, to, &outcome);
    if outcome.failed_source.is_some() || outcome.ended == Ended::Cancelled {
        sink.remove_or_say();
    }
    if outcome.ended == Ended::Cancelled {
        check_stop()?;
    }
    // A sink that has failed was reported.
    if outcome.sink.ended != Ended::Error {
        let ended = (outcome.ended, outcome.sink.ended);
        end(flags, session, sink, ending(ended, outcome.stranded, turn))?;
    }
    Ok(())
}

/// The ending that determines how long the peer of the sink is waited for: that of the fan-in, or
/// that of the transfer to the sink, which ends with its channel.
fn ending((all, sink): (Ended, Ended), stranded: u64, turn: Turn) -> Ended {
    match (all, turn) {
        // The last records may have been sent only now: the peer has the same time to acknowledge
        // them as at the end of the sources.
        (Ended::Idle, Turn::ByRecord { .. }) if stranded == 0 => sink,
        (Ended::Idle, _) => Ended::Idle,
        _ => sink,
    }
}

/// The problem of a refused request. `sources` returns the name of a source by its index.
fn refused_by<'a>(
    refused: &Refused,
    (sources, sink): (impl Fn(usize) -> &'a str, &'a str),
) -> Problem {
    match refused.refusal.side() {
        Some(Side::Sink) => refusal_problem(sink, Side::Sink, &refused.refusal),
        _ => refusal_problem(
            sources(refused.source_index),
            Side::Source,
            &refused.refusal,
        ),
    }
}

fn transfer(
    flags: &Splice,
    session: &mut Session,
    (sources, sink): (&[Opened], &Opened),
    request: Request,
    turn: Turn,
) -> Result<FanInOutcome, Problem> {
    let request = Request {
        source_unshared: sources.iter().all(Opened::is_owned),
        sink_unshared: sink.is_owned(),
        ..request
    };
    let policy = match flags.fan_in.on_failure.unwrap_or(Failing::End) {
        Failing::End => OnFailure::End,
        Failing::Detach => OnFailure::Detach,
    };
    let fds: Vec<BorrowedFd<'_>> = sources.iter().map(AsFd::as_fd).collect();
    let refused = |refused: Refused| {
        let sources = |source: usize| &*sources[source].shown;
        refused_by(&refused, (sources, &sink.shown))
    };
    endpoint::check_sparse(sink.as_fd(), &sink.shown, &request)?;
    for source in sources {
        let from = (source.as_fd(), &source.shown as &dyn std::fmt::Display);
        let to = (sink.as_fd(), &sink.shown as &dyn std::fmt::Display);
        if request.size == Size::Eof {
            endpoint::check_append_to_itself(from, to)?;
        }
        endpoint::check_kept_alias(from, to, &request)?;
    }
    let prepare = |request: &Request| {
        let fan = FanIn::new(&fds, sink.as_fd(), request.clone());
        fan.and_then(|fan| fan.turn(turn)).map_err(refused)
    };
    // The sink is truncated only after all other checks.
    prepare(&request)?;
    if sink.replace {
        let fan = prepare(&request::for_no_bytes(&request))?;
        fan.run().map_err(refused)?;
        let mut before = Vec::new();
        for source in sources {
            let (from, to) = (source.as_fd(), sink.as_fd());
            before.push(endpoint::check_alias(from, &source.shown, to, &sink.shown)?);
        }
        sink.empty()?;
        for (source, before) in sources.iter().zip(&before) {
            endpoint::check_not_emptied(source.as_fd(), &source.shown, before, &sink.shown)?;
        }
    }
    let fan = prepare(&request)?;
    for source in sources {
        session.warn_of_offset((source.as_fd(), &source.shown), &request);
    }
    // Each may be as long as a size permits.
    let mut totals = fds.iter().map(|fd| request::total(*fd, &request));
    let total = totals.try_fold(0u64, |sum, total| Some(sum.saturating_add(total?)));
    let on_screen = fds.iter().any(is_on) || is_on(sink);
    // The transfer to the sink runs on another thread, which no signal interrupts.
    let control: &Control = signals::polled();
    let watch: &mut Watch = session.watch(on_screen, total);
    let fan = fan.on_failure(policy).control(control).observe(watch);
    fan.run().map_err(refused)
}

/// Returns the account of all transfers together: the bytes of all sources, and the ending
/// of the fan-in.
fn total(outcome: &FanInOutcome) -> Report {
    let sources = outcome.sources.iter().map(|source| &source.transfer);
    let mut report = joined(sources, &outcome.sink);
    (report.read, report.stranded) = (outcome.read, outcome.stranded);
    (report.ended, report.errno) = (outcome.ended, outcome.errno);
    report.failed = match (outcome.ended, outcome.failed_source) {
        (Ended::Error, Some(_)) => Some(Side::Source),
        (Ended::Error, None) if !outcome.wait_failed => Some(Side::Sink),
        _ => None,
    };
    report
}

fn line((source, report): (&Opened, &SourceReport)) -> SourceLine {
    let name = |errno: Errno| {
        let name = errno.name().map(str::to_owned);
        name.unwrap_or_else(|| errno.raw().to_string())
    };
    SourceLine {
        source: source.shown.clone(),
        read: report.read,
        written: report.written,
        stranded: report.stranded,
        turns: report.turns,
        divided: report.divided,
        ended: report.ended.name(),
        errno: report.errno.map(name),
        path: (report.transfer.path.iter())
            .map(|path| path.name())
            .collect(),
        declined: DeclinedLine::of(&report.transfer).collect(),
    }
}

/// Reports the failures of the sink and of each source.
fn report(
    session: &mut Session,
    sources: &[Opened],
    (sink, sink_offset): (&Opened, Option<u64>),
    outcome: &FanInOutcome,
) {
    if outcome.ended == Ended::Error && outcome.failed_source.is_none() {
        let total = total(outcome);
        let problem = match outcome.wait_failed {
            true => wait_failed(operand_of(None, &"the sources", &sink.shown), &total),
            false => {
                let action = Action::transfer(sink.as_fd());
                transfer_failed(sink.shown.clone(), &total, action)
            }
        };
        let problem = match past_largest_offset(&total, (None, sink_offset)) {
            Some(hint) => problem.help(hint),
            None => problem,
        };
        let problem = problem.leaving(sink.remove_if_unused());
        session.problem(&problem.at(sink.as_fd()));
    }
    session.report_idle_loss(&total(outcome), &sink.shown);
    for (source, report) in sources.iter().zip(&outcome.sources) {
        if matches!(report.ended, SourceEnded::Failed | SourceEnded::Detached) {
            let mut failed = Report::default();
            (failed.ended, failed.failed) = (Ended::Error, Some(Side::Source));
            (failed.errno, failed.read) = (report.errno, report.read);
            (failed.written, failed.stranded) = (report.written, report.stranded);
            failed.truncated = report.transfer.truncated;
            let action = Action::transfer(source.as_fd());
            session.problem(&transfer_failed(source.shown.clone(), &failed, action));
        }
        if report.divided > 0 {
            let were = if report.divided == 1 { "was" } else { "were" };
            session.print(&format_args!(
                "cordboard: {}: warning: {} longer than 1 MiB {were} divided",
                source.shown,
                units::number_of(report.divided, "record")
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_peer_is_waited_for_after_an_idle_end_without_new_bytes() {
        let lines = Turn::ByRecord { delimiter: b'\n' };
        let turns = Turn::ByTurn { bytes: 1 };
        let idle = (Ended::Idle, Ended::Eof);
        for turn in [turns, Turn::ByDatagram] {
            assert_eq!(ending(idle, 0, turn), Ended::Idle);
        }
        // The parts of lines are written at the end.
        assert_eq!(ending(idle, 0, lines), Ended::Eof);
        // The sink has taken nothing for the whole time.
        assert_eq!(
            ending((Ended::Idle, Ended::Cancelled), 1, lines),
            Ended::Idle
        );
        for turn in [turns, lines] {
            assert_eq!(ending((Ended::Eof, Ended::Eof), 0, turn), Ended::Eof);
            assert_eq!(ending((Ended::Error, Ended::Eof), 1, turn), Ended::Eof);
        }
    }
}
