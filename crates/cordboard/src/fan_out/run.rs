//! The loop of a fan-out, on the caller's thread.

use std::sync::Arc;
use std::time::Duration;

use super::block::{self, Block};
use super::end::{self, Ending};
use super::outcome::{FanOutOutcome, Refused, SinkEnded};
use super::outlet::Outlet;
use super::policy::OnSlow;
use super::rest;
use super::slowest::Watcher;
use crate::compose::{Channel, Halt, Intake, Waiter, Wake, messages_stay};
use crate::endpoint::{Endpoint, Facts};
use crate::errno::Errno;
use crate::report::{Ended, Refusal};
use crate::request::{Request, Size};
use crate::sys::SignalGuard;
use crate::transfer::{Control, Observer};

/// Below this size, the caller's pipes are not enlarged at once.
const LARGE: u64 = 128 << 10;

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
    let source = *fan.source.facts();
    let stay = |sink: &Endpoint<'_>| messages_stay(&source, sink.facts(), fan.request.block);
    let messages = source.kind.is_datagram() || fan.sinks.iter().any(|(sink, _)| stay(sink));
    let no_descriptor = |errno| Refusal::NoDescriptor { errno };
    let first = Channel::new(messages)
        .map_err(no_descriptor)
        .map_err(refused(0))?;
    let large = is_large(&source, &fan.request);
    // The idle limit begins when a sink accepts the last byte.
    let wake = fan.request.idle.map(|_| Wake::new());
    let mut outlets = Vec::with_capacity(fan.sinks.len());
    for (sink, (endpoint, policy)) in fan.sinks.into_iter().enumerate() {
        let stays = stay(&endpoint);
        let outlet = Outlet::open(endpoint, policy, &fan.request, stays, wake.as_ref());
        outlets.push(outlet.map_err(refused(sink))?);
    }
    let control = fan.control.as_ref();
    let intake = Intake::new(fan.source.fd(), &first, &fan.request, control);
    let mut intake = intake.map_err(refused(0))?;
    if messages {
        intake.keep_reads();
    }
    // Nothing is refused from here on, so each pipe gets its capacity back at the end.
    if large {
        outlets.iter_mut().for_each(Outlet::enlarge);
    }
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
        pauses: 0,
        wake,
        accepted: 0,
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
pub(super) struct Running<'a> {
    pub(super) first: &'a Channel,
    pub(super) intake: Intake<'a>,
    pub(super) outlets: Vec<Outlet<'a>>,
    /// Bytes that no sink has been given yet.
    pub(super) block: Option<Block>,
    pub(super) control: Option<Control>,
    pub(super) watcher: Watcher<'a>,
    pub(super) idle: Option<Duration>,
    pub(super) patience: Duration,
    pub(super) last_progress: Duration,
    pub(super) progress: u64,
    /// The number of pauses at the last check.
    pub(super) pauses: u32,
    /// Requests wakeups by the transfers to the sinks. `None`: there is no idle limit.
    pub(super) wake: Option<Arc<Wake>>,
    /// Bytes that these transfers had written at the last check.
    pub(super) accepted: u64,
    pub(super) ending: Ending,
}

