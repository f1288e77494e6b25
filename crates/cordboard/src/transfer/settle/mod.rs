//! Settling: the end of a transfer. No byte that was read is lost, and the counts
//! become final.
//!
//! A settlement takes turns, as the transfer does: blocks in flight complete,
//! buffered bytes go to the sink, the rest goes back, the sink gets its length and
//! is synced. A runner may do other work between two turns.

mod ending;
mod give_back;
#[cfg(test)]
mod sync_tests;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::endpoint::{Side, resets};
use crate::errno::Errno;
use crate::path;
use crate::report::{Ended, Outcome, Report};
use crate::request::{DataPath, Declined, Why};
use crate::transfer::turn::{Turn, Wait};
use crate::transfer::wait::{Interest, Waiter};
use crate::transfer::{Control, Transfer};
use ending::Ending;
use give_back::HandedBack;

/// The number of consecutive interruptions that are retried while buffered bytes
/// are written or the sink is synced: more are taken as a refusal by the file
/// system.
const INTERRUPTIONS: u32 = 32;

/// The remaining work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Operations in flight complete.
    Reap,
    /// Buffered bytes go to the sink, as long as it accepts them without blocking.
    Drain { interruptions: u32 },
    /// The rest goes back to the source or to the caller, and the sink gets its
    /// length.
    Close,
    /// `fsync(2)`.
    Sync {
        since: Option<Duration>,
        interruptions: u32,
    },
    /// The report.
    Report,
}

/// The result of one turn of a settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    /// Take another turn.
    Again,
    /// Blocks are in flight: take another turn when they have completed.
    Wait(Wait),
    /// The report can be made.
    Done,
}

/// A transfer that has ended and is not settled yet.
pub(crate) struct Settlement<'a> {
    transfer: Transfer<'a>,
    ending: Ending,
    phase: Phase,
    start: Duration,
    back: HandedBack,
}

impl<'a> Settlement<'a> {
    /// Begins to settle a transfer that was started at `start` and has ended with
    /// this turn.
    pub(crate) fn new(transfer: Transfer<'a>, turn: &Turn, start: Duration) -> Settlement<'a> {
        Settlement {
            transfer,
            ending: Ending::of(turn),
            phase: Phase::Reap,
            start,
            back: HandedBack {
                stranded: None,
                bytes: 0,
            },
        }
    }

    /// The transfer, whose descriptors are waited for.
    pub(crate) fn transfer(&self) -> &Transfer<'a> {
        &self.transfer
    }

    /// Continues as far as it can without a wait. `may_wait`: it may wait for blocks in flight instead of
    /// returning [`Settled::Wait`]. Calls on files may block in the kernel
    /// nevertheless: see [`Transfer::end_may_block`].
    pub(crate) fn advance(&mut self, waiter: &mut dyn Waiter, may_wait: bool) -> Settled {
        self.phase = match self.phase {
            Phase::Reap => {
                if !may_wait && self.transfer.reap_completions() {
                    return Settled::Wait(Wait::completions(&self.transfer));
                }
                self.reap()
            }
            Phase::Drain { interruptions } => match self.drain(waiter, interruptions) {
                Some(interruptions) => Phase::Drain { interruptions },
                None => Phase::Close,
            },
            Phase::Close => self.close(),
            Phase::Sync {
                since,
                interruptions,
            } => self.sync(waiter, since, interruptions),
            Phase::Report => return Settled::Done,
        };
        match self.phase {
            Phase::Report => Settled::Done,
            _ => Settled::Again,
        }
    }

    /// Makes the report; the caller still [closes](Transfer::close) the transfer.
    pub(crate) fn finish(mut self, waiter: &mut dyn Waiter) -> (Outcome, Transfer<'a>) {
        while self.advance(waiter, true) != Settled::Done {}
        let Settlement {
            mut transfer,
            ending,
            start,
            back,
            ..
        } = self;
        let declined = transfer.declined();
        let by_path = transfer.by_path();
        let report = Report {
            read: transfer.flow.read(),
            written: transfer.flow.written(),
            stranded: back.bytes,
            ended: ending.ended,
            failed: ending.failed,
            errno: ending.errno,
            path: by_path.iter().map(|one| one.path).collect(),
            by_path,
            declined,
            truncated: transfer.flow.truncated(),
            dropped: transfer.flow.dropped(),
            stages: transfer.flow.stages.report(),
            elapsed: waiter.now().saturating_sub(start),
        };
        let stranded = back.stranded;
        (Outcome { report, stranded }, transfer)
    }

