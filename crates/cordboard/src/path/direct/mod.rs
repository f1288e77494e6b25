//! `O_DIRECT`: the device reads a block into memory and writes it from there,
//! and the CPU touches none of it. Each block's buffer is shared by its read
//! and its write, as in the paper, and several blocks are in flight in any
//! order. Since Linux 2.4.10; by `io_uring(7)` since Linux 5.13, by a few
//! threads if that is missing or refused.
//!
//! An unaligned head or tail, of less than a page, goes through the page cache;
//! the kernel keeps the two coherent (`open(2)`, NOTES).
//!
//! References: `open(2)`, `statx(2)`, `io_uring_enter(2)`, `cachestat(2)`.

mod adaptive;
mod backend;
mod block_engine;
mod budget;
mod buffered;
mod pace;
mod places;
mod reopened;
mod room;
mod takes;
#[cfg(test)]
mod tests;
mod threads;
mod uring;
mod window;

pub(super) use room::Room;
pub(crate) use takes::{takes, worth_asking};

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::fs::OFlags;

use self::block_engine::{Block, BlockEngine, Outcome};
use self::budget::Reservation;
use self::pace::Pace;
use self::places::{account, congruent, offsets};
use self::reopened::Cached;
use self::window::Window;
use crate::endpoint::{Endpoint, Kind, Side};
use crate::errno::Errno;
use crate::path::flow::{Flow, SHORT_BURSTS};
use crate::path::step::Step;
use crate::path::verdict::Verdict;
use crate::report::BestSetting;
use crate::request::Why;
use crate::sys::{Arena, LARGEST_ARENA};

/// Bytes by which the sink is lengthened at a time: a transfer that is killed
/// leaves no more zeros than this after its last byte.
const GROWTH: u64 = 4 << 30;

/// | errno | verdict | evidence |
/// |---|---|---|
/// | `EINVAL` | the block again through the page cache; twice in a row: declined | a write that `RLIMIT_FSIZE` cuts short of a boundary (`generic_write_checks`); alignment stricter than `statx(2)` says |
/// | `EOPNOTSUPP`, `ENOTBLK` | declined | no direct I/O after all, or not at this offset: `iomap_dio_rw` |
/// | `ENOMEM` | declined | no memory for the requests |
/// | a ring that accepts nothing, with nothing in flight | declined | no memory for requests: see `uring.rs` |
/// | `EAGAIN`, `EINTR`, `ECANCELED` | the block again through the page cache | given up for reasons of the ring |
/// | anything else (`EIO`, `ENODATA`, `EILSEQ`; `ENOSPC`, `EDQUOT`, `EFBIG`) | the block again by buffered I/O (`buffered.rs`), and by direct I/O if that fails, in ever smaller pieces, which finds the last page that succeeds | a block has many sectors, of which one may be bad |
pub(crate) struct Direct {
    // Before the arena, which owns the blocks' memory.
    ring: Box<dyn BlockEngine>,
    arena: Arena,
    _reservation: Reservation,
    pace: Pace,
    window: Window,
    /// Bytes in the sink without a gap before them, not yet counted.
    uncounted: u64,
    room: Option<Room>,
    source: Cached,
    sink: Cached,
    unit: u64,
    /// The last grant was too short, and the schedule knows the unit.
    is_asked: bool,
    /// Offsets of the next block to begin.
    next: (u64, u64),
    /// The sink's offset up to which blocks are counted.
    counted: u64,
    /// The source's offset up to which it is read directly before the state is
    /// checked again.
    until: u64,
    /// The source's offset up to which buffered I/O is used.
    buffered_until: u64,
    /// The end of the source when it was last queried.
    found_end: u64,
    /// Other processes have read the rest, as of that moment.
    is_taken: bool,
    /// The largest piece, each synced, after a block has failed. 0: any size,
    /// not synced.
    retry_length: u64,
    /// The first error of a sync: the transfer ends with it.
    sync_error: Option<Errno>,
    /// The last block was refused as unaligned.
    refused: bool,
    completed: Vec<(usize, Outcome)>,
}

