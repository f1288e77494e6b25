//! The counters of a running transfer.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::endpoint::Side;
use crate::report::{Dropped, Report};
use crate::request::DataPath;
use crate::transfer::{Next, Transfer, WaitFor};

/// A snapshot of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Bytes taken from the source so far. If blocks move in any order
    /// ([`DataPath::Direct`]), a block counts as read and as written once it and
    /// all blocks before it are in the sink.
    pub read: u64,
    /// Bytes that the sink has accepted so far.
    pub written: u64,
    /// Datagrams dropped so far, which were longer than the sink accepts. They count as read.
    pub dropped: Dropped,
    /// Reads in flight or queued.
    pub pending_reads: u32,
    /// Writes in flight, or waiting for the sink.
    pub pending_writes: u32,
    /// The path in use; the last one if the transfer has ended.
    pub path: DataPath,
    /// The time since the start, up to the end if it has ended.
    pub elapsed: Duration,
    /// Whether the transfer has ended.
    pub ended: bool,
}

impl Status {
    /// Returns the bytes taken from the source that the sink has not accepted yet, without
    /// dropped datagrams: `read - written - dropped.bytes`, or 0 if a stage has produced more
    /// bytes than were read. With such a stage, `read` and `written` count different bytes.
    pub fn in_transit(&self) -> u64 {
        let left = self.read.saturating_sub(self.written);
        left.saturating_sub(self.dropped.bytes)
    }

    /// Returns the average rate since the start, in bytes written per second.
    pub fn rate(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 {
            self.written as f64 / seconds
        } else {
            0.0
        }
    }
}

/// What a transfer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaits {
    /// It does not wait, or for another event.
    Other,
    /// Bytes of its source.
    Source,
    /// The end of a pause, or the next grant of its schedule.
    Permission,
}

/// Counters that one thread writes and all threads may read.
#[derive(Debug)]
pub(super) struct Live {
    start: Instant,
    /// A stage changes the bytes: more may be written than read.
    transforms: bool,
    read: AtomicU64,
    dropped_datagrams: AtomicU64,
    dropped_bytes: AtomicU64,
    written: AtomicU64,
    pending_reads: AtomicU32,
    pending_writes: AtomicU32,
    path: AtomicU8,
    /// An [`Awaits`].
    awaits: AtomicU8,
    /// The longest time that was returned while it ran, or that of the report, with
    /// [`HAS_ENDED`]; in nanoseconds.
    elapsed: AtomicU64,
}

/// The bit of [`Live::elapsed`] of a transfer that has ended.
const HAS_ENDED: u64 = 1 << 63;

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).map_or(HAS_ENDED - 1, |nanos| nanos.min(HAS_ENDED - 1))
}

impl Live {
    pub(super) fn new(transfer: &Transfer<'_>) -> Live {
        let live = Live {
            start: Instant::now(),
            transforms: transfer.transforms(),
            read: AtomicU64::new(0),
            dropped_datagrams: AtomicU64::new(0),
            dropped_bytes: AtomicU64::new(0),
            written: AtomicU64::new(0),
            pending_reads: AtomicU32::new(0),
            pending_writes: AtomicU32::new(0),
            path: AtomicU8::new(0),
            awaits: AtomicU8::new(Awaits::Other as u8),
            elapsed: AtomicU64::new(0),
        };
        live.update(transfer);
        live
    }

    /// Updates the counters; called after each step.
    pub(super) fn update(&self, transfer: &Transfer<'_>) {
        let (reads, writes) = transfer.pending();
        self.pending_reads.store(reads, Ordering::Relaxed);
        self.pending_writes.store(writes, Ordering::Relaxed);
        self.path.store(transfer.path() as u8, Ordering::Relaxed);
        self.count(transfer.counts(), transfer.dropped());
    }

    fn count(&self, (read, written): (u64, u64), dropped: Dropped) {
        // Stored in this order and loaded in the other: no thread sees more written or
        // dropped than read.
        self.read.store(read, Ordering::Release);
        let datagrams = &self.dropped_datagrams;
        datagrams.store(dropped.datagrams, Ordering::Release);
        self.dropped_bytes.store(dropped.bytes, Ordering::Release);
        self.written.store(written, Ordering::Release);
    }

    /// Stores what the transfer does next; called after [`Live::update`].
    pub(super) fn note_next(&self, next: &Next) {
        let awaits = match next {
            Next::Wait(wait) => match wait.target {
                WaitFor::Side(Side::Source) | WaitFor::Backoff(Side::Source) => Awaits::Source,
                WaitFor::Resume | WaitFor::Grant => Awaits::Permission,
                _ => Awaits::Other,
            },
            _ => Awaits::Other,
        };
        self.awaits.store(awaits as u8, Ordering::Release);
    }

    /// Returns what the transfer waits for. Counts that are loaded afterwards contain all that
    /// it has moved before this wait.
    pub(super) fn awaits(&self) -> Awaits {
        let awaits = self.awaits.load(Ordering::Acquire);
        let all = [Awaits::Source, Awaits::Permission];
        let its = all.into_iter().find(|one| *one as u8 == awaits);
        its.unwrap_or(Awaits::Other)
    }

    /// Returns the time since the start, up to the end.
    fn elapsed(&self) -> Duration {
        let now = nanos(self.start.elapsed());
        let shows = |before: u64| (before & HAS_ENDED == 0).then(|| before.max(now));
        let order = Ordering::Relaxed;
        let ended = self.elapsed.fetch_update(order, order, shows).err();
        Duration::from_nanos(ended.map_or(now, |last| last & !HAS_ENDED))
    }

    /// Stores the final counts. The time of the report becomes at least that of each status before
    /// it: the clock of a status begins before the first step.
    pub(super) fn end(&self, report: &mut Report) {
        self.pending_reads.store(0, Ordering::Relaxed);
        self.pending_writes.store(0, Ordering::Relaxed);
        let own = nanos(report.elapsed);
        let ends = |before: u64| Some(before.max(own) | HAS_ENDED);
        let order = Ordering::Relaxed;
        let before = self.elapsed.fetch_update(order, order, ends).unwrap_or(0);
        report.elapsed = report
            .elapsed
            .max(Duration::from_nanos(before & !HAS_ENDED));
        // Bytes that went back to the source count as not read: `read` may
        // decrease.
        self.count((report.read, report.written), report.dropped);
    }

    pub(super) fn snapshot(&self, ended: bool) -> Status {
        let written = self.written.load(Ordering::Acquire);
        let dropped = Dropped {
            bytes: self.dropped_bytes.load(Ordering::Acquire),
            datagrams: self.dropped_datagrams.load(Ordering::Acquire),
        };
        let mut read = self.read.load(Ordering::Acquire);
        if !self.transforms {
            read = read.max(written);
        }
        let path = usize::from(self.path.load(Ordering::Relaxed));
        Status {
            read,
            written,
            dropped,
            pending_reads: self.pending_reads.load(Ordering::Relaxed),
            pending_writes: self.pending_writes.load(Ordering::Relaxed),
            path: DataPath::ALL
                .iter()
                .copied()
                .find(|p| *p as usize == path)
                .unwrap_or(DataPath::ReadWrite),
            elapsed: self.elapsed(),
            ended,
        }
    }
}
