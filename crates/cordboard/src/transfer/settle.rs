//! The end of a transfer: nothing that was read is lost, and the account is
//! closed.

use std::time::Duration;

use super::step::note_use;
use super::turn::Turn;
use super::wait::{Interest, Waiter};
use super::{Control, Transfer};
use crate::endpoint::{Side, resets};
use crate::errno::Errno;
use crate::path::{self, Cursor};
use crate::pipe::Channel;
use crate::report::{Ended, Outcome, Report, Stranded};
use crate::request::{DataPath, Declined, Why};

/// So many calls in a row may be interrupted while what is in hand is passed on,
/// or synced: more are a file system's way to refuse.
const INTERRUPTIONS: u32 = 32;

/// How the transfer ended, as the report will have it.
struct Ending {
    ended: Ended,
    failed: Option<Side>,
    errno: Option<Errno>,
}

impl Ending {
    fn fail(&mut self, side: impl Into<Option<Side>>, errno: Errno) {
        // The first failure is the one that matters.
        if self.ended != Ended::Error {
            (self.ended, self.failed, self.errno) = (Ended::Error, side.into(), Some(errno));
        }
    }
}

impl Transfer<'_> {
    /// Closes the account, and the descriptors.
    pub(crate) fn settle(self, turn: Turn, waiter: &mut dyn Waiter, start: Duration) -> Outcome {
        let (outcome, open) = self.account(turn, waiter, start);
        open.close(false);
        outcome
    }

    /// Closes the account; what is returned with it is still to be
    /// [closed](Transfer::close).
    pub(crate) fn account(
        mut self,
        turn: Turn,
        waiter: &mut dyn Waiter,
        start: Duration,
    ) -> (Outcome, Self) {
        let mut verdict = match turn {
            Turn::Done(ended) => Ending {
                ended,
                failed: None,
                errno: None,
            },
            Turn::Failed(failed, errno) => Ending {
                ended: Ended::Error,
                failed,
                errno,
            },
            // Only ends are settled.
            Turn::Moved(_) | Turn::Blocked(_) | Turn::Pending | Turn::Elsewhere => Ending {
                ended: Ended::Cancelled,
                failed: None,
                errno: None,
            },
        };
        self.quiesce();
        if let Some(path::Verdict::Failed(side, errno)) = self.quiesced {
            verdict.fail(side, errno);
        }
        if let (Some(Side::Source), Some(errno)) = (verdict.failed, verdict.errno) {
            // Somebody else may read it too.
            resets::note(&self.flow.source, errno);
        }
        if matches!(verdict.ended, Ended::Cancelled | Ended::Idle) {
            if self.transforms() {
                // Once in the stages it cannot go back, and a few bytes that
                // are unpacked can be gigabytes.
                self.put_back();
            }
            self.drain(waiter, &mut verdict);
        }
        let unreadable = (self.flow.unreadable.as_ref()).map_or(0, |rest| rest.pipe.held());
        let stranded = self.give_back();
        if let Some(walk) = &mut self.walk
            && let Err(errno) = walk.end(&mut self.flow)
        {
            verdict.fail(Side::Sink, errno);
        }
        if let Some((_, path)) = &mut self.current {
            path.finish(&mut self.flow);
        }
        self.flow.give_pipes_back();
        if let Err(errno) = self.flow.trim() {
            verdict.fail(Side::Sink, errno);
        }
        if let Some(ahead) = &self.preallocation {
            ahead.end(&self.flow);
        }
        self.flow.unclaim();
        if verdict.ended == Ended::Eof && self.source_was_truncated() {
            verdict.fail(Side::Source, Errno::ENODATA);
        }
        // A caller that cancels wants the thread back.
        if self.request.sync && !matches!(verdict.ended, Ended::Error | Ended::Cancelled) {
            self.sync(waiter, &mut verdict);
        }
        let declined = self.declined();
        // Of other bytes than were read, where stages change them.
        let handed_back = match &stranded {
            Some(Stranded::Buffer(bytes)) if self.flow.stages.transforms() => bytes.len() as u64,
            Some(Stranded::Pipe(_)) if self.flow.stages.transforms() => unreadable,
            _ if self.flow.stages.transforms() => 0,
            _ => self.flow.read - self.flow.written,
        };
        let report = Report {
            read: self.flow.read,
            written: self.flow.written,
            stranded: handed_back,
            ended: verdict.ended,
            failed: verdict.failed,
            errno: verdict.errno,
            path: std::mem::take(&mut self.used),
            declined,
            truncated: self.flow.truncated,
            stages: self.flow.stages.report(),
            elapsed: waiter.now().saturating_sub(start),
        };
        (Outcome { report, stranded }, self)
    }

    /// A caller's signal is no failure of the device, unless that was to end it:
    /// a sync may take longer than the idle limit before one comes. But some file
    /// systems in user space answer with `EINTR` each time.
    fn sync(&self, waiter: &mut dyn Waiter, verdict: &mut Ending) {
        let control = self.control.as_ref();
        let start = waiter.now();
        let mut interruptions = 0_u32;
        loop {
            let Err(errno) = rustix::fs::fsync(self.flow.sink_fd()) else {
                return;
            };
            let interrupted = errno == rustix::io::Errno::INTR;
            if interrupted && (waiter.is_cancelled() || control.is_some_and(Control::is_cancelled))
            {
                verdict.ended = Ended::Cancelled;
                return;
            }
            interruptions = interruptions.saturating_add(1);
            let mut idle = || {
                let limit = self.request.idle;
                limit.is_some_and(|limit| waiter.now().saturating_sub(start) >= limit)
            };
            if !interrupted || interruptions > INTERRUPTIONS && idle() {
                return verdict.fail(Side::Sink, errno.into());
            }
        }
    }

    /// Waits until nothing of it is in the kernel's hands any more.
    pub(crate) fn quiesce(&mut self) {
        if self.quiesced.is_none()
            && let Some((name, path)) = &mut self.current
        {
            let before = self.flow.read;
            self.quiesced = Some(path.quiesce(&mut self.flow));
            note_use(&mut self.used, *name, self.flow.read > before);
        }
    }

    /// Takes back what the kernel has done with; true if there is more, which
    /// [`Transfer::completions`] will tell of.
    pub(crate) fn winds_down(&mut self) -> bool {
        let Some((name, path)) = &mut self.current else {
            return false;
        };
        let before = self.flow.read;
        let more = path.wind_down(&mut self.flow) == path::Verdict::Pending;
        note_use(&mut self.used, *name, self.flow.read > before);
        more
    }

    /// Closing the account, or the descriptors, may wait inside the kernel.
    pub(crate) fn waits_at_the_end(&self) -> bool {
        let lingers = |fd| matches!(rustix::net::sockopt::socket_linger(fd), Ok(Some(_)));
        let sockets = [&self.flow.source, &self.flow.sink];
        !self.ends_at_once()
            || (sockets.iter()).any(|end| end.kind().is_socket() && lingers(end.fd()))
    }

    /// Closing the account does not wait: nothing is synced, and nothing of it is a
    /// file, of which any call may.
    pub(crate) fn ends_at_once(&self) -> bool {
        self.never_waits() && !self.request.sync
    }

    /// Passes on what is in hand as long as the sink takes it at once. Nothing
    /// more is read, so that there is an end to it: one buffer, or what the
    /// stages make of what is inside them.
    fn drain(&mut self, waiter: &mut dyn Waiter, verdict: &mut Ending) {
        let left = std::mem::take(&mut self.flow.left);
        self.flow.cut_short = true;
        self.flow.let_sleep(false);
        let mut interruptions = 0;
        while self.holds() {
            let interest = Interest {
                ready: Some((self.flow.sink_fd(), true)),
                watch: None,
                wake: None,
                doubted: [false; 2],
            };
            match waiter.wait(&interest, Some(Duration::ZERO)) {
                // Of a sink there is no error to be told before a step.
                Ok(awake) if awake.ready => {
                    let _ = self.is_ready(Side::Sink, awake);
                }
                _ => break,
            }
            self.flow.interrupted = None;
            match self.step() {
                Turn::Moved(0) if self.flow.interrupted.is_some() => {
                    interruptions += 1;
                    if interruptions > INTERRUPTIONS {
                        break;
                    }
                }
                // Of no bytes too: a message may have none.
                Turn::Moved(_) => interruptions = 0,
                // Not that no path is left, of which nothing came.
                Turn::Failed(side, Some(errno)) if self.current.is_some() => {
                    verdict.fail(side, errno);
                    break;
                }
                _ => break,
            }
        }
        self.flow.left = left;
    }

    /// What was read and not written: back to the source, or to the caller.
    fn give_back(&mut self) -> Option<Stranded> {
        self.put_back();
        let held = (self.current.as_mut())
            .filter(|(_, path)| path.holds())
            .and_then(|(_, path)| path.strand());
        match self.flow.unreadable.take() {
            // Not behind what the stages have made.
            Some(unreadable) if held.is_none() || !self.flow.stages.transforms() => {
                Some(Stranded::before(held, unreadable.pipe))
            }
            _ => held,
        }
    }

    /// What can go back to the source, does.
    fn put_back(&mut self) {
        let Some((_, path)) = self.current.as_mut() else {
            return;
        };
        let held = path.held();
        // Not what is made up on the fly: reading some of it consumes it
        // (/proc/kmsg), and some says something else the next time.
        let cached = path.holds() && self.flow.source.kind().is_cached();
        // What stages would make of a little could fill all memory.
        let rewinds = cached && (self.flow.stages.transforms() || !self.flow.source_is_astray());
        if rewinds && self.flow.move_source(-(held as i64)).is_ok() {
            path.forget();
            self.flow.read -= held;
        }
    }

    /// The source ended before the size it had when the transfer began, and
    /// its size says so too: it was truncated. (A file system whose sizes are
    /// false still claims the old one.)
    fn source_was_truncated(&self) -> bool {
        let facts = self.flow.source.facts();
        let (true, Some(size)) = (facts.kind.is_file(), facts.size) else {
            return false;
        };
        let start = match (self.request.source_offset, facts.position) {
            (Some(offset), _) => offset,
            (None, Some(position)) => position,
            (None, None) => return false,
        };
        if start + self.flow.read >= size {
            return false;
        }
        let now = rustix::fs::fstat(self.flow.source_fd()).map(|s| s.st_size as u64);
        let here = match self.flow.from {
            // Somebody else who shares the position may have read the rest.
            Cursor::Position | Cursor::Claimed { .. } => self.flow.source_offset(),
            _ => Some(start + self.flow.read),
        };
        matches!((now, here), (Ok(now), Some(here)) if now < size && here < size)
    }

    /// The paths that were ranked before the last one used: those that the
    /// route excluded for a reason of this very pair, then those that declined.
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
        let Some(used) = self.used.last() else {
            return true;
        };
        let rank = |p: DataPath| self.route.order.iter().position(|o| *o == p);
        rank(path) < rank(*used)
    }
}
