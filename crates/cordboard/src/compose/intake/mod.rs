//! A transfer from a source into a private channel, which its composition steps.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::PollFlags;

use super::channel::Channel;
use super::drain::RETRY;
use super::edge::Edge;
use crate::endpoint::Side;
use crate::errno::Errno;
use crate::path::Joins;
use crate::report::{Ended, Failure, Outcome, Refusal, Report};
use crate::request::{Backend, Request};
use crate::sys;
use crate::transfer::{
    Clock as _, Control, Interest, Next, Poll, Stepper, Transfer, Turn, Wait, WaitFor, Wakeup,
};

/// The transfer that reads a source.
pub(crate) struct Intake<'a> {
    transfer: Option<Transfer<'a>>,
    stepper: Stepper,
    poll: Poll,
    next: Next,
    /// The last wait has found the source ready.
    source_polled: bool,
    /// Changes of a source whose error persists.
    edge: Option<Edge>,
    /// Such a source has bytes, or has ended, without a change.
    is_open: bool,
    /// The number of bytes that it may take from the source before it halts. `None`: no
    /// limit.
    quota: Option<u64>,
    /// The number of bytes that [`Intake::arrived`] has returned.
    taken: u64,
    /// The number of steps that have moved no byte since bytes have last moved.
    fruitless: u32,
    /// [`Halt::Yield`].
    yields: bool,
    /// The composition has ended the reading.
    is_closed: bool,
    outcome: Option<Outcome>,
}

/// The number of steps in a row that may move no byte. Empty datagrams may arrive without end,
/// and a server of FUSE may interrupt each read.
const FRUITLESS: u32 = 32;

/// Why a transfer takes no step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Halt {
    /// It can take the next step.
    No,
    /// It can take the next step, but has taken many that have moved no byte: others are next.
    Yield,
    /// Its turn is used up. [`Intake::grant`] starts the next one.
    Turn,
    /// It waits for its source, or for a time.
    Source,
    /// The channel is full.
    Channel,
    /// It has ended.
    End,
}

/// Returns the timeout of a wait. `has_fd`: a descriptor can end the wait earlier.
pub(crate) fn longest(wait: &Wait, has_fd: bool) -> Option<Duration> {
    match wait.target {
        WaitFor::Side(_) if !has_fd => Some(wait.timeout.map_or(RETRY, |time| time.min(RETRY))),
        _ => wait.timeout,
    }
}

/// Returns whether a wait is one for a change of the source.
fn is_for_change(interest: &Interest<'_>) -> bool {
    let is_source = matches!(interest.polled(), Some((_, false)));
    is_source && interest.edge_triggered[0]
}

/// Returns the refusal of a transfer that has not begun.
pub(crate) fn refusal(failure: Failure, side: Side) -> Refusal {
    let errno = failure.report.errno.unwrap_or(Errno::EINVAL);
    (failure.refusal).unwrap_or(Refusal::Unusable { side, errno })
}

