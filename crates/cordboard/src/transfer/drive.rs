//! Running a transfer step by step on the caller's thread.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::patience::SPELL;
use super::wait::{Awake, Interest, Waiter};
use super::{Control, Ended, Outcome, Progress, Transfer};
use crate::endpoint::{Kind, Side};
use crate::errno::Errno;
use crate::path::{self, Verdict};
use crate::route::{Declined, PathName, Why};
use crate::sys::Hold;

/// A step as the transfer's runner sees it: hand-overs between paths are over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Turn {
    Moved(u64),
    Blocked(Side),
    /// Wait for [`Transfer::completions`].
    Pending,
    Done(Ended),
    Failed(Option<Side>, Option<Errno>),
}

/// Ready according to `poll(2)`, and not so according to the call: so many
/// times in a row are a coincidence, more are a descriptor that would keep
/// the processor busy for nothing, and is then asked again after a rest.
const SPURIOUS: u32 = 32;
const REST: Duration = Duration::from_millis(5);

impl Transfer<'_> {
    /// One step of the current path; of the next one, where it declines.
    pub(crate) fn step(&mut self) -> Turn {
        loop {
            if self.flow.left == 0 && !self.holds() {
                return Turn::Done(Ended::Size);
            }
            if let Err(errno) = self.walk_holes() {
                return Turn::Failed(Some(Side::Sink), Some(errno));
            }
            if self.flow.left == 0 && !self.holds() {
                continue;
            }
            let name = match self.current_path() {
                Some(name) => name,
                None => return self.out_of_paths(),
            };
            let Some((_, path)) = &mut self.current else {
                return self.out_of_paths();
            };
            let before = self.flow.read;
            if name != PathName::Clone
                && let Some(ahead) = &mut self.ahead
                && !ahead.advance(&self.flow)
            {
                self.ahead = None;
            }
            let verdict = path.step(&mut self.flow);
            if self.flow.read > before && !self.used.contains(&name) {
                self.used.push(name);
            }
            match verdict {
                Verdict::Moved(n) => return Turn::Moved(n),
                Verdict::Blocked(side) => return Turn::Blocked(side),
                Verdict::Pending => return Turn::Pending,
                Verdict::Failed(side, errno) => return Turn::Failed(Some(side), Some(errno)),
                Verdict::Declined(why) => self.hand_over(name, why),
                Verdict::Ended if path.knows_the_end() => return self.end(name),
                // A first 0 can mean "not by this path": on procfs, on FUSE.
                Verdict::Ended => match self.flow.source_goes_on() {
                    Ok(Some(true)) => self.hand_over(name, "it ended before the source".into()),
                    Ok(_) => return self.end(name),
                    Err(errno) => return Turn::Failed(Some(Side::Source), Some(errno)),
                },
            }
        }
    }

    fn end(&mut self, name: PathName) -> Turn {
        if self.used.is_empty() {
            self.used.push(name);
        }
        Turn::Done(Ended::Eof)
    }

    /// The path at work has something in hand that the sink has not taken.
    pub(super) fn holds(&self) -> bool {
        self.current.as_ref().is_some_and(|(_, path)| path.holds())
    }

    /// Readable when what the kernel does for the path at work is done.
    pub(crate) fn completions(&self) -> Option<BorrowedFd<'_>> {
        (self.current.as_ref()).and_then(|(_, path)| path.completions())
    }

    /// Skips a hole on both sides, where the sink shall have it too.
    fn walk_holes(&mut self) -> Result<(), Errno> {
        if self.holds() {
            return Ok(());
        }
        let Some(walk) = &mut self.walk else {
            return Ok(());
        };
        // A clone keeps holes by itself, and wants the file whole.
        let clone_next = self.current.is_none()
            && (self.route.choices.get(self.next)).is_some_and(|c| c.path == PathName::Clone);
        if clone_next || matches!(self.current, Some((PathName::Clone, _))) {
            return Ok(());
        }
        if !walk.advance(&mut self.flow)? {
            self.walk = None;
            self.flow.span = u64::MAX;
        }
        Ok(())
    }

    /// The path at work; starts the next one of the route if there is none.
    fn current_path(&mut self) -> Option<PathName> {
        loop {
            if let Some((name, _)) = &self.current {
                return Some(*name);
            }
            let choice = *self.route.choices.get(self.next)?;
            self.next += 1;
            match path::start(choice.path, &mut self.flow) {
                Ok(path) => self.current = Some((choice.path, path)),
                Err(why) => self.declined.push(Declined {
                    path: choice.path,
                    why,
                }),
            }
        }
    }

    fn hand_over(&mut self, name: PathName, why: Why) {
        debug_assert!(!self.holds(), "{name} declined with something in hand");
        if let Some((_, mut path)) = self.current.take() {
            path.finish(&mut self.flow);
        }
        self.declined.push(Declined { path: name, why });
    }

    fn out_of_paths(&self) -> Turn {
        let errno = match self.declined.last() {
            Some(Declined {
                why: Why::Errno(errno),
                ..
            }) => *errno,
            _ => Errno::EOPNOTSUPP,
        };
        Turn::Failed(None, Some(errno))
    }

    fn start_writeback(&mut self) {
        let (sink, written) = (self.flow.sink_fd(), self.flow.written);
        if let Some(writeback) = &mut self.writeback
            && !writeback.advance(sink, written)
        {
            self.writeback = None;
        }
    }

    fn progress(&self, elapsed: Duration) -> Progress {
        Progress {
            read: self.flow.read,
            written: self.flow.written,
            path: self
                .current
                .as_ref()
                .map_or(self.route.choices[0].path, |(name, _)| *name),
            elapsed,
        }
    }

    /// Whether the thread may sleep inside system calls: nobody needs it back
    /// before they return, or somebody interrupts them.
    fn may_sleep(&self) -> bool {
        let interval = self.observer.as_ref().and_then(|o| o.interval());
        self.request.idle.is_none()
            && match &self.control {
                Some(control) => control.interrupts(),
                None => interval.is_none(),
            }
    }

    /// The sink raises signals where it fails.
    fn needs_hold(&self) -> bool {
        let kind = self.flow.sink.kind();
        let limited = || {
            let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize);
            limit.current.is_some()
        };
        if kind.is_cached() {
            limited()
        } else {
            kind.can_block()
        }
    }
}

