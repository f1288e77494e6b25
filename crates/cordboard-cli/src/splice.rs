//! `cordboard splice SRC DST`.

use std::ffi::OsStr;
use std::fmt::Display;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use cordboard::{Ended, Report, Request, Side};

use crate::buffer;
use crate::endpoint::{self, Opened, Preview};
use crate::fan_in;
use crate::fan_out;
use crate::flags::Splice;
use crate::problem::{Problem, unacknowledged_line};
use crate::request;
use crate::session::Session;
use crate::stages;

/// Runs the command, and leaves the result to the session.
pub fn run(flags: &Splice, session: &mut Session) {
    if let Err(problem) = splice(flags, session) {
        session.problem(&problem);
    }
}

fn splice(flags: &Splice, session: &mut Session) -> Result<(), Problem> {
    fan_in::check_none(flags)?;
    fan_out::check_none(flags)?;
    buffer::check_none(flags)?;
    let source_name = endpoint::parse(&flags.source, Side::Source)?;
    let sink_name = endpoint::parse(&flags.sink, Side::Sink)?;
    let request = Request {
        idle: flags.idle,
        ..request::for_writing(&flags.range, &flags.common.paths, &flags.writing)?
    };
    stages::check(&flags.common.stages, &request)?;
    let existing = request::existing(&flags.writing);
    let [from, to] = [&flags.source, &flags.sink].map(|name| name.to_string_lossy());
    endpoint::check_source_offset(&source_name, &from, request.source_offset)?;
    let ends = ([(&source_name, &*from)], [(&sink_name, &*to)]);
    endpoint::examine((&ends.0, &ends.1), existing, &request, |from, to| {
        let (from, to): (&Preview, &Preview) = (&from[0], &to[0]);
        let source = (from.itself(), &from.shown as &dyn Display);
        session.check(source, (to.itself(), &to.shown), &request)
    })?;
    let mut shared = endpoint::Shared::by([&source_name, &sink_name]);
    let source = endpoint::source_sharing(&source_name, &from, &mut shared)?;
    let sink = endpoint::sink_sharing(&sink_name, &to, existing, &mut shared)?;
    let named = source_name.in_hash_lines(&flags.source);
    let moved = transfer(session, &named, (&source, &sink), request);
    let report = moved.map_err(|problem| problem.leaving(sink.remove_if_unused()))?;
    let ended = match report.ended {
        // The stages have sent their contents only now: the peer has the same
        // time to acknowledge them as at the end of the source.
        Ended::Idle if flags.common.stages.transform() && report.stranded == 0 => Ended::Eof,
        ended => ended,
    };
    fan_out::end(flags, session, sink, ended)
}

/// Waits for the peers of all sinks together. The wait is part of the transfer: of its time, and
/// the idle limit applies.
pub fn wait_for_peers(
    session: &mut Session,
    sinks: &[Opened],
    ended: Ended,
    idle: Option<Duration>,
) -> Vec<Result<(), Problem>> {
    let start = Instant::now();
    let all: Vec<&Opened> = sinks.iter().collect();
    let done = Opened::finish_all(&all, ended, idle);
    session.add_wait(start.elapsed());
    let mut report = |sink: &Opened, bytes: u64| {
        if bytes > 0 {
            // Without a limit, the transfer has done all that a loop of writes
            // does.
            if idle.is_some() {
                session.end(Ended::Idle);
            }
            session.print(&unacknowledged_line(bytes, &sink.shown));
        }
    };
    let all = sinks.iter().zip(done);
    let reported = all.map(|(sink, done)| {
        report(sink, done?);
        Ok(())
    });
    reported.collect()
}

fn transfer(
    session: &mut Session,
    named: &OsStr,
    (source, sink): (&Opened, &Opened),
    request: Request,
) -> Result<Report, Problem> {
    endpoint::check_sparse(sink.as_fd(), &sink.shown, &request)?;
    let mut stages = None;
    if sink.replace {
        // The sink is truncated only after all other checks.
        let (from, to) = (source.as_fd(), sink.as_fd());
        let before = endpoint::check_alias(from, &source.shown, to, &sink.shown)?;
        stages = Some(session.prepare((from, &source.shown), (to, &sink.shown), &request)?);
        sink.empty()?;
        endpoint::check_not_emptied(from, &source.shown, &before, &sink.shown)?;
    }
    let request = Request {
        source_unshared: source.is_owned(),
        sink_unshared: sink.is_owned(),
        ..request
    };
    session.warn_of_offset((source.as_fd(), &source.shown), &request);
    let total = request::total(source.as_fd(), &request);
    session.transfer(
        named,
        (source.as_fd(), &source.shown),
        (sink.as_fd(), &sink.shown),
        request,
        (total, stages),
    )
}