impl Running<'_> {
    fn turns(&mut self, waiter: &mut dyn Waiter) {
        loop {
            // A transfer that has found its end keeps that result.
            if self.is_cancelled() && !self.is_over() {
                return self.cut_short(Ended::Cancelled, None);
            }
            self.outlets.iter_mut().for_each(Outlet::flush);
            self.find_lost_transfers();
            self.end_after_failure();
            // Before the report, which then has the last bytes of each sink.
            let have_ended = self.all_have_ended();
            let now = waiter.now();
            self.note_progress(now);
            (self.watcher).observe(now, self.intake.read(), &self.outlets);
            if have_ended {
                self.intake.stop(Ended::Cancelled);
                return;
            }
            // A wait follows only if no sink was detached: its timeout depends on which sinks
            // wait for others.
            if self.charge(now) {
                continue;
            }
            let moved = match self.block.is_some() {
                true => self.deliver(),
                false => self.next_block().map(|next| self.complete_sinks() || next),
            };
            let moved = match moved {
                Ok(moved) => moved,
                Err(errno) => return self.end_at_page(errno),
            };
            // Bytes that are ready come first: the process may have been stopped for all that
            // time. A source that is interrupted each time moves none.
            let yields = self.block.is_none() && self.intake.halt() == Halt::Yield;
            if (!moved || yields) && self.is_idle(now) {
                // The transfers to the sinks still write what they hold, and sync them. They
                // have the same time again.
                self.cut_short(Ended::Idle, None);
                self.last_progress = now;
                continue;
            }
            if moved {
                continue;
            }
            if let Err(errno) = self.wait(waiter) {
                self.ending.wait_failed = self.ending.ended.is_none();
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

    /// Ends without waiting for the sinks any more. At the idle limit, ends those that were
    /// given every byte as at the end of the source, and the others at the next limit.
    fn cut_short(&mut self, ended: Ended, errno: Option<Errno>) {
        self.intake.stop(match ended {
            Ended::Error => Ended::Cancelled,
            ended => ended,
        });
        if self.ending.ended.is_none() {
            (self.ending.ended, self.ending.errno) = (Some(ended), errno);
        }
        // Bytes that the intake held are in the channel now.
        if self.block.is_none() && !self.ending.lost_page {
            match block::next(&mut self.intake, self.first) {
                Ok(block) => self.block = block,
                Err(_) => self.ending.lost_page = !self.first.keeps_messages(),
            }
        }
        let completes = ended == Ended::Idle && self.block.is_none() && !self.ending.lost_page;
        for outlet in &mut self.outlets {
            outlet.flush();
            match completes && outlet.is_live() && outlet.is_ready() {
                true => end::complete(outlet),
                false => end::stop(outlet),
            }
        }
    }

    /// After a sink with [`OnSlow::Block`] has failed, no more is read. The others get the
    /// bytes that were read.
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
            self.intake.close();
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
        let (mut asked, late): (Vec<_>, Vec<_>) = (self.outlets.iter_mut().enumerate())
            .filter(|(_, outlet)| outlet.is_live())
            .partition(|(_, outlet)| outlet.is_ready());
        let mut is_accepted = false;
        for (index, outlet) in &mut asked {
            let before = outlet.delivered;
            outlet.accept(&mut block, self.first.reader(), *index == last)?;
            outlet.waited_for = None;
            is_accepted |= outlet.is_live() || outlet.delivered > before;
        }
        if !is_accepted && !late.is_empty() {
            // Each of them has failed just now: the block is for the others.
            for (_, outlet) in asked {
                outlet.return_block(length);
            }
            self.block = Some(block);
            return Ok(true);
        }
        for (_, outlet) in late {
            outlet.drop_block(length);
            outlet.waited_for = None;
        }
        if let Block::Pages(length) = block {
            rest::discard(self.first.reader(), length)?;
        }
        Ok(true)
    }

    /// Reads the next block, or finds the end of the source, or has taken many steps without
    /// either. `false`: the source has no bytes yet, had ended before, or the fan-out is paused.
    fn next_block(&mut self) -> Result<bool, Errno> {
        let had_ended = self.intake.has_ended();
        self.block = block::next(&mut self.intake, self.first)?;
        if self.block.is_none() && self.advances() {
            self.intake.advance();
            self.block = block::next(&mut self.intake, self.first)?;
            if self.block.is_none() && self.intake.halt() == Halt::Yield {
                return Ok(true);
            }
        }
        if self.block.is_some() {
            // A sink that has kept up owes the others nothing.
            for outlet in self.outlets.iter_mut().filter(|outlet| outlet.is_ready()) {
                outlet.debt = Duration::ZERO;
            }
        }
        Ok(self.block.is_some() || self.intake.has_ended() != had_ended)
    }

    /// Returns whether the transfer from the source takes steps. During a pause, these only move
    /// bytes that it has read, or end it after a failure.
    pub(super) fn advances(&self) -> bool {
        !self.is_paused() || self.intake.holds() || self.ending.ended.is_some()
    }

    pub(super) fn is_paused(&self) -> bool {
        self.control.as_ref().is_some_and(Control::is_paused)
    }

    /// Ends each sink that was given every byte. Returns whether there was one.
    fn complete_sinks(&mut self) -> bool {
        if self.block.is_some() || !self.intake.has_ended() {
            return false;
        }
        let mut any = false;
        for outlet in &mut self.outlets {
            if outlet.is_live() && outlet.is_ready() {
                end::complete(outlet);
                any = true;
            }
        }
        any
    }

    /// Returns whether every sink has ended.
    fn all_have_ended(&mut self) -> bool {
        // Not `all()`: `has_ended` records the end of each sink, and a wait follows for
        // the others.
        let mut all = true;
        for outlet in &mut self.outlets {
            all &= end::has_ended(outlet);
        }
        all
    }

    /// Returns whether the source has ended, and each sink has every byte. Only the ends of
    /// the transfers are left, which may sync the sinks.
    pub(super) fn is_over(&self) -> bool {
        let is_left = |outlet: &Outlet<'_>| outlet.is_running() && !outlet.has_all();
        self.intake.has_ended() && self.block.is_none() && !self.outlets.iter().any(is_left)
    }

    fn is_cancelled(&self) -> bool {
        self.control.as_ref().is_some_and(Control::is_cancelled)
    }

    fn note_progress(&mut self, now: Duration) {
        self.accepted = self.wake.as_ref().map_or(0, |wake| wake.written());
        let delivered = self.outlets.iter().map(|outlet| outlet.delivered);
        let sum = delivered.sum::<u64>().wrapping_add(self.accepted);
        let sum = sum.wrapping_add(self.intake.read());
        let pauses = self.control.as_ref().map_or(0, Control::pauses);
        let has_paused = std::mem::replace(&mut self.pauses, pauses) != pauses;
        if sum != self.progress || has_paused || self.is_held_back() {
            (self.progress, self.last_progress) = (sum, now);
        }
    }

    fn is_idle(&self, now: Duration) -> bool {
        let is_due = |idle| now.saturating_sub(self.last_progress) >= idle;
        self.idle.is_some_and(is_due) && !self.is_over()
    }

    /// Returns whether it is paused, or waits for the schedule. The idle limit does not run then.
    pub(super) fn is_held_back(&self) -> bool {
        self.is_paused() || self.intake.awaits_grant()
    }

    /// Counts how long other sinks, or the caller, have waited for each sink, and detaches
    /// those that have used up their patience. Returns whether there was one.
    fn charge(&mut self, now: Duration) -> bool {
        let mut any = false;
        let is_ready = |outlet: &Outlet<'_>| outlet.is_live() && outlet.is_ready();
        // After the last block, the caller waits for the end.
        let over = self.block.is_none() && self.intake.has_ended();
        let anyone_waits = over || self.block.is_some() && self.outlets.iter().any(is_ready);
        for outlet in &mut self.outlets {
            // Also of a sink that has ended, or its time would end each wait at once.
            let since = outlet.waited_for.take();
            let is_charged = outlet.is_running() && outlet.policy == OnSlow::Detach;
            let waited_for = is_charged && outlet.lags() && anyone_waits;
            if !waited_for {
                continue;
            }
            let accepted = Some(outlet.accepted());
            if over && outlet.seen != accepted {
                // Slow, but not stalled: no other sink waits for it.
                (outlet.seen, outlet.debt) = (accepted, Duration::ZERO);
                outlet.waited_for = Some(now);
                continue;
            }
            let waited = now.saturating_sub(since.unwrap_or(now));
            outlet.debt += waited.min(half(self.patience));
            outlet.waited_for = Some(now);
            if outlet.debt >= self.patience {
                end::detach(outlet);
                any = true;
            }
        }
        any
    }
}

/// Returns the longest time of one wait that counts. The process may have been stopped in it,
/// so that only a second wait uses up the patience.
pub(super) fn half(patience: Duration) -> Duration {
    patience.saturating_add(Duration::from_nanos(1)) / 2
}