/// Runs to the end.
pub(super) fn run(mut transfer: Transfer<'_>, waiter: &mut dyn Waiter) -> Outcome {
    let start = waiter.now();
    let hold = if transfer.needs_hold() {
        Hold::start()
    } else {
        None
    };
    let may_sleep = transfer.may_sleep();
    transfer.flow.may_sleep = may_sleep;
    transfer.flow.watched = transfer.observer.is_some() || transfer.control.is_some();
    transfer.flow.source_ready.may_sleep = may_sleep;
    transfer.flow.sink_ready.may_sleep = may_sleep;
    let turn = turns(&mut transfer, waiter, start);
    let outcome = transfer.settle(turn, waiter, start);
    drop(hold);
    outcome
}

/// Step after step, and waiting in between, until there is an end.
fn turns(transfer: &mut Transfer<'_>, waiter: &mut dyn Waiter, start: Duration) -> Turn {
    let timed = transfer.observer.is_some() || transfer.request.idle.is_some();
    let mut last_progress = start;
    let mut spurious = 0;
    loop {
        if transfer.control.as_ref().is_some_and(Control::is_cancelled) {
            return Turn::Done(Ended::Cancelled);
        }
        let before = transfer.flow.read + transfer.flow.written;
        match transfer.step() {
            Turn::Moved(_) => {
                // Bytes that are only gathered so far are progress too.
                if transfer.flow.read + transfer.flow.written > before {
                    spurious = 0;
                    transfer.start_writeback();
                    if timed {
                        last_progress = waiter.now();
                    }
                }
            }
            Turn::Blocked(side) => {
                match pause(transfer, waiter, side, last_progress, spurious > SPURIOUS) {
                    Ok((None, ready)) => spurious = if ready { spurious + 1 } else { 0 },
                    Ok((Some(end), _)) => return end,
                    Err(errno) => return Turn::Failed(Some(side), Some(errno)),
                }
            }
            Turn::Pending => {
                if let Err(errno) = complete(transfer, waiter) {
                    return Turn::Failed(None, Some(errno));
                }
            }
            end => return end,
        }
        if timed {
            let progress = transfer.progress(waiter.now().saturating_sub(start));
            if let Some(observer) = &mut transfer.observer {
                observer.progress(&progress);
            }
        }
    }
}