impl Direct {
    /// Opens both files again and allocates memory; nothing is moved yet.
    pub(crate) fn start(flow: &mut Flow<'_>) -> Result<Direct, Why> {
        let places = offsets(flow)?;
        let files = reopened::for_direct_io(flow)?;
        let none = "the file system does not support direct I/O";
        let alignment = |side: &Endpoint<'_>| side.direct_alignment().ok_or(none);
        let unit = places::unit(
            alignment(flow.source.endpoint())?,
            alignment(flow.sink.endpoint())?,
        )?;
        congruent(places, unit)?;
        let facts = flow.source.facts();
        let there = facts
            .size
            .map_or(u64::MAX, |size| size.saturating_sub(places.0));
        // A quarter of it, so that much is in flight for most of the time; and
        // other transfers need memory too.
        let wanted = (there.min(flow.allowance.remaining()) / 4).min(LARGEST_ARENA as u64);
        let reservation = Reservation::take(wanted.next_power_of_two())
            .ok_or("other transfers use up the memory for blocks")?;
        let arena = Arena::with_capacity(reservation.bytes())?;
        let pace = Pace::new(flow, unit as usize, arena.len())
            .ok_or("the block size is smaller than direct I/O allows")?;
        let room = match flow.sink.kind() {
            Kind::File => Some(Room::new(flow.sink.fd(), flow.sink.facts())?),
            _ => None,
        };
        // Blocks use offsets until the end of the transfer, so all bytes are
        // claimed now.
        let all = there.min(flow.allowance.remaining());
        flow.claim_both(usize::try_from(all).unwrap_or(usize::MAX));
        congruent(offsets(flow)?, unit)?;
        Ok(Direct {
            ring: backend::start(flow.options.backend, files, reopened::on_fuse(flow), &arena)?,
            arena,
            _reservation: reservation,
            pace,
            window: Window::default(),
            uncounted: 0,
            room,
            source: Cached::new(flow.source.endpoint(), OFlags::RDONLY)?,
            sink: Cached::new(flow.sink.endpoint(), OFlags::WRONLY)?,
            unit,
            is_asked: false,
            next: (0, 0),
            counted: 0,
            until: 0,
            found_end: 0,
            is_taken: false,
            buffered_until: 0,
            retry_length: 0,
            sync_error: None,
            refused: false,
            completed: Vec::new(),
        })
    }

    /// Collects completions, and counts blocks that are in the sink without a
    /// gap before them. Returns how many bytes that is.
    fn reap(&mut self, flow: &mut Flow<'_>, wait: bool) -> Result<u64, Verdict> {
        let collected = self.collect(wait);
        let bytes = self.count(flow)?;
        match collected {
            Ok(()) => Ok(bytes),
            Err(Errno::EINTR) => Err(Verdict::Moved(bytes)),
            Err(errno) => Err(Verdict::Failed(Side::Sink, errno)),
        }
    }

    /// Collects completions.
    fn collect(&mut self, wait: bool) -> Result<(), Errno> {
        let collected = self.ring.reap(wait, &mut self.completed);
        let mut arrived = 0;
        for (slot, outcome) in self.completed.drain(..) {
            arrived += self.window.learn(slot, outcome);
        }
        self.refused &= arrived == 0;
        self.pace.learn(arrived);
        self.uncounted += self.window.advance();
        collected
    }

    /// Counts completed bytes. If a position cannot be moved, they stay to be
    /// counted.
    fn count(&mut self, flow: &mut Flow<'_>) -> Result<u64, Verdict> {
        account(flow, self.uncounted)?;
        let bytes = std::mem::take(&mut self.uncounted);
        self.counted += bytes;
        if bytes > 0 {
            self.is_filled_to(self.counted);
        }
        Ok(bytes)
    }

    fn is_filled_to(&mut self, end: u64) {
        if let Some(room) = &mut self.room {
            room.fill_to(end);
        }
    }