    /// As [`Transfer::drop_without_close`].
    pub(crate) fn drop_without_close(self) {
        std::mem::forget(self.back);
        self.transfer.drop_without_close();
    }

    /// Omits `fsync(2)`, or its repetition: it may take long, and nothing reports its result.
    pub(crate) fn omit_sync(&mut self) {
        self.transfer.request.sync = false;
        if matches!(self.phase, Phase::Sync { .. }) {
            self.phase = Phase::Report;
        }
    }

    /// Waits until no operation is in flight.
    fn reap(&mut self) -> Phase {
        let (transfer, ending) = (&mut self.transfer, &mut self.ending);
        transfer.quiesce();
        if let Some(path::Verdict::Failed(side, errno)) = transfer.quiesced {
            ending.fail(side, errno);
        }
        if let (Some(Side::Source), Some(errno)) = (ending.failed, ending.errno) {
            // Another transfer may read the same connection.
            resets::note(transfer.flow.source.endpoint(), errno);
        }
        if !matches!(ending.ended, Ended::Cancelled | Ended::Idle) {
            return Phase::Close;
        }
        if transfer.transforms() {
            // Input that is inside the stages cannot go back to the source, and a
            // few compressed bytes can become gigabytes.
            transfer.put_back();
        }
        transfer.flow.allowance.cut_short();
        transfer.flow.set_may_sleep(false);
        Phase::Drain { interruptions: 0 }
    }

    /// Takes one step that writes buffered bytes. Nothing more is read, so the
    /// phase terminates: at most one buffer is left, or the stages' output for the
    /// bytes inside them. Returns the number of consecutive interrupted steps;
    /// `None`: nothing is left, or the sink accepts no more.
    fn drain(&mut self, waiter: &mut dyn Waiter, interruptions: u32) -> Option<u32> {
        let transfer = &mut self.transfer;
        if !transfer.holds() {
            return None;
        }
        let interest = Interest::of(transfer.flow.sink.endpoint(), true);
        match waiter.wait(&interest, Some(Duration::ZERO)) {
            // A sink has no error to report before a step.
            Ok(wakeup) if wakeup.ready => {
                let _ = transfer.is_ready(Side::Sink, wakeup);
            }
            _ => return None,
        }
        transfer.flow.clear_interrupted();
        match transfer.step() {
            Turn::Moved(0) if transfer.flow.interrupted().is_some() => {
                (interruptions < INTERRUPTIONS).then_some(interruptions + 1)
            }
            // Also for no bytes: a message may be empty.
            Turn::Moved(_) => Some(0),
            // Not if no path is left: then no write has failed.
            Turn::Failed(side, Some(errno)) if transfer.current.is_some() => {
                self.ending.fail(side, errno);
                None
            }
            _ => None,
        }
    }

    fn close(&mut self) -> Phase {
        let (transfer, ending) = (&mut self.transfer, &mut self.ending);
        self.back = transfer.hand_back();
        if let Some(walk) = &mut transfer.walk
            && let Err(errno) = walk.end(&mut transfer.flow)
        {
            // A hole that was not made does not count.
            ending.fail(Side::Sink, errno);
        }
        if let Some((_, path)) = &mut transfer.current {
            if let Some(errno) = path.unreported() {
                ending.fail(Side::Source, errno);
            }
            if let Some(errno) = path.lacked_memory() {
                ending.fail(None, errno);
            }
            path.finish(&mut transfer.flow);
        }
        transfer.flow.give_pipes_back();
        let trimmed = transfer.flow.trim().err();
        // The trim may have closed a description, too.
        for errno in transfer.flow.sink_closed.into_iter().chain(trimmed) {
            ending.fail(Side::Sink, errno);
        }
        if let Some(preallocation) = &transfer.preallocation {
            preallocation.end(&transfer.flow);
        }
        transfer.flow.unclaim();
        if ending.ended == Ended::Eof && transfer.source_was_truncated() {
            ending.fail(Side::Source, Errno::ENODATA);
        }
        // No sync after a cancellation: the caller needs the thread.
        match transfer.request.sync && !matches!(ending.ended, Ended::Error | Ended::Cancelled) {
            true => Phase::Sync {
                since: None,
                interruptions: 0,
            },
            false => Phase::Report,
        }
    }