/// Waits for the kernel, which is at work on the transfer's behalf.
fn complete(transfer: &mut Transfer<'_>, waiter: &mut dyn Waiter) -> Result<(), Errno> {
    let interval = transfer.observer.as_ref().and_then(|o| o.interval());
    let interest = Interest {
        ready: transfer.completions().map(|fd| (fd, false)),
        watch: None,
        wake: transfer.control.as_ref().map(Control::wake_fd),
    };
    let awake = waiter.wait(&interest, interval)?;
    if awake.woken
        && let Some(control) = &transfer.control
    {
        control.clear_wake();
    }
    Ok(())
}

/// Waits for one side. Something, if that was the end.
fn pause(
    transfer: &mut Transfer<'_>,
    waiter: &mut dyn Waiter,
    side: Side,
    last_progress: Duration,
    spinning: bool,
) -> Result<(Option<Turn>, bool), Errno> {
    let (source, sink) = (transfer.flow.source_fd(), transfer.flow.sink_fd());
    let kind = transfer.flow.sink.kind();
    let idle = match transfer.request.idle {
        Some(idle) => match last_progress.saturating_add(idle).checked_sub(waiter.now()) {
            Some(left) if !left.is_zero() => Some(left),
            _ => return Ok((Some(Turn::Done(Ended::Idle)), false)),
        },
        None => None,
    };
    let interval = transfer.observer.as_ref().and_then(|o| o.interval());
    let timeout = [idle, interval].into_iter().flatten().min();
    if spinning {
        let wake = transfer.control.as_ref().map(Control::wake_fd);
        let rest = Interest {
            ready: None,
            watch: None,
            wake,
        };
        waiter.wait(&rest, Some(timeout.map_or(REST, |t| t.min(REST))))?;
    }
    let ready = match side {
        Side::Source => (source, false),
        Side::Sink => (sink, true),
    };
    // While the source is silent, a sink that dies must not go unnoticed.
    let watch = side == Side::Source && (kind.is_pipe() || kind.is_stream_socket());
    let interest = Interest {
        ready: Some(ready),
        watch: watch.then_some(sink),
        wake: transfer.control.as_ref().map(Control::wake_fd),
    };
    let mut awake = Awake::default();
    if side == Side::Sink && transfer.patience.worth_it(&transfer.flow) {
        awake = waiter.watch(&interest, SPELL)?;
        transfer.patience.learn(awake.ready);
    }
    if awake == Awake::default() {
        awake = waiter.wait(&interest, timeout)?;
    }
    if awake.woken
        && let Some(control) = &transfer.control
    {
        control.clear_wake();
    }
    // A source that has something to say comes first: it may be its end, and
    // then nobody needs the sink any more.
    if !awake.ready
        && (awake.error || awake.hang_up)
        && let Some(errno) = death(sink, kind, awake.hang_up)
    {
        return Ok((Some(Turn::Failed(Some(Side::Sink), Some(errno))), false));
    }
    if awake.ready {
        transfer.flow.mark_ready(side);
    }
    // A sink with something in its error queue wakes us as often as one that
    // lies about being ready.
    Ok((None, awake.ready || awake.error || awake.hang_up))
}

/// What an error or a hang-up on a sink that nobody writes to means.
fn death(sink: BorrowedFd<'_>, kind: Kind, hang_up: bool) -> Option<Errno> {
    if kind.is_pipe() {
        // POLLERR on a write end: there is no reader any more.
        return Some(Errno::EPIPE);
    }
    match rustix::net::sockopt::socket_error(sink) {
        Ok(Err(errno)) | Err(errno) => Some(errno.into()),
        // Both directions are shut down.
        Ok(Ok(())) if hang_up => Some(Errno::EPIPE),
        // Something in the error queue that is no error.
        Ok(Ok(())) => None,
    }
}