    /// Prepares the next range, with nothing in flight: checks what the source
    /// has at the current offsets. `false` if the next bytes cannot be moved by
    /// direct I/O.
    fn look_ahead(&mut self, flow: &mut Flow<'_>) -> Result<bool, Why> {
        let from = flow.source.place()?;
        let end = flow.source_size()?;
        self.found_end = end;
        let ahead = end
            .saturating_sub(from)
            .min(flow.allowance.remaining())
            .min(flow.allowance.extent());
        // The bytes by which the source has grown are not claimed yet.
        let claimed = flow.claim_found(ahead, end);
        self.is_taken = claimed.is_none();
        let Some(mut ahead) = claimed.map(|ahead| ahead.min(GROWTH)) else {
            return Ok(false);
        };
        let (from, to) = offsets(flow)?;
        congruent((from, to), self.unit)?;
        if from % self.unit != 0 || from < self.buffered_until || ahead < self.unit {
            return Ok(false);
        }
        if let Some(room) = &mut self.room {
            let there = room
                .grow(flow.sink.fd(), to, to + ahead, &mut flow.sink_closed)?
                .saturating_sub(to);
            if there < ahead {
                // No space for all: not requested again for each piece.
                self.buffered_until = from + there + self.arena.len() as u64;
                self.retry_length = 0;
            }
            ahead = there;
        }
        let whole = ahead / self.unit * self.unit;
        if whole == 0 {
            return Ok(false);
        }
        self.next = (from, to);
        self.counted = to;
        // Bytes or holes before it. Otherwise it may be past the sink's end.
        if flow.written() > 0 {
            self.is_filled_to(to);
        }
        self.until = from + whole;
        Ok(true)
    }

    /// Begins as many blocks as the flow control and the allowance permit.
    fn fill(&mut self, flow: &Flow<'_>) {
        if self.window.is_broken() {
            return;
        }
        let (count, block) = self.pace.allows(self.window.pending(), flow.goal);
        for _ in 0..count {
            let (from, to) = self.next;
            // Blocks in flight count as taken once they are in the sink.
            let allowed = flow.allowance.now().saturating_sub(to - self.counted);
            let allowed = allowed / self.unit * self.unit;
            let wanted = (self.until - from).min(block as u64);
            let length = wanted.min(allowed);
            if length < wanted && flow.allowance.now() < flow.allowance.remaining() {
                // A pause or a schedule limits the rate, and not the device.
                self.pace.interrupt();
            }
            if length == 0 {
                return;
            }
            let Some(memory) = self.arena.take(length as usize) else {
                return;
            };
            let Some(slot) = self.window.open(length) else {
                return;
            };
            let block = Block {
                slot,
                memory,
                from,
                to,
            };
            if self.ring.submit(block).is_err() {
                return self.window.withdraw();
            }
            self.next = (from + length, to + length);
        }
    }

    /// Runs one step; returns the bytes that were counted, or the verdict.
    fn advance(&mut self, flow: &mut Flow<'_>) -> Result<u64, Verdict> {
        let mut moved = self.reap(flow, false)?;
        if self.window.is_idle() {
            if let Some(verdict) = self.broken(flow) {
                return Err(verdict);
            }
            if let Some(errno) = self.settled_sync_error(flow) {
                return Err(Verdict::Failed(Side::Sink, errno));
            }
            if flow.allowance.now() == 0 {
                // The size, a hole or a pause, which the transfer handles.
                self.pace.interrupt();
                return Ok(moved);
            }
            let direct =
                self.next.0 < self.until || self.look_ahead(flow).map_err(Verdict::Declined)?;
            if !direct {
                return match self.buffered_piece(flow) {
                    Verdict::Moved(n) => Ok(moved + n),
                    verdict if moved == 0 => Err(verdict),
                    // The next step returns the same.
                    _ => Ok(moved),
                };
            }
        }
        self.fill(flow);
        if self.window.is_idle() && flow.allowance.is_paced() && flow.allowance.now() < self.unit {
            // The schedule's next grant is no smaller than a unit, unless its bursts are.
            let declines = self.is_asked && moved == 0 && flow.allowance.is_less_than(self.unit);
            self.is_asked = moved == 0;
            return match declines {
                true => Err(Verdict::Declined(SHORT_BURSTS.into())),
                false => Ok(moved),
            };
        }
        if self.window.is_idle() {
            let why = "the kernel accepts no blocks";
            return (moved > 0)
                .then_some(moved)
                .ok_or(Verdict::Declined(why.into()));
        }
        // No need to wait with something to report.
        moved += self.reap(flow, flow.mode.may_sleep() && moved == 0)?;
        if moved == 0 && !flow.mode.may_sleep() && !self.window.is_idle() {
            return Err(Verdict::Pending);
        }
        Ok(moved)
    }
}