    /// Calls `fsync(2)` once. After `EINTR` from a signal of the caller, the
    /// transfer is cancelled if that was requested, and the sync is repeated
    /// otherwise, even if it has already taken longer than the idle limit. But some
    /// file systems in user space return `EINTR` each time: more than 32 of them
    /// are a failure, once the idle limit has passed.
    fn sync(
        &mut self,
        waiter: &mut dyn Waiter,
        since: Option<Duration>,
        interruptions: u32,
    ) -> Phase {
        let since = since.unwrap_or_else(|| waiter.now());
        let Err(errno) = rustix::fs::fsync(self.transfer.flow.sink.fd()) else {
            return Phase::Report;
        };
        let interrupted = errno == rustix::io::Errno::INTR;
        let control = self.transfer.control.as_ref();
        if interrupted && (waiter.is_cancelled() || control.is_some_and(Control::is_cancelled)) {
            self.ending.ended = Ended::Cancelled;
            return Phase::Report;
        }
        let interruptions = interruptions.saturating_add(1);
        let mut idle = || {
            let limit = self.transfer.request.idle;
            limit.is_some_and(|limit| waiter.now().saturating_sub(since) >= limit)
        };
        if !interrupted || interruptions > INTERRUPTIONS && idle() {
            self.ending.fail(Side::Sink, errno.into());
            return Phase::Report;
        }
        Phase::Sync {
            since: Some(since),
            interruptions,
        }
    }
}

impl<'a> Transfer<'a> {
    /// Settles the transfer and closes the descriptors.
    pub(crate) fn settle(self, turn: &Turn, waiter: &mut dyn Waiter, start: Duration) -> Outcome {
        let (mut outcome, open) = Settlement::new(self, turn, start).finish(waiter);
        outcome.report.closed(open.close(false));
        outcome
    }

    /// Waits until no operation of the transfer is in flight.
    pub(crate) fn quiesce(&mut self) {
        if self.quiesced.is_none()
            && let Some((name, path)) = &mut self.current
        {
            let before = self.flow.read();
            self.quiesced = Some(path.quiesce(&mut self.flow));
            self.used.note(*name, before, self.flow.read());
        }
    }

    /// Reaps completed operations; returns true if there are more, which
    /// [`Transfer::completions`] reports.
    pub(crate) fn reap_completions(&mut self) -> bool {
        let Some((name, path)) = &mut self.current else {
            return false;
        };
        let before = self.flow.read();
        let more = path.wind_down(&mut self.flow) == path::Verdict::Pending;
        self.used.note(*name, before, self.flow.read());
        more
    }

    /// Returns whether settling, or closing the descriptors, may block.
    pub(crate) fn end_may_block(&self) -> bool {
        !self.end_never_blocks() || self.close_may_linger()
    }

    /// Returns whether settling never blocks: nothing is synced, and neither side
    /// is a file, on which any call may block.
    pub(crate) fn end_never_blocks(&self) -> bool {
        self.never_blocks() && !self.request.sync
    }

    /// Returns whether the source was truncated, or is a block device that has become
    /// smaller: it ended before the size that it had when the transfer began, and its present
    /// size agrees. (A file system with false sizes still reports the old one.) A read behind
    /// the end of a device returns 0, as that of a file (`blkdev_read_iter`, block/fops.c).
    fn source_was_truncated(&self) -> bool {
        let facts = self.flow.source.facts();
        let (true, Some(size)) = (facts.kind.is_cached(), facts.size) else {
            return false;
        };
        let start = match (self.request.source_offset, facts.position) {
            (Some(offset), _) => offset,
            (None, Some(position)) => position,
            (None, None) => return false,
        };
        if start + self.flow.read() >= size {
            return false;
        }
        let now = self.flow.source_size();
        // Another process that shares the position may have read the rest.
        let here = match self.flow.source.is_at_position() {
            true => self.flow.source.offset(),
            false => Some(start + self.flow.read()),
        };
        matches!((now, here), (Ok(now), Some(here)) if now < size && here < size)
    }

    /// Returns the paths that were ranked before the last one used: those that the
    /// route excluded for a reason of this pair, then those that declined.
    fn declined(&self) -> Vec<Declined> {
        let mut all: Vec<Declined> = self
            .route
            .excluded
            .iter()
            .filter(|d| !matches!(d.why, Why::Kinds(_)) && self.ranked_before_use(d.path))
            .cloned()
            .collect();
        all.extend(self.declined.iter().cloned());
        all
    }

    fn ranked_before_use(&self, path: DataPath) -> bool {
        let Some(used) = self.used.latest() else {
            return true;
        };
        let rank = |p: DataPath| self.route.order.iter().position(|o| *o == p);
        rank(path) < rank(used)
    }
}
