//! The end of each sink, and the account.

use std::time::Duration;

use super::block::{self, Block};
use super::outcome::{FanOutOutcome, SinkEnded, SinkReport};
use super::outlet::{Outlet, Target};
use super::policy::OnSlow;
use super::rest::Rest;
use crate::compose::{self, Channel, Intake, bytes_of, content, excuse_reader, length_of};
use crate::errno::Errno;
use crate::report::{Ended, Outcome, Report};

/// Ends a sink that has every byte. A private channel is closed, and its transfer then
/// ends.
pub(super) fn complete(outlet: &mut Outlet<'_>) {
    outlet.ended = Some(SinkEnded::Complete);
    // It has kept up so far: its patience begins anew.
    (outlet.debt, outlet.waited_for) = (Duration::ZERO, None);
    outlet.give_back();
    close_channel(outlet);
}

fn close_channel(outlet: &mut Outlet<'_>) {
    outlet.target = match std::mem::replace(&mut outlet.target, Target::Sink) {
        Target::Private(channel, running) => {
            let reader = channel.close_writer();
            running.source_is_complete();
            Target::Ending(reader, running)
        }
        target => target,
    };
}

/// Ends a sink for which the others, or the caller, have waited too long. Its transfer may take a while
/// to end, for which no sink waits.
pub(super) fn detach(outlet: &mut Outlet<'_>) {
    cancel(outlet);
    outlet.ended = Some(SinkEnded::Detached);
}

/// Ends a sink for which neither other sinks nor the caller wait any more. The transfer to a
/// complete sink that has accepted every byte is not cancelled.
pub(super) fn stop(outlet: &mut Outlet<'_>) {
    let lacks_bytes = outlet.is_running() && !outlet.has_all();
    if outlet.is_live() || lacks_bytes {
        cancel(outlet);
        outlet.ended = Some(SinkEnded::Stopped);
    }
}

fn cancel(outlet: &Outlet<'_>) {
    if let Some(running) = outlet.running() {
        running.cancel();
    }
}

/// Returns whether nothing more happens to a sink.
pub(super) fn has_ended(outlet: &mut Outlet<'_>) -> bool {
    outlet.settled = match (&outlet.ended, &outlet.target) {
        (None, _) => false,
        (Some(SinkEnded::Complete), Target::Ending(_, running)) => running.status().ended,
        _ => true,
    };
    outlet.settled
}

/// Why a fan-out ended, if not by the end of the source.
#[derive(Debug, Default)]
pub(super) struct Ending {
    pub(super) ended: Option<Ended>,
    pub(super) failed_sink: Option<usize>,
    pub(super) errno: Option<Errno>,
    /// The errno is that of a wait.
    pub(super) wait_failed: bool,
    /// The first pipe may have a part of a block whose page could not be read.
    pub(super) lost_page: bool,
}

/// Collects the account. `block`: bytes that no sink has been given.
pub(super) fn outcome(
    first: &Channel,
    mut intake: Intake<'_>,
    outlets: Vec<Outlet<'_>>,
    mut block: Option<Block>,
    ending: Ending,
) -> FanOutOutcome {
    intake.stop(Ended::Cancelled);
    // Every live sink has been given all earlier blocks.
    let mut left = Vec::new();
    while !ending.lost_page
        && let Some(mut next) =
            (block.take()).or_else(|| block::next(&mut intake, first).ok().flatten())
    {
        match next.load(first.reader()) {
            Ok(bytes) => left.push(bytes.to_vec()),
            Err(_) => break,
        }
        if let Block::Taken = next {
            break;
        }
    }
    let messages = first.keeps_messages();
    let source = match outlets.iter().any(takes_all) {
        true => intake.into_outcome(),
        // No sink accounts for them.
        false => {
            let given = outlets.iter().map(|outlet| outlet.read).max().unwrap_or(0);
            returned(
                intake.into_outcome(),
                given,
                std::mem::take(&mut left),
                messages,
            )
        }
    };
    let Outcome { report, stranded } = source;
    let policies: Vec<OnSlow> = outlets.iter().map(|outlet| outlet.policy).collect();
    let sinks: Vec<SinkReport> = (outlets.into_iter())
        .map(|outlet| sink_report(outlet, report.written, &left))
        .collect();
    // A transfer may fail after the last byte was read, or at its `fsync(2)`.
    let at_the_end = || {
        let is_required = |(sink, policy): (&SinkReport, &OnSlow)| {
            sink.ended == SinkEnded::Failed && *policy == OnSlow::Block
        };
        let was_waited_for = matches!(ending.ended, None | Some(Ended::Idle));
        was_waited_for.then(|| sinks.iter().zip(&policies).position(is_required))?
    };
    // No sink is left, and at least one has failed.
    let failed = || {
        let is_lost =
            |sink: &SinkReport| matches!(sink.ended, SinkEnded::Failed | SinkEnded::Detached);
        let has_failed = |sink: &SinkReport| sink.ended == SinkEnded::Failed;
        let none_is_left = sinks.iter().all(is_lost);
        none_is_left.then(|| sinks.iter().position(has_failed))?
    };
    let failed_sink = ending.failed_sink.or_else(at_the_end).or_else(failed);
    let ended = match (ending.ended, failed_sink) {
        (None | Some(Ended::Idle), Some(_)) => Ended::Error,
        (Some(ended), _) => ended,
        (None, None) => report.ended,
    };
    let of_sink = failed_sink.and_then(|sink| sinks[sink].errno);
    FanOutOutcome {
        read: report.written,
        ended,
        failed_sink,
        wait_failed: ending.wait_failed && failed_sink.is_none(),
        errno: of_sink.or(ending.errno).or(report.errno),
        source: report,
        stranded,
        sinks,
    }
}