impl Step for Direct {
    fn step(&mut self, flow: &mut Flow<'_>) -> Verdict {
        match (self.advance(flow), self.sync_error) {
            (Ok(bytes), _) => Verdict::Moved(bytes),
            (Err(Verdict::Ended | Verdict::Declined(_) | Verdict::Failed(..)), Some(errno)) => {
                Verdict::Failed(Side::Sink, errno)
            }
            (Err(verdict), _) => verdict,
        }
    }

    fn knows_the_end(&self) -> bool {
        true
    }

    fn completions(&self) -> Option<BorrowedFd<'_>> {
        self.ring.fd()
    }

    fn has_completions(&self) -> bool {
        true
    }

    fn poll_interval(&self) -> Option<Duration> {
        self.ring.poll_interval()
    }

    fn pending(&self) -> (u32, u32) {
        self.window.pending()
    }

    fn in_flight(&self) -> u64 {
        match self.window.is_idle() {
            true => 0,
            false => self.next.1.saturating_sub(self.counted),
        }
    }

    fn unit(&self) -> u64 {
        self.unit
    }

    fn best(&self) -> Option<BestSetting> {
        self.pace.best()
    }

    fn wind_down(&mut self, flow: &mut Flow<'_>) -> Verdict {
        self.ring.cancel();
        match (self.collect(false), self.count(flow)) {
            // Even if the bytes cannot be counted.
            (Ok(()) | Err(Errno::EINTR), _) if !self.window.is_idle() => Verdict::Pending,
            // `quiesce` reports the failure.
            _ => Verdict::Ended,
        }
    }

    /// The bytes that the sink has without a gap are known only afterwards.
    /// Bytes after the first gap do not count; if they lengthened the sink,
    /// they are cut off again.
    fn quiesce(&mut self, flow: &mut Flow<'_>) -> Verdict {
        self.ring.cancel();
        // Waits even if the bytes cannot be counted: blocks in flight still
        // reach the sink.
        while !self.window.is_idle() {
            match self.collect(true) {
                Ok(()) | Err(Errno::EINTR) => {}
                Err(errno) => {
                    let _ = self.count(flow);
                    return Verdict::Failed(Side::Sink, errno);
                }
            }
        }
        let counted = self.count(flow);
        let _ = self.window.give_up();
        self.ring.retire();
        let trimmed = match (&mut self.room, offsets(flow)) {
            (Some(room), Ok((_, to))) => room.trim(flow.sink.fd(), to, &mut flow.sink_closed),
            // The unfilled part of the sink stays.
            (Some(_), Err(errno)) => Err(errno),
            (None, _) => Ok(()),
        };
        // The transfer may have ended, by a cancellation or at its size, before
        // the error was reported.
        match (self.sync_error, counted, trimmed) {
            (None, Err(verdict), _) => verdict,
            (Some(errno), ..) | (_, _, Err(errno)) => Verdict::Failed(Side::Sink, errno),
            _ => Verdict::Ended,
        }
    }

    fn drop_without_close(self: Box<Self>) {
        let Direct {
            ring,
            arena,
            _reservation: reservation,
            source,
            sink,
            ..
        } = *self;
        std::mem::forget((source, sink));
        if !ring.drop_without_close() {
            std::mem::forget((arena, reservation));
        }
    }

    fn finish(&mut self, flow: &mut Flow<'_>) {
        flow.room = self.room.take().map(Box::new);
        // A failure is retried, and reported, at the end.
        let _ = flow.trim();
        let own = [self.ring.take_sink(), self.sink.take()];
        own.into_iter().flatten().for_each(|fd| flow.close_sink(fd));
    }
}
