//! The loop of a fan-out, on the caller's thread.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use super::block::{self, Block};
use super::end::{self, Ending};
use super::outcome::{FanOutOutcome, Refused, SinkEnded};
use super::outlet::{Outlet, Target};
use super::policy::OnSlow;
use super::rest;
use super::slowest::Watcher;
use crate::compose::{Channel, Intake, Waiter};
use crate::endpoint::{Endpoint, Facts};
use crate::errno::Errno;
use crate::report::{Ended, Refusal};
use crate::request::{Request, Size};
use crate::sys::SignalGuard;
use crate::transfer::{Control, Observer};

/// Below this size, the caller's pipes are not enlarged at once.
const LARGE: u64 = 128 << 10;

/// The interval at which the source is tried while an error on it persists.
const RETRY: Duration = Duration::from_millis(5);

/// A fan-out that was examined.
pub(super) struct Parts<'a> {
    pub(super) source: Endpoint<'a>,
    pub(super) sinks: Vec<(Endpoint<'a>, OnSlow)>,
    pub(super) request: Request,
    pub(super) patience: Duration,
    pub(super) control: Option<Control>,
    pub(super) observer: Option<Box<dyn Observer + Send + 'a>>,
}

/// Runs a fan-out to its end.
pub(super) fn run(fan: Parts<'_>, waiter: &mut dyn Waiter) -> Result<FanOutOutcome, Refused> {
    let refused = |sink| move |refusal| Refused { sink, refusal };
    let messages = fan.source.kind().is_datagram();
    let no_descriptor = |errno| Refusal::NoDescriptor { errno };
    let first = Channel::new(messages)
        .map_err(no_descriptor)
        .map_err(refused(0))?;
    let large = is_large(fan.source.facts(), &fan.request);
    let mut outlets = Vec::with_capacity(fan.sinks.len());
    for (sink, (endpoint, policy)) in fan.sinks.into_iter().enumerate() {
        let outlet = Outlet::open(endpoint, policy, &fan.request, messages, large);
        outlets.push(outlet.map_err(refused(sink))?);
    }
    let control = fan.control.as_ref();
    let intake = Intake::new(fan.source.fd(), &first, &fan.request, control);
    let intake = intake.map_err(refused(0))?;
    let guard = SignalGuard::start();
    let mut control = fan.control;
    if let Some(control) = &mut control {
        control.listen();
    }
    let now = waiter.now();
    let mut running = Running {
        first: &first,
        intake,
        outlets,
        block: None,
        control,
        watcher: Watcher::new(fan.observer, now),
        idle: fan.request.idle,
        patience: fan.patience,
        last_progress: now,
        progress: 0,
        ending: Ending::default(),
    };
    running.turns(waiter);
    let Running {
        intake,
        outlets,
        block,
        ending,
        ..
    } = running;
    let outcome = end::outcome(&first, intake, outlets, block, ending);
    drop(guard);
    Ok(outcome)
}

/// Returns whether the source is a file from which more than a little is to be read.
fn is_large(source: &Facts, request: &Request) -> bool {
    let wanted = match request.size {
        Size::Bytes(bytes) => bytes,
        Size::Eof => u64::MAX,
    };
    source.kind.is_cached() && source.size.unwrap_or(0).min(wanted) > LARGE
}

/// A running fan-out.
struct Running<'a> {
    first: &'a Channel,
    intake: Intake<'a>,
    outlets: Vec<Outlet<'a>>,
    /// Bytes that no sink has been given yet.
    block: Option<Block>,
    control: Option<Control>,
    watcher: Watcher<'a>,
    idle: Option<Duration>,
    patience: Duration,
    last_progress: Duration,
    progress: u64,
    ending: Ending,
}

