//! One step of a transfer: the current path, and the hand-over to the next.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::thread_kind::ThreadKind;
use super::turn::{Turn, Wait, WaitFor};
use super::{Control, Transfer};
use crate::endpoint::resets::{self, End};
use crate::endpoint::{Kind, Side};
use crate::errno::Errno;
use crate::path::{self, Holes, Verdict};
use crate::report::{Chosen, Ended};
use crate::request::{DataPath, Declined, Why};

/// The next path runs on another kind of thread.
pub(super) struct NotHere;

/// The number of times that an unconfirmed end is checked again: with the pauses in
/// between, for a second. On a dead connection, the call that confirms the end
/// returns immediately.
const END_RETRIES: u32 = 232;

impl Transfer<'_> {
    /// Takes one step of the current path, or of the next one if it declines.
    pub(crate) fn step(&mut self) -> Turn {
        self.flow.recheck_nonblocking();
        self.change_way();
        let paused = self.is_paused() || self.drains();
        self.flow.allowance.set_paused(paused);
        if self.has_completions() {
            self.flow.goal = self.goal();
        }
        match self.step_of_a_path() {
            // The path holds bytes of which it writes none before it gets more.
            Turn::Blocked(Side::Source) if self.flow.allowance.is_held_back() => Turn::HeldBack,
            turn => turn,
        }
    }

    fn step_of_a_path(&mut self) -> Turn {
        loop {
            // Bytes that were read still go to the sink, and blocks in flight complete.
            // No path begins: one that takes the whole file would do so at once.
            if self.flow.allowance.is_held_back() && self.pending() == (0, 0) {
                // As before a wait for the source, below. A path with blocks in
                // flight has claimed all its bytes.
                if !self.has_completions() {
                    self.flow.release_sink_claim();
                }
                return Turn::HeldBack;
            }
            if self.flow.allowance.is_over() && (!self.holds() || self.holds_part_of_a_number()) {
                return Turn::Done(Ended::Size);
            }
            let before = self.flow.read();
            if let Err((side, errno)) = self.walk_holes() {
                return Turn::Failed(Some(side), Some(errno));
            }
            if self.flow.allowance.extent() == 0 && self.flow.read() > before {
                return Turn::Moved(self.flow.read() - before);
            }
            if self.flow.allowance.is_over() && !self.holds() {
                continue;
            }
            let name = match self.current_path() {
                Ok(Some(name)) => name,
                Ok(None) => return self.out_of_paths(),
                Err(NotHere) => return Turn::Elsewhere,
            };
            let Some((_, path)) = &mut self.current else {
                return self.out_of_paths();
            };
            let before = self.flow.read();
            if path::row(name).reserves
                && let Some(preallocation) = &mut self.preallocation
            {
                preallocation.advance(&self.flow);
            }
            let verdict = path.step(&mut self.flow);
            self.used.note(name, before, self.flow.read());
            match verdict {
                Verdict::Moved(n) => return Turn::Moved(n),
                Verdict::Blocked(side) => {
                    if side == Side::Source {
                        // Another reader may take the bytes for which the range was
                        // claimed. If another process then writes after the range,
                        // it stays a gap.
                        self.flow.release_sink_claim();
                    }
                    return Turn::Blocked(side);
                }
                Verdict::Pending => return Turn::Pending,
                // Found before anything was read: if the source has ended there is
                // nothing to write, and no reader is needed.
                Verdict::Failed(Side::Sink, Errno::EPIPE) if !path.holds() => {
                    return match self.flow.source_has_ended() {
                        Ok(Some(true)) => self.end(name),
                        Ok(_) => Turn::Failed(Some(Side::Sink), Some(Errno::EPIPE)),
                        Err(errno) => Turn::Failed(Some(Side::Source), Some(errno)),
                    };
                }
                // For lack of space, though nothing may be left to write:
                // `copy_file_range(2)` checks RLIMIT_FSIZE first.
                Verdict::Declined(Why::Errno(errno))
                    if path::needs_room(errno)
                        && self.flow.source.kind().is_cached()
                        && self.flow.source_goes_on() == Ok(Some(false)) =>
                {
                    return self.end(name);
                }
                Verdict::Failed(side, errno) => return Turn::Failed(Some(side), Some(errno)),
                Verdict::StageFailed(errno) => return Turn::Failed(None, Some(errno)),
                Verdict::Declined(why) => self.hand_over(name, why),
                Verdict::Ended if path.knows_the_end() => return self.end(name),
                // A first 0 can mean "not by this path": on procfs, on FUSE.
                Verdict::Ended => match self.flow.source_goes_on() {
                    Ok(Some(true)) => {
                        self.hand_over(name, "it returned 0 before the end of the source".into())
                    }
                    Ok(None) if self.flow.ends_unseen() => {
                        self.hand_over(name, "the end of the source cannot be confirmed".into());
                    }
                    Ok(_) => return self.end(name),
                    Err(Errno::EINTR) => {
                        self.flow.was_interrupted(Side::Source);
                        return Turn::Moved(0);
                    }
                    Err(errno) => return Turn::Failed(Some(Side::Source), Some(errno)),
                },
            }
        }
    }

    fn end(&mut self, name: DataPath) -> Turn {
        match resets::end_of(self.flow.source.endpoint()) {
            End::Clean => {}
            End::Died(errno) => return Turn::Failed(Some(Side::Source), Some(errno)),
            // Checked again immediately, and then after a pause each time.
            End::Unknown if self.end_retries < END_RETRIES => {
                self.end_retries += 1;
                return Turn::Blocked(Side::Source);
            }
            End::Unknown => {}
        }
        self.used.note_end(name);
        Turn::Done(Ended::Eof)
    }

    /// Returns the end of a transfer that waits for its schedule, or for the end of a pause, if the
    /// source has ended and nothing is left to write. No call of the path has found that yet: it
    /// would need a grant. `None`: the source goes on, or only a call of the path can tell.
    pub(crate) fn end_of_source(&mut self) -> Option<Turn> {
        let is_between = !self.holds() && self.pending() == (0, 0);
        if !is_between || self.flow.stages.transforms() {
            return None;
        }
        // A byte before the end would be read from the device before it is granted. The size 0 of a
        // file server may be an unknown one.
        let facts = self.flow.source.facts();
        let is_behind = self.flow.before_its_size() == Some(0)
            && (facts.size > Some(0) || facts.has_true_size())
            && !facts.reading_waits();
        if facts.kind.is_cached() && !is_behind {
            return None;
        }
        // A child of fork(2) may keep the source from its end.
        let is_complete = self.source_is_complete && self.source_is_empty();
        match self.flow.source_has_ended() {
            _ if is_complete => Some(self.end(self.path())).filter(Turn::is_end),
            Ok(Some(true)) => Some(self.end(self.path())).filter(Turn::is_end),
            Ok(_) => None,
            Err(errno) => Some(Turn::Failed(Some(Side::Source), Some(errno))),
        }
    }

    /// Ends the reading: the source has ended, though no call has reported it.
    pub(super) fn end_here(&mut self) {
        self.flow.allowance.close();
        if let Some((name, _)) = &self.current {
            self.used.note_end(*name);
        }
    }

    /// Takes no more bytes. Returns whether bytes that were read are still to be written.
    pub(crate) fn stop_reading(&mut self) -> bool {
        self.flow.allowance.close();
        self.holds()
    }

    /// Returns whether the source is a pipe without bytes.
    pub(super) fn source_is_empty(&self) -> bool {
        let source = &self.flow.source;
        source.kind().is_pipe() && rustix::io::ioctl_fionread(source.fd()) == Ok(0)
    }

    /// Returns whether the current path holds bytes that the sink has not accepted.
    pub(crate) fn holds(&self) -> bool {
        match &self.current {
            Some((_, path)) => path.holds(),
            // Stages may produce output from no input: an empty frame.
            None => self.flow.stages.transforms() && self.next < self.route.choices.len(),
        }
    }

    /// Returns whether the rest of the held bytes is less than an eventfd takes
    /// (`EINVAL` in `eventfd_write`, fs/eventfd.c), and the transfer ends before its source
    /// does: these bytes go back.
    fn holds_part_of_a_number(&self) -> bool {
        let is_early = self.flow.allowance.is_early() && !self.flow.stages.transforms();
        let held = (self.current.as_ref()).map_or(0, |(_, path)| path.held());
        is_early && self.flow.sink.kind() == Kind::Eventfd && (1..8).contains(&held)
    }

    /// Returns whether its control has paused it.
    pub(super) fn is_paused(&self) -> bool {
        let control = self.control.as_ref();
        control.is_some_and(Control::is_paused) && !self.flow.allowance.is_over()
    }

    /// Returns a descriptor that is readable when operations of the current path
    /// have completed.
    pub(crate) fn completions(&self) -> Option<BorrowedFd<'_>> {
        (self.current.as_ref()).and_then(|(_, path)| path.completions())
    }

    /// Returns whether operations of the current path complete later.
    pub(crate) fn has_completions(&self) -> bool {
        (self.current.as_ref()).is_some_and(|(_, path)| path.has_completions())
    }

    /// Returns the other descriptions of its pipes that the current path has opened.
    pub(crate) fn second_descriptions(&self) -> [Option<BorrowedFd<'_>>; 2] {
        (self.current.as_ref()).map_or([None; 2], |(_, path)| path.second_descriptions())
    }

    pub(super) fn completion_poll_interval(&self) -> Option<Duration> {
        (self.current.as_ref()).and_then(|(_, path)| path.poll_interval())
    }

    /// Skips a hole on both sides, if the sink is to have it too.
    fn walk_holes(&mut self) -> Result<(), (Side, Errno)> {
        // Bytes that are held or in flight come before a hole.
        let is_between = !self.holds() && self.pending() == (0, 0);
        if !is_between || self.flow.allowance.is_held_back() {
            return Ok(());
        }
        let Some(walk) = &mut self.walk else {
            return Ok(());
        };
        let current = self.current.as_ref().map(|(name, _)| *name);
        let next = self.route.choices.get(self.next).map(|choice| choice.path);
        let holes = |path| path::row(path).holes;
        if current.or(next).map(holes) == Some(Holes::Kept) {
            // An earlier path may have stopped in front of a hole.
            self.flow.allowance.set_extent(u64::MAX);
            return Ok(());
        }
        let by_write = current.map(holes) == Some(Holes::Skipped);
        walk.advance(&mut self.flow, by_write)
    }

    /// Returns the kind of thread on which an engine takes its next step.
    pub(crate) fn thread_kind(&self) -> ThreadKind {
        let next = self.route.choices.get(self.next).map(|choice| choice.path);
        match self.current.as_ref().map(|(name, _)| *name).or(next) {
            Some(path) if path::row(path).one_thread => ThreadKind::Disk,
            _ if self.never_blocks() => ThreadKind::Reactor,
            _ => ThreadKind::Worker,
        }
    }

    /// Returns whether steps never block: both sides are pipes or sockets, which
    /// are polled, no stage changes the bytes, and no step has blocked so far.
    pub(crate) fn never_blocks(&self) -> bool {
        let never = |kind: Kind| kind.is_pipe() || kind.is_socket();
        let polled = never(self.flow.source.kind()) && never(self.flow.sink.kind());
        polled && !self.flow.stages.transforms() && !self.was_blocked
    }

    /// Returns the current path; starts the next one of the route if there is none.
    pub(super) fn current_path(&mut self) -> Result<Option<DataPath>, NotHere> {
        loop {
            if let Some((name, _)) = &self.current {
                return Ok(Some(*name));
            }
            if self.next == 0 {
                self.recall();
            }
            let Some(choice) = self.route.choices.get(self.next).copied() else {
                return Ok(None);
            };
            if self.runs_on != ThreadKind::Anywhere && self.runs_on != self.thread_kind() {
                return Err(NotHere);
            }
            self.next += 1;
            self.flow.set_has_next(self.next < self.route.choices.len());
            match (path::row(choice.path).start)(&mut self.flow) {
                Ok(mut path) => {
                    let recalled = self.recalled.filter(|found| found.path == choice.path);
                    if let Some(piece) = self.recalled_piece(choice.path) {
                        path.set_piece(piece);
                    }
                    self.current = Some((choice.path, path));
                    self.used.enter(match self.next {
                        1 if recalled.is_some() => Chosen::Remembered,
                        1 => Chosen::First,
                        _ => Chosen::Next,
                    });
                }
                Err(why) => {
                    self.flow.release_claims();
                    self.declined.push(Declined {
                        path: choice.path,
                        why,
                    });
                }
            }
        }
    }

    fn hand_over(&mut self, name: DataPath, why: Why) {
        debug_assert!(!self.holds(), "{name} declined with buffered bytes");
        self.note_setting();
        if let Some((_, mut path)) = self.current.take() {
            path.finish(&mut self.flow);
        }
        self.flow.release_claims();
        self.declined.push(Declined { path: name, why });
    }

    fn out_of_paths(&mut self) -> Turn {
        let Some(&Declined {
            why: Why::Errno(errno),
            path,
        }) = self.declined.last()
        else {
            return Turn::Failed(None, Some(Errno::EOPNOTSUPP));
        };
        // A path may have failed to start because the source's device is gone.
        let side = match self.flow.source_goes_on() {
            Err(found) if found == errno => Some(Side::Source),
            _ => self.without_room(path, errno),
        };
        Turn::Failed(side, Some(errno))
    }

    /// Returns the side that lacks space, as far as the last path can tell: no path
    /// is left whose write would show it.
    fn without_room(&self, path: DataPath, errno: Errno) -> Option<Side> {
        match path::needs_room(errno) {
            true => (path::row(path).without_room)(self.flow.source.facts()),
            false => None,
        }
    }

    /// Returns the number of reads and writes in flight.
    pub(crate) fn pending(&self) -> (u32, u32) {
        (self.current.as_ref()).map_or((0, 0), |(_, path)| path.pending())
    }

    /// Releases memory before a sleep, if no bytes are buffered.
    pub(crate) fn release_idle(&mut self) {
        if let Some((_, path)) = &mut self.current
            && !path.holds()
        {
            path.rest();
            self.flow.enlarged_pipes.rest();
        }
    }

    /// Returns whether the blocked step has itself found the descriptor not ready.
    /// A step does not use a blocking descriptor before `poll(2)` has found it
    /// ready.
    pub(crate) fn step_checked_readiness(&self, wait: &Wait) -> bool {
        // If the descriptor shows a persistent error, a change may have been
        // reported while no thread waited for it.
        if wait.interest(self).edge_triggered != [false; 2] {
            return false;
        }
        let end = match wait.target {
            WaitFor::Side(side) => self.flow.end(side),
            WaitFor::Backoff(_) | WaitFor::Completions | WaitFor::Resume | WaitFor::Grant => {
                return true;
            }
        };
        end.ready.never_waits || (end.kind().is_pipe() && self.is_spliced())
    }

    /// Returns whether the current path splices.
    pub(super) fn is_spliced(&self) -> bool {
        (self.current.as_ref()).is_some_and(|(name, _)| path::row(*name).splices)
    }

    /// Returns whether the next step starts a path.
    pub(super) fn is_between_paths(&self) -> bool {
        self.current.is_none()
    }

    /// Returns the current path, or the first one of the route.
    pub(crate) fn path(&self) -> DataPath {
        (self.current.as_ref()).map_or(self.route.choices[0].path, |(name, _)| *name)
    }
}
