//! One step of a transfer: the path at work, and the hand-over to the next.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::thread_kind::ThreadKind;
use super::turn::{Turn, Wait, WaitFor};
use super::{Control, Transfer};
use crate::endpoint::resets::{self, End};
use crate::endpoint::{Kind, Side};
use crate::errno::Errno;
use crate::path::{self, Holes, Verdict};
use crate::report::Ended;
use crate::request::{DataPath, Declined, Why};

/// The next path is for another thread.
struct NotHere;

/// How often an end is doubted: with the rests in between, for a second. What is
/// waited for is a call on a dead connection, which returns at once.
const END_RETRIES: u32 = 232;

/// Adds a path to those that were used, if it has moved anything.
pub(super) fn note_use(used: &mut Vec<DataPath>, name: DataPath, moved: bool) {
    if moved && !used.contains(&name) {
        used.push(name);
    }
}

impl Transfer<'_> {
    /// One step of the current path; of the next one, where it declines.
    pub(crate) fn step(&mut self) -> Turn {
        self.flow.look_again();
        let paused = self.is_paused();
        self.flow.allowance.set_paused(paused);
        // What was taken goes to the sink, and what is in flight comes home.
        if paused && self.pending() == (0, 0) && !self.flow.allowance.is_over() {
            return Turn::Paused;
        }
        let moved = self.flow.read() + self.flow.written();
        match self.step_of_a_path() {
            Turn::Moved(_) | Turn::Blocked(Side::Source)
                if paused && self.flow.read() + self.flow.written() == moved =>
            {
                Turn::Paused
            }
            turn => turn,
        }
    }

    fn step_of_a_path(&mut self) -> Turn {
        loop {
            if self.flow.allowance.remaining() == 0 && !self.holds() {
                return Turn::Done(Ended::Size);
            }
            let before = self.flow.read();
            if let Err((side, errno)) = self.walk_holes() {
                return Turn::Failed(Some(side), Some(errno));
            }
            if self.flow.allowance.extent() == 0 && self.flow.read() > before {
                return Turn::Moved(self.flow.read() - before);
            }
            if self.flow.allowance.remaining() == 0 && !self.holds() {
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
            note_use(&mut self.used, name, self.flow.read() > before);
            match verdict {
                Verdict::Moved(n) => return Turn::Moved(n),
                Verdict::Blocked(side) => {
                    if side == Side::Source {
                        // What was to be written there may be another reader's, and
                        // who else writes would leave a gap.
                        self.flow.lend_sink_back();
                    }
                    return Turn::Blocked(side);
                }
                Verdict::Pending => return Turn::Pending,
                // Found before anything was read: of a source that has ended
                // there is nothing to write, and nobody misses the reader.
                Verdict::Failed(Side::Sink, Errno::EPIPE) if !path.holds() => {
                    return match self.flow.source_has_ended() {
                        Ok(Some(true)) => self.end(name),
                        Ok(_) => Turn::Failed(Some(Side::Sink), Some(Errno::EPIPE)),
                        Err(errno) => Turn::Failed(Some(Side::Source), Some(errno)),
                    };
                }
                // For want of room, where there may be nothing left to write:
                // `copy_file_range(2)` looks at RLIMIT_FSIZE first.
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
                    Ok(Some(true)) => self.hand_over(name, "it ended before the source".into()),
                    Ok(None) if self.flow.ends_unseen() => {
                        self.hand_over(name, "it ended where nobody can look behind".into());
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
            // It is asked again at once, and then after a rest each time.
            End::Unknown if self.end_retries < END_RETRIES => {
                self.end_retries += 1;
                return Turn::Blocked(Side::Source);
            }
            End::Unknown => {}
        }
        if self.used.is_empty() {
            self.used.push(name);
        }
        Turn::Done(Ended::Eof)
    }

    /// Nothing more is read: the source has ended, and no call has told.
    pub(super) fn end_here(&mut self) {
        self.flow.allowance.close();
        if self.used.is_empty()
            && let Some((name, _)) = &self.current
        {
            self.used.push(*name);
        }
    }

    /// The path at work has something in hand that the sink has not taken.
    pub(super) fn holds(&self) -> bool {
        match &self.current {
            Some((_, path)) => path.holds(),
            // Of nothing, too, there is something to be made: an empty frame.
            None => self.flow.stages.transforms() && self.next < self.route.choices.len(),
        }
    }

    /// Its control has paused it.
    pub(super) fn is_paused(&self) -> bool {
        self.control.as_ref().is_some_and(Control::is_paused)
    }

    /// Readable when what the kernel does for the path at work is done.
    pub(crate) fn completions(&self) -> Option<BorrowedFd<'_>> {
        (self.current.as_ref()).and_then(|(_, path)| path.completions())
    }

    pub(super) fn completion_poll_interval(&self) -> Option<Duration> {
        (self.current.as_ref()).and_then(|(_, path)| path.looks_each())
    }

    /// Skips a hole on both sides, where the sink shall have it too.
    fn walk_holes(&mut self) -> Result<(), (Side, Errno)> {
        if self.holds() || self.flow.allowance.is_paused() {
            return Ok(());
        }
        let Some(walk) = &mut self.walk else {
            return Ok(());
        };
        let current = self.current.as_ref().map(|(name, _)| *name);
        let next = self.route.choices.get(self.next).map(|choice| choice.path);
        let holes = |path| path::row(path).holes;
        if current.or(next).map(holes) == Some(Holes::Kept) {
            return Ok(());
        }
        let by_write = current.map(holes) == Some(Holes::Skipped);
        walk.advance(&mut self.flow, by_write)
    }

    /// Where its next step is to be taken, if an engine runs it.
    pub(crate) fn thread_kind(&self) -> ThreadKind {
        let next = self.route.choices.get(self.next).map(|choice| choice.path);
        match self.current.as_ref().map(|(name, _)| *name).or(next) {
            Some(path) if path::row(path).one_thread => ThreadKind::Disk,
            _ if self.never_blocks() => ThreadKind::Reactor,
            _ => ThreadKind::Worker,
        }
    }

    /// No step of its paths takes long: both sides are pipes or sockets, which
    /// are polled, and no stage has to think in between. One did all the same,
    /// where it was held up.
    pub(crate) fn never_blocks(&self) -> bool {
        let never = |kind: Kind| kind.is_pipe() || kind.is_socket();
        let polled = never(self.flow.source.kind()) && never(self.flow.sink.kind());
        polled && !self.flow.stages.transforms() && !self.was_blocked
    }

    /// The path at work; starts the next one of the route if there is none.
    fn current_path(&mut self) -> Result<Option<DataPath>, NotHere> {
        loop {
            if let Some((name, _)) = &self.current {
                return Ok(Some(*name));
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
                Ok(path) => self.current = Some((choice.path, path)),
                Err(why) => self.declined.push(Declined {
                    path: choice.path,
                    why,
                }),
            }
        }
    }

    fn hand_over(&mut self, name: DataPath, why: Why) {
        debug_assert!(!self.holds(), "{name} declined with something in hand");
        if let Some((_, mut path)) = self.current.take() {
            path.finish(&mut self.flow);
        }
        self.flow.lend_back();
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
        // What could not even begin with a source whose device is gone.
        let side = match self.flow.source_goes_on() {
            Err(says) if says == errno => Some(Side::Source),
            _ => self.without_room(path, errno),
        };
        Turn::Failed(side, Some(errno))
    }

    /// The side without room, where no path is left whose write would tell.
    fn without_room(&self, path: DataPath, errno: Errno) -> Option<Side> {
        match path::needs_room(errno) {
            true => (path::row(path).without_room)(self.flow.source.facts()),
            false => None,
        }
    }

    /// Reads and writes that are on their way.
    pub(crate) fn pending(&self) -> (u32, u32) {
        (self.current.as_ref()).map_or((0, 0), |(_, path)| path.pending())
    }

    /// It goes to sleep: with nothing in hand, it needs no memory meanwhile.
    pub(crate) fn release_idle(&mut self) {
        if let Some((_, path)) = &mut self.current
            && !path.holds()
        {
            path.rest();
            self.flow.lent.rest();
        }
    }

    /// Whether a step that was blocked has asked the descriptor itself: a
    /// blocking one is not asked, as long as `poll(2)` has not found it ready.
    pub(crate) fn step_checked_readiness(&self, wait: &Wait) -> bool {
        let end = match wait.target {
            WaitFor::Side(side) => self.flow.end(side),
            WaitFor::Backoff(_) | WaitFor::Completions | WaitFor::Resume => return true,
        };
        // Of one that shows an error all the time, a change may have been told
        // while nobody waited for it.
        if wait.interest(self).edge_triggered != [false; 2] {
            return false;
        }
        end.ready.never_waits || (end.kind().is_pipe() && self.is_spliced())
    }

    /// The path at work splices.
    pub(super) fn is_spliced(&self) -> bool {
        (self.current.as_ref()).is_some_and(|(name, _)| path::row(*name).splices)
    }

    /// The next step starts a path.
    pub(super) fn is_between_paths(&self) -> bool {
        self.current.is_none()
    }

    /// The path at work, or the one it begins with.
    pub(crate) fn path(&self) -> DataPath {
        (self.current.as_ref()).map_or(self.route.choices[0].path, |(name, _)| *name)
    }
}
