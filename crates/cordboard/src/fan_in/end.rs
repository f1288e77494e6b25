//! The end of each source, and the account.

use super::inlet::Inlet;
use super::ledger::Ledger;
use super::outcome::{FanInOutcome, SourceEnded, SourceReport};
use super::policy::OnFailure;
use crate::compose::{self, bytes_of, excuse_reader, length_of};
use crate::errno::Errno;
use crate::report::{Ended, Outcome, Report};

/// Why a fan-in ended before the ends of all sources.
#[derive(Debug, Default)]
pub(super) struct Ending {
    pub(super) failed_source: Option<usize>,
    pub(super) errno: Option<Errno>,
    /// The sources were silent for the idle limit.
    pub(super) is_idle: bool,
}

impl Ending {
    fn is_early(&self) -> bool {
        self.failed_source.is_some() || self.errno.is_some() || self.is_idle
    }
}

/// A source that has ended.
pub(super) struct Closed {
    report: Report,
    ended: SourceEnded,
    errno: Option<Errno>,
    turns: u64,
    divided: u64,
    /// Bytes that have not entered the channel, in order.
    left: Vec<Vec<u8>>,
}

impl Closed {
    /// Bytes read from the source.
    pub(super) fn read(&self) -> u64 {
        self.report.read
    }

    fn is_stopped(&self) -> bool {
        self.ended == SourceEnded::Stopped
    }
}

/// Takes the outcome of a source that has ended.
pub(super) fn close(mut inlet: Inlet<'_>) -> Closed {
    let errno = inlet.failure();
    let is_broken = inlet.broken.is_some();
    // The transfer still runs only if its channel has failed.
    inlet.intake.stop(Ended::Cancelled);
    let is_stopped = inlet.is_stopped();
    let arrived = inlet.intake.arrived();
    let Outcome { report, stranded } = inlet.intake.into_outcome();
    let ended = match (report.ended, inlet.policy) {
        // Its own failure may have stopped it.
        _ if is_stopped && !is_broken => SourceEnded::Stopped,
        _ if errno.is_some() && inlet.policy == OnFailure::Detach => SourceEnded::Detached,
        _ if errno.is_some() => SourceEnded::Failed,
        (Ended::Size, _) => SourceEnded::Size,
        (Ended::Eof, _) => SourceEnded::Eof,
        _ => SourceEnded::Stopped,
    };
    let divided = (inlet.sorter.as_ref()).map_or(0, |sorter| sorter.records.divided);
    let parts = inlet.sorter.map(|sorter| sorter.into_parts(arrived));
    let (mut left, is_whole) = parts.unwrap_or((Vec::new(), true));
    // The caller would take bytes behind a gap for the missing ones.
    if is_whole {
        left.extend(bytes_of(stranded));
    }
    Closed {
        ended,
        errno,
        turns: inlet.turns,
        divided,
        left,
        report,
    }
}