impl Running<'_> {
    fn turns(&mut self, waiter: &mut dyn Waiter) {
        loop {
            if self.control.as_ref().is_some_and(Control::is_cancelled) {
                return self.cut_short(Ended::Cancelled, None);
            }
            for outlet in &mut self.outlets {
                outlet.flush();
                outlet.check();
            }
            self.end_after_failure();
            let now = waiter.now();
            self.note_progress(now);
            (self.watcher).observe(now, self.intake.read(), &self.outlets);
            self.charge(now);
            if self.is_idle(now) {
                return self.cut_short(Ended::Idle, None);
            }
            if !self.outlets.iter().any(Outlet::is_live) {
                self.intake.stop(Ended::Cancelled);
                return;
            }
            if self.block.is_some() {
                match self.deliver() {
                    Ok(true) => continue,
                    Ok(false) => {}
                    Err(errno) => return self.end_at_page(errno),
                }
            } else {
                match self.next_block() {
                    Ok(true) => continue,
                    Ok(false) if self.is_finished() => {
                        // A sink may have accepted its last bytes since the last report.
                        let (now, read) = (waiter.now(), self.intake.read());
                        return self.watcher.observe(now, read, &self.outlets);
                    }
                    Ok(false) => {}
                    Err(errno) => return self.end_at_page(errno),
                }
            }
            if let Err(errno) = self.wait(waiter) {
                return self.cut_short(Ended::Error, Some(errno));
            }
        }
    }

    /// Ends at a page of the source that cannot be read. The sinks that have not been given
    /// its block count it as stranded ([`end::outcome`]).
    fn end_at_page(&mut self, errno: Errno) {
        // A datagram stays queued.
        self.ending.lost_page = !self.first.keeps_messages();
        self.cut_short(Ended::Error, Some(errno));
    }

    /// Ends without waiting for the sinks any more.
    fn cut_short(&mut self, ended: Ended, errno: Option<Errno>) {
        self.intake.stop(match ended {
            Ended::Error => Ended::Cancelled,
            ended => ended,
        });
        if self.ending.ended.is_none() {
            (self.ending.ended, self.ending.errno) = (Some(ended), errno);
        }
        for outlet in self.outlets.iter_mut().filter(|outlet| outlet.is_live()) {
            outlet.flush();
            let has_all = self.block.is_none() && outlet.is_ready();
            if !has_all || matches!(outlet.target, Target::Private(..)) {
                outlet.ended.get_or_insert(SinkEnded::Stopped);
            }
        }
    }

    /// After a sink with [`OnSlow::Block`] has failed, no more is read.
    fn end_after_failure(&mut self) {
        if self.ending.ended.is_some() {
            return;
        }
        let failed = |outlet: &Outlet<'_>| {
            outlet.policy == OnSlow::Block && outlet.ended == Some(SinkEnded::Failed)
        };
        if let Some(sink) = self.outlets.iter().position(failed) {
            self.ending = Ending {
                ended: Some(Ended::Error),
                failed_sink: Some(sink),
                errno: self.outlets[sink].errno,
                ..self.ending
            };
            self.intake.stop(Ended::Cancelled);
        }
    }

    /// Gives the block to the sinks that are ready, unless one of the others is to be
    /// waited for.
    fn deliver(&mut self) -> Result<bool, Errno> {
        let live = || self.outlets.iter().filter(|outlet| outlet.is_live());
        let waits = |outlet: &Outlet<'_>| !outlet.is_ready() && outlet.policy != OnSlow::Drop;
        let Some(last) = (self.outlets.iter()).rposition(|o| o.is_live() && o.is_ready()) else {
            return Ok(false);
        };
        if live().any(waits) {
            return Ok(false);
        }
        let Some(mut block) = self.block.take() else {
            return Ok(false);
        };
        let length = block.len();
        for (index, outlet) in self.outlets.iter_mut().enumerate() {
            match (outlet.is_live(), outlet.is_ready()) {
                (false, _) => {}
                (true, false) => outlet.drop_block(length),
                (true, true) => outlet.accept(&mut block, self.first.reader(), index == last)?,
            }
            outlet.waited_for = None;
        }
        if let Block::Pages(length) = block {
            rest::discard(self.first.reader(), length)?;
        }
        Ok(true)
    }

    /// Reads the next block. `false`: the source has no bytes yet, has ended, or the
    /// fan-out is paused.
    fn next_block(&mut self) -> Result<bool, Errno> {
        self.block = block::next(&mut self.intake, self.first)?;
        if self.block.is_none() && !self.is_paused() {
            self.intake.advance();
            self.block = block::next(&mut self.intake, self.first)?;
        }
        if self.block.is_some() {
            // A sink that has kept up owes the others nothing.
            for outlet in self.outlets.iter_mut().filter(|outlet| outlet.is_ready()) {
                outlet.debt = Duration::ZERO;
            }
        }
        Ok(self.block.is_some())
    }

    fn is_paused(&self) -> bool {
        self.control.as_ref().is_some_and(Control::is_paused)
    }

    /// Ends each sink that has everything, and returns whether all have ended.
    fn is_finished(&mut self) -> bool {
        if !self.intake.has_ended() {
            return false;
        }
        for outlet in &mut self.outlets {
            if outlet.is_live() && outlet.is_ready() {
                end::complete(outlet);
            }
        }
        // Not `all()`: `has_ended` records the end of each sink, and a wait follows for
        // the others.
        let mut all = true;
        for outlet in &mut self.outlets {
            all &= end::has_ended(outlet);
        }
        all
    }

    fn note_progress(&mut self, now: Duration) {
        let sum = self.outlets.iter().map(Outlet::progress).sum::<u64>();
        let sum = sum.wrapping_add(self.intake.read());
        if sum != self.progress || self.is_paused() {
            (self.progress, self.last_progress) = (sum, now);
        }
    }

    fn is_idle(&self, now: Duration) -> bool {
        (self.idle).is_some_and(|idle| now.saturating_sub(self.last_progress) >= idle)
    }

    /// Counts how long other sinks have waited for each sink, and detaches those that
    /// have used up their patience.
    fn charge(&mut self, now: Duration) {
        let others_wait = |outlet: &Outlet<'_>| !outlet.is_live() || outlet.is_ready();
        let ready = self
            .outlets
            .iter()
            .filter(|o| o.is_live() && o.is_ready())
            .count();
        let over = self.block.is_none() && self.intake.has_ended();
        let anyone = ready > 0 || over && self.outlets.iter().any(others_wait);
        for outlet in self.outlets.iter_mut().filter(|outlet| outlet.is_live()) {
            let waited_for = outlet.policy == OnSlow::Detach
                && !outlet.is_ready()
                && anyone
                && (self.block.is_some() || over);
            let since = outlet.waited_for.take();
            if !waited_for {
                continue;
            }
            outlet.debt += now.saturating_sub(since.unwrap_or(now));
            outlet.waited_for = Some(now);
            if outlet.debt >= self.patience {
                end::detach(outlet);
            }
        }
    }

    /// Waits until a sink has room, the source has bytes, or a time has passed.
    fn wait(&mut self, waiter: &mut dyn Waiter) -> Result<(), Errno> {
        let now = waiter.now();
        let mut timeouts = Vec::new();
        if let Some(idle) = self.idle {
            timeouts.push(self.last_progress.saturating_add(idle).saturating_sub(now));
        }
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(self.outlets.len() + 2);
        for outlet in &self.outlets {
            for (fd, flags) in interests(outlet) {
                fds.push(PollFd::from_borrowed_fd(fd, flags));
            }
            if let Some(since) = outlet.waited_for {
                let left = self.patience.saturating_sub(outlet.debt);
                timeouts.push(since.saturating_add(left).saturating_sub(now));
            }
        }
        let control = self.control.as_ref();
        if let Some(control) = control {
            timeouts.extend(control.interval());
        }
        timeouts.extend(self.watcher.interval());
        let wake = control.and_then(Control::wake_fd).map(|fd| {
            fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            fds.len() - 1
        });
        let waits = (self.block.is_none() && !self.is_paused()).then(|| self.intake.wait());
        let source = waits.flatten().and_then(|(wait, fd)| {
            timeouts.extend(wait.timeout);
            let Some(fd) = fd else {
                timeouts.push(RETRY);
                return None;
            };
            fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            Some(fds.len() - 1)
        });
        let was_waiting = self.block.is_none() && !self.is_paused();
        waiter.wait(&mut fds, timeouts.into_iter().min())?;
        let shown = |at: Option<usize>| at.map_or(PollFlags::empty(), |at| fds[at].revents());
        let (woken, read) = (!shown(wake).is_empty(), shown(source));
        drop(fds);
        if woken && let Some(control) = &mut self.control {
            control.clear_wake();
        }
        if was_waiting {
            self.intake.resume(read);
        }
        self.find_closed_sinks(waiter)
    }

    /// Notices sinks that are pipes without a reader while nothing is written to them.
    fn find_closed_sinks(&mut self, waiter: &mut dyn Waiter) -> Result<(), Errno> {
        let closed: Vec<bool> = {
            let is_watched =
                |outlet: &Outlet<'_>| outlet.is_live() && matches!(outlet.target, Target::Sink);
            let mut fds: Vec<PollFd<'_>> = (self.outlets.iter())
                .filter(|outlet| is_watched(outlet))
                .map(|o| PollFd::from_borrowed_fd(o.writer(), PollFlags::empty()))
                .collect();
            if fds.is_empty() {
                return Ok(());
            }
            waiter.wait(&mut fds, Some(Duration::ZERO))?;
            let mut shown = fds.iter().map(|fd| fd.revents().contains(PollFlags::ERR));
            (self.outlets.iter())
                .map(|outlet| is_watched(outlet) && shown.next() == Some(true))
                .collect()
        };
        for (outlet, closed) in self.outlets.iter_mut().zip(closed) {
            // A pipe's POLLERR: there is no reader (`pipe_poll`, fs/pipe.c).
            if closed && !(self.intake.has_ended() && outlet.is_ready()) {
                outlet.fail(Errno::EPIPE);
            }
        }
        Ok(())
    }
}

/// Returns the descriptors to poll for a sink. The descriptor of a transfer is included
/// until its end was seen, because the transfer may have ended since the last check.
/// Otherwise the wait could have no descriptor, and never end.
fn interests<'a>(outlet: &'a Outlet<'_>) -> Vec<(BorrowedFd<'a>, PollFlags)> {
    let mut all = Vec::new();
    if outlet.is_live() && !outlet.is_ready() {
        all.push((outlet.writer(), PollFlags::OUT));
    } else if outlet.is_live() && matches!(outlet.target, Target::Sink) {
        // Errors only.
        all.push((outlet.writer(), PollFlags::empty()));
    }
    let waits_for_end = outlet.is_live() || outlet.ended == Some(SinkEnded::Complete);
    if let Target::Private(_, running) | Target::Ending(_, running) = &outlet.target
        && waits_for_end
        && !outlet.settled
        && let Ok(fd) = running.fd()
    {
        all.push((fd, PollFlags::IN));
    }
    all
}