/// Returns whether the account of a sink has all bytes that were read.
fn takes_all(outlet: &Outlet<'_>) -> bool {
    matches!(outlet.ended, None | Some(SinkEnded::Stopped))
}

/// Adds bytes that have reached no sink to those that have not reached the first pipe.
/// `given`: the number of bytes that were given to a sink. `left`: the bytes behind them up to
/// the first that cannot be read.
fn returned(source: Outcome, given: u64, left: Vec<Vec<u8>>, messages: bool) -> Outcome {
    let Outcome {
        mut report,
        stranded,
    } = source;
    let missing = report.written.saturating_sub(given);
    if missing == 0 && left.is_empty() {
        return Outcome { report, stranded };
    }
    report.written -= missing;
    report.stranded += missing;
    let is_whole = length_of(&left) == missing;
    let mut all = left;
    if is_whole {
        all.extend(bytes_of(stranded));
    }
    let stranded = Some(compose::stranded(all, messages));
    Outcome { report, stranded }
}

/// `read`: all bytes that were read for the sinks. `left`: those that no sink has been given.
fn sink_report(mut outlet: Outlet<'_>, read: u64, left: &[Vec<u8>]) -> SinkReport {
    let messages = outlet.messages;
    outlet.give_back();
    let stopped = takes_all(&outlet);
    let mut passed: Vec<Vec<u8>> = Vec::new();
    let mut written = outlet.delivered;
    let mut transfer = None;
    let target = std::mem::replace(&mut outlet.target, Target::Sink);
    let (reader, running) = match target {
        Target::Sink => (None, None),
        Target::Private(channel, running) => {
            running.cancel();
            (Some(channel.close_writer()), Some(running))
        }
        Target::Ending(reader, running) => (Some(reader), Some(running)),
    };
    if let Some((reader, running)) = reader.zip(running) {
        let Outcome {
            mut report,
            stranded,
        } = running.wait();
        passed.extend(bytes_of(stranded));
        passed.extend(content(&reader, messages));
        written = report.written;
        let is_complete = outlet.ended == Some(SinkEnded::Complete);
        if is_complete && written == outlet.delivered && passed.is_empty() {
            excuse_reader(&mut report);
        }
        if report.ended == Ended::Error && outlet.ended != Some(SinkEnded::Detached) {
            outlet.ended = Some(SinkEnded::Failed);
            outlet.errno = report.errno;
        }
        transfer = Some(report);
    }
    let rest = std::mem::replace(&mut outlet.rest, Rest::None);
    let left = if stopped { left } else { &[] };
    if stopped {
        outlet.read = read;
    }
    let unwritten = readable(passed, outlet.delivered.saturating_sub(written), rest, left);
    // Bytes that cannot be read are counted, although they cannot be handed back.
    let stranded = (outlet.read).saturating_sub(written + outlet.dropped);
    // A transfer that is cancelled does not sync.
    let is_cancelled = |report: &Report| report.ended == Ended::Cancelled;
    let lacks_sync = outlet.sync && transfer.as_ref().is_some_and(is_cancelled);
    let ended = match outlet.ended {
        Some(SinkEnded::Stopped) | None if stranded == 0 && !lacks_sync => SinkEnded::Complete,
        Some(ended) => ended,
        None => SinkEnded::Stopped,
    };
    let unwritten = (stranded > 0).then(|| compose::stranded(unwritten, messages));
    SinkReport {
        read: outlet.read,
        written,
        dropped: outlet.dropped,
        gaps: outlet.gaps,
        stranded,
        ended,
        errno: outlet.errno,
        carried: outlet.carried,
        declined: outlet.declined,
        transfer,
        unwritten,
    }
}

/// Returns the unwritten bytes of a sink up to the first that cannot be read: the caller
/// would take those behind it for the missing ones. `passed`: those that were passed to the
/// transfer to the sink, which were `expected` in number.
fn readable(passed: Vec<Vec<u8>>, expected: u64, mut rest: Rest, left: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut all = passed;
    if length_of(&all) < expected || rest.load().is_err() {
        return all;
    }
    if let Rest::Bytes(bytes, from) = rest {
        all.push(bytes[from..].to_vec());
    }
    all.extend(left.iter().cloned());
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Stranded;

    #[test]
    fn bytes_behind_unreadable_ones_are_counted_and_not_handed_back() {
        let of = |left: &[&[u8]]| {
            let mut report = Report::default();
            (report.read, report.written, report.stranded) = (13, 10, 3);
            let stranded = Some(Stranded::Buffer(b"end".to_vec()));
            let left = left.iter().map(|bytes| bytes.to_vec()).collect();
            let Outcome { report, stranded } =
                returned(Outcome { report, stranded }, 4, left, false);
            assert_eq!((report.read, report.written, report.stranded), (13, 4, 9));
            bytes_of(stranded).concat()
        };
        assert_eq!(of(&[b"abc", b"def"]), b"abcdefend");
        assert_eq!(of(&[b"abc"]), b"abc");
        assert_eq!(of(&[]), b"");
    }
}