impl<'a> Intake<'a> {
    /// Examines the source. The sink offset, the sync and the idle limit of the request
    /// apply to another transfer. `control`: its schedule applies to the bytes read.
    ///
    /// # Errors
    ///
    /// As [`Transfer::new`].
    pub(crate) fn new(
        source: BorrowedFd<'a>,
        channel: &'a Channel,
        request: &Request,
        control: Option<&Control>,
    ) -> Result<Intake<'a>, Refusal> {
        let request = Request {
            sink_offset: None,
            sink_unshared: true,
            sync: false,
            idle: None,
            ..request.clone()
        };
        let transfer = Transfer::new(source, channel.writer(), request)
            .map_err(|failure| refusal(failure, Side::Source))?
            .keeping_all();
        let mut transfer = match control {
            Some(control) => transfer.control(control),
            None => transfer,
        };
        let backend = Backend::from_env().unwrap_or_default();
        transfer.set_up(backend);
        let mut poll = Poll::new();
        Ok(Intake {
            transfer: Some(transfer),
            stepper: Stepper::begin(poll.now()),
            poll,
            next: Next::Step,
            source_polled: false,
            edge: None,
            is_open: false,
            quota: None,
            taken: 0,
            fruitless: 0,
            yields: false,
            is_closed: false,
            outcome: None,
        })
    }

    /// Writes each read of the source as a message of its own, also if the request has a block.
    pub(crate) fn keep_reads(&mut self) {
        if let Some(transfer) = &mut self.transfer {
            transfer.flow.options.joins = Joins::Nothing;
        }
    }

    /// Waits for the source before the first step if it may be a FIFO that has no writer
    /// yet: a read would return the end.
    pub(crate) fn wait_for_writer(&mut self) {
        if let Some(transfer) = &self.transfer
            && transfer.may_wait_for_writer()
        {
            let target = WaitFor::Side(Side::Source);
            let wait = self.stepper.new_wait(transfer, target, &mut self.poll);
            self.next = Next::Wait(wait);
        }
    }

    /// Allows the transfer to take `bytes` bytes, after which it halts. A record that
    /// cannot be divided is taken whole.
    pub(crate) fn grant(&mut self, bytes: u64) {
        let was_over = self.halt() == Halt::Turn;
        self.quota = Some(bytes);
        if was_over && bytes > 0 {
            self.resume(PollFlags::empty());
        }
    }

    /// Takes steps until bytes have arrived in the channel, or the transfer halts.
    pub(crate) fn advance(&mut self) {
        let Some(transfer) = &mut self.transfer else {
            return;
        };
        self.yields = false;
        while matches!(self.next, Next::Step | Next::Elsewhere) {
            let before = transfer.counts();
            transfer.set_quota(self.quota);
            // With a quota of 0, a step does not read the source.
            let polls = !std::mem::take(&mut self.source_polled) && self.quota != Some(0);
            let first = match polls {
                true => self.stepper.poll_source_first(transfer, &mut self.poll),
                false => None,
            };
            self.next = match first {
                Some(next) => next,
                None => self.stepper.step(transfer, false, &mut self.poll),
            };
            let counts = transfer.counts();
            if let Some(quota) = &mut self.quota {
                *quota = quota.saturating_sub(counts.0 - before.0);
            }
            if counts != before {
                self.fruitless = 0;
            } else if matches!(self.next, Next::Step | Next::Elsewhere) {
                self.fruitless += 1;
            }
            if counts.1 > before.1 {
                break;
            }
            if self.fruitless >= FRUITLESS {
                (self.fruitless, self.yields) = (0, true);
                break;
            }
        }
        self.settle_at_end();
    }

    /// Returns why the transfer takes no step.
    pub(crate) fn halt(&self) -> Halt {
        match &self.next {
            _ if self.has_ended() => Halt::End,
            Next::Wait(wait) => match wait.target {
                WaitFor::Side(Side::Sink) | WaitFor::Backoff(Side::Sink) => Halt::Channel,
                WaitFor::Grant if self.quota == Some(0) => Halt::Turn,
                _ => Halt::Source,
            },
            _ if self.yields => Halt::Yield,
            Next::Step | Next::Elsewhere | Next::End(_) => Halt::No,
        }
    }

    /// Returns whether bytes that were read have not arrived in the channel.
    pub(crate) fn holds(&self) -> bool {
        self.transfer.as_ref().is_some_and(Transfer::holds)
    }

    /// Returns whether the transfer waits for its schedule.
    pub(crate) fn awaits_grant(&self) -> bool {
        let waits = matches!(&self.next, Next::Wait(wait) if wait.target == WaitFor::Grant);
        waits && self.halt() == Halt::Source
    }

    /// Returns whether the transfer waits for the end of a pause.
    pub(crate) fn awaits_resume(&self) -> bool {
        matches!(&self.next, Next::Wait(wait) if wait.target == WaitFor::Resume)
    }

    /// Ends a transfer whose source has ended, although no call has found that yet.
    pub(crate) fn look_for_the_end(&mut self) {
        if let Some(end) = self.transfer.as_mut().and_then(Transfer::end_of_source) {
            self.next = Next::End(end);
            self.settle_at_end();
        }
    }

    fn settle_at_end(&mut self) {
        if let Next::End(turn) = self.next.clone() {
            self.settle(&turn);
        }
    }

    fn settle(&mut self, turn: &Turn) {
        if let Some(transfer) = self.transfer.take() {
            let turn = match turn {
                // Not the size of the request.
                Turn::Done(Ended::Size) if self.is_closed => &Turn::Done(Ended::Cancelled),
                turn => turn,
            };
            let outcome = transfer.settle(turn, &mut self.poll, self.stepper.start);
            self.outcome = Some(outcome);
        }
    }

    /// Takes nothing more from the source. If bytes that were read are still to go into the
    /// channel, the transfer ends after them, and at once otherwise.
    pub(crate) fn close(&mut self) {
        let Some(transfer) = &mut self.transfer else {
            return;
        };
        self.is_closed |= !transfer.flow.allowance.is_over();
        if !transfer.stop_reading() {
            return self.stop(Ended::Cancelled);
        }
        let waits_for_room = matches!(&self.next, Next::Wait(wait)
            if matches!(wait.target, WaitFor::Side(Side::Sink) | WaitFor::Backoff(Side::Sink)));
        if !waits_for_room && !matches!(self.next, Next::End(_)) {
            // The step does not read the source, which may be locked.
            (self.next, self.source_polled) = (Next::Step, true);
        }
    }

    /// Ends the transfer early. Bytes that it has read and not written go into the
    /// channel as far as there is room, and back to the source otherwise.
    pub(crate) fn stop(&mut self, ended: Ended) {
        self.settle(&Turn::Done(ended));
    }

    /// Returns the wait of the transfer, if it waits, and the descriptor to poll. If the
    /// source counts as ready without being polled, the timeout is 0.
    pub(crate) fn wait(&self) -> Option<(Wait, Option<BorrowedFd<'_>>)> {
        let (Next::Wait(wait), Some(transfer)) = (&self.next, &self.transfer) else {
            return None;
        };
        let interest = wait.interest(transfer);
        let ready = match interest.polled() {
            // A persistent error would end each wait at once.
            Some(_) if interest.edge_triggered[0] => self.changes(&interest).map(Edge::fd),
            ready => ready.map(|(fd, _)| fd),
        };
        let timeout = match interest.always_ready || self.is_open {
            true => Some(Duration::ZERO),
            false => wait.timeout,
        };
        Some((Wait { timeout, ..*wait }, ready))
    }

    /// Returns the changes of the source, if a wait for it is one for its next change.
    fn changes(&self, interest: &Interest<'_>) -> Option<&Edge> {
        self.edge.as_ref().filter(|_| is_for_change(interest))
    }

    /// Called before each wait. Forgets that the last one has found the source ready: the
    /// composition may not have called [`Intake::advance`] since, and another process may have
    /// taken the bytes.
    pub(crate) fn prepare_wait(&mut self) {
        (self.source_polled, self.is_open) = (false, false);
        let (Next::Wait(wait), Some(transfer)) = (&self.next, &self.transfer) else {
            return;
        };
        let interest = wait.interest(transfer);
        if let Some((source, _)) = interest.polled().filter(|_| is_for_change(&interest)) {
            if self.edge.is_none() {
                self.edge = Edge::new(source).ok();
            }
            // The transfer may not have taken all that the last change has announced.
            let shown = sys::poll_now(source, PollFlags::IN);
            let others = PollFlags::IN | PollFlags::HUP;
            self.is_open = shown.is_ok_and(|shown| shown.shows(others) == Some(true));
        }
    }

    /// Continues after a wait. `shown`: the events of the descriptor from `poll(2)`.
    pub(crate) fn resume(&mut self, shown: PollFlags) {
        let (Next::Wait(wait), Some(transfer)) = (self.next.clone(), &mut self.transfer) else {
            return;
        };
        let mut shown = shown;
        if !shown.is_empty()
            && let Some(edge) = &self.edge
            && is_for_change(&wait.interest(transfer))
        {
            shown = edge.take();
        }
        shown.set(PollFlags::IN, self.is_open || shown.contains(PollFlags::IN));
        let wakeup = Wakeup {
            ready: !shown.is_empty(),
            // There are events other than an error.
            open: !(shown - PollFlags::ERR).is_empty(),
            ..Wakeup::default()
        };
        let wakeup = wakeup.with_always_ready(&wait.interest(transfer));
        self.source_polled = wait.found_source(wakeup);
        self.next = (self.stepper).resume(transfer, wait, wakeup, &mut self.poll);
        self.settle_at_end();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.transfer.is_none()
    }

    /// Returns the outcome, or an empty one if the transfer has not ended.
    pub(crate) fn into_outcome(self) -> Outcome {
        self.outcome.unwrap_or_else(|| Outcome {
            report: Report::default(),
            stranded: None,
        })
    }

    /// Returns the outcome, if the transfer has ended.
    pub(crate) fn ending(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// Returns the number of bytes read from the source.
    pub(crate) fn read(&self) -> u64 {
        match (&self.transfer, &self.outcome) {
            (Some(transfer), _) => transfer.counts().0,
            (_, Some(outcome)) => outcome.report.read,
            _ => 0,
        }
    }

    /// Returns the number of bytes that have arrived in the channel since the last call.
    pub(crate) fn arrived(&mut self) -> u64 {
        let arrived = match (&self.transfer, &self.outcome) {
            (Some(transfer), _) => transfer.counts().1,
            (_, Some(outcome)) => outcome.report.written,
            _ => self.taken,
        };
        let since = arrived - self.taken;
        self.taken = arrived;
        since
    }
}

#[cfg(test)]
mod tests;