/// Collects the account. `drained`: the outcome of the transfer to the sink. `left`: the
/// bytes that it has left in the channel.
pub(super) fn outcome(
    drained: Outcome,
    left: Vec<Vec<u8>>,
    closed: Vec<Closed>,
    mut ledger: Ledger,
    ending: Ending,
    messages: bool,
) -> FanInOutcome {
    let Outcome {
        mut report,
        stranded,
    } = drained;
    ledger.accepted(report.written);
    // The end of the reading is not that of the sink.
    let have_ended = ending.is_early() || !closed.iter().any(Closed::is_stopped);
    if have_ended && closed.iter().map(Closed::read).sum::<u64>() == report.written {
        excuse_reader(&mut report);
    }
    let written: Vec<u64> = (0..closed.len()).map(|at| ledger.written(at)).collect();
    let entered: Vec<u64> = (0..closed.len()).map(|at| ledger.left(at)).collect();
    let mut pieces = bytes_of(stranded);
    // The shares are counted, so nothing behind a gap can be assigned.
    if length_of(&pieces) == report.stranded {
        pieces.extend(left);
    }
    let shares = ledger.divide(pieces);
    let shares = shares.into_iter().zip(entered);
    let sources = closed.into_iter().zip(shares).zip(written);
    let sources: Vec<SourceReport> = sources
        .map(|((closed, share), written)| source_report(closed, share, written, messages))
        .collect();
    let is_failed =
        |s: &SourceReport| matches!(s.ended, SourceEnded::Failed | SourceEnded::Detached);
    let all_failed = sources.iter().all(is_failed).then_some(0);
    // The reader may have left with all bytes before the failure of a source was found.
    let failed = sources.iter().position(|s| s.ended == SourceEnded::Failed);
    let found_late = failed.filter(|_| !ending.is_early());
    let failed_source = ending.failed_source.or(all_failed).or(found_late);
    let ended = match report.ended {
        Ended::Eof if failed_source.is_some() || ending.errno.is_some() => Ended::Error,
        Ended::Eof if ending.is_idle => Ended::Idle,
        Ended::Eof if sources.iter().all(|s| s.ended == SourceEnded::Size) => Ended::Size,
        ended => ended,
    };
    let failed_source = failed_source.filter(|_| report.ended == Ended::Eof);
    let wait_failed =
        ended == Ended::Error && report.ended == Ended::Eof && failed_source.is_none();
    let of_source = failed_source.and_then(|source| sources[source].errno);
    FanInOutcome {
        read: sources.iter().map(|source| source.read).sum(),
        written: report.written,
        stranded: sources.iter().map(|source| source.stranded).sum(),
        ended,
        failed_source,
        wait_failed,
        errno: report.errno.or(of_source).or(ending.errno),
        sink: report,
        sources,
    }
}

/// `share`: the bytes of this source that have entered the channel and that the sink has
/// not accepted, as far as they can be read, and their number.
fn source_report(
    closed: Closed,
    (mut share, entered): (Vec<Vec<u8>>, u64),
    written: u64,
    messages: bool,
) -> SourceReport {
    if length_of(&share) == entered {
        share.extend(closed.left);
    }
    let read = closed.report.read;
    // Bytes that cannot be read, or that need more memory than there is, are counted,
    // although they cannot be handed back.
    let stranded = read.saturating_sub(written);
    let unwritten = (stranded > 0).then(|| compose::stranded(share, messages));
    SourceReport {
        read,
        written,
        stranded,
        turns: closed.turns,
        divided: closed.divided,
        ended: closed.ended,
        errno: closed.errno,
        transfer: closed.report,
        unwritten,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source without bytes that has failed after the last wait, or has ended.
    fn closed(errno: Option<Errno>) -> Closed {
        Closed {
            report: Report::default(),
            ended: match errno {
                Some(_) => SourceEnded::Failed,
                None => SourceEnded::Eof,
            },
            errno,
            turns: 0,
            divided: 0,
            left: Vec::new(),
        }
    }

    #[test]
    fn a_failure_that_is_found_late_does_not_replace_the_reason_of_the_end() {
        let ended = |ending: Ending| {
            let drained = Outcome {
                report: Report {
                    ended: Ended::Eof,
                    ..Report::default()
                },
                stranded: None,
            };
            let sources = vec![closed(None), closed(Some(Errno::EIO))];
            let ledger = Ledger::new(sources.len());
            let done = outcome(drained, Vec::new(), sources, ledger, ending, false);
            (done.ended, done.failed_source, done.errno)
        };
        let late = ended(Ending::default());
        assert_eq!(late, (Ended::Error, Some(1), Some(Errno::EIO)));
        let idle = Ending {
            is_idle: true,
            ..Ending::default()
        };
        assert_eq!(ended(idle), (Ended::Idle, None, None));
        let wait = Ending {
            errno: Some(Errno::ENOMEM),
            ..Ending::default()
        };
        assert_eq!(ended(wait), (Ended::Error, None, Some(Errno::ENOMEM)));
    }
}
