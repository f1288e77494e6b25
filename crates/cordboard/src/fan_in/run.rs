//! The loop of a fan-in, on the caller's thread.

use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use super::end::{self, Closed, Ending};
use super::inlet::{Inlet, Sorter};
use super::ledger::Ledger;
use super::limit::Limit;
use super::order::{Order, Round};
use super::outcome::{FanInOutcome, Refused};
use super::policy::{OnFailure, Turn};
use super::records::Records;
use crate::compose::{Channel, Drain, Halt, Intake, Waiter, content, longest, refusal};
use crate::endpoint::{Endpoint, Side};
use crate::errno::Errno;
use crate::report::Refusal;
use crate::request::Request;
use crate::sys::SignalGuard;
use crate::transfer::{Control, Observer};

/// A fan-in that was examined.
pub(super) struct Parts<'a> {
    pub(super) sources: Vec<(Endpoint<'a>, OnFailure)>,
    pub(super) sink: Endpoint<'a>,
    pub(super) request: Request,
    pub(super) turn: Turn,
    pub(super) longest: usize,
    pub(super) control: Option<Control>,
    pub(super) observer: Option<Box<dyn Observer + Send + 'a>>,
}

/// Runs a fan-in to its end.
pub(super) fn run(fan: Parts<'_>, waiter: &mut dyn Waiter) -> Result<FanInOutcome, Refused> {
    let refused = |source_index| {
        move |refusal| Refused {
            source_index,
            refusal,
        }
    };
    let no_descriptor = |errno| Refusal::NoDescriptor { errno };
    let by_record = match fan.turn {
        Turn::ByRecord { delimiter } => Some(delimiter),
        Turn::ByTurn { .. } | Turn::ByDatagram => None,
    };
    let channel = Channel::new(fan.turn == Turn::ByDatagram)
        .map_err(no_descriptor)
        .map_err(refused(0))?;
    let own = (fan.sources.iter().enumerate()).filter(|_| by_record.is_some());
    let own = own.map(|(index, _)| {
        Channel::small()
            .map_err(no_descriptor)
            .map_err(refused(index))
    });
    let own: Vec<Channel> = own.collect::<Result<_, _>>()?;
    let mut inlets = Vec::with_capacity(fan.sources.len());
    for (index, (source, policy)) in fan.sources.iter().enumerate() {
        let into = own.get(index).unwrap_or(&channel);
        let intake = Intake::new(source.fd(), into, &fan.request, None);
        let mut intake = intake.map_err(refused(index))?;
        // A FIFO that has no writer yet is a silent source.
        intake.wait_for_writer();
        let sorter = own.get(index).zip(by_record);
        let sorter = sorter.map(|(own, delimiter)| {
            let records = Records::new(delimiter, fan.longest);
            Sorter::new(own, records)
        });
        inlets.push(Inlet::new(intake, *policy, sorter));
    }
    let limit = fan.request.idle.map(|idle| Limit::new(idle, waiter.now()));
    let drain = Drain::start(
        channel.reader(),
        fan.sink.fd(),
        &fan.request,
        fan.control.as_ref(),
        fan.observer,
        limit.as_ref().map(|limit| Arc::clone(limit.wake())),
        limit.is_some(),
    )
    .map_err(|failure| refusal(failure, Side::Sink))
    .map_err(refused(0))?;
    let guard = SignalGuard::start();
    let rounds = Rounds {
        channel: &channel,
        ledger: Ledger::new(inlets.len()),
        order: Order::new(inlets.len()),
        inlets,
        turn: fan.turn.bytes(),
        drain,
        control: fan.control,
        limit,
        ending: Ending::default(),
    };
    let (closed, drain, ledger, ending) = rounds.finish(waiter);
    drop(own);
    let messages = channel.keeps_messages();
    let reader = channel.close_writer();
    let read = closed.iter().map(Closed::read).sum();
    let drained = drain.finish(waiter, read);
    let left = content(&reader, messages);
    let outcome = end::outcome(drained, left, closed, ledger, ending, messages);
    drop(guard);
    Ok(outcome)
}

/// A running fan-in.
struct Rounds<'a, 'o> {
    channel: &'a Channel,
    inlets: Vec<Inlet<'a>>,
    order: Order,
    /// Bytes of a turn.
    turn: u64,
    ledger: Ledger,
    /// The transfer to the sink.
    drain: Drain<'o>,
    /// The handle of that transfer.
    control: Option<Control>,
    /// `None`: there is no idle limit, or it was reached.
    limit: Option<Limit>,
    ending: Ending,
}

impl<'o> Rounds<'_, 'o> {
    fn finish(mut self, waiter: &mut dyn Waiter) -> (Vec<Closed>, Drain<'o>, Ledger, Ending) {
        self.run(waiter);
        let closed = self.inlets.into_iter().map(end::close).collect();
        (closed, self.drain, self.ledger, self.ending)
    }

    fn run(&mut self, waiter: &mut dyn Waiter) {
        loop {
            let status = self.drain.status();
            self.ledger.accepted(status.written);
            // The transfer to the sink has failed, was cancelled or has reached its idle
            // limit: it cannot have reached the end, because the channel is still open.
            if status.ended {
                return self.stop();
            }
            let read = self.read();
            self.drain.observe(read);
            let round = self.round();
            if self.inlets.iter_mut().all(Inlet::is_over) {
                return;
            }
            // Bytes that are ready come first: the process may have been stopped for all that
            // time.
            if self.is_idle(waiter.now()) {
                self.end_at_limit();
                continue;
            }
            if let Err(errno) = self.wait(waiter, round) {
                self.ending.errno = Some(errno);
                return self.stop();
            }
        }
    }

    /// Returns the number of bytes read from all sources.
    fn read(&self) -> u64 {
        self.inlets.iter().map(|inlet| inlet.intake.read()).sum()
    }

    fn is_idle(&mut self, now: Duration) -> bool {
        let read = self.read();
        let control = self.control.as_ref();
        let limit = self.limit.as_mut();
        limit.is_some_and(|limit| limit.is_reached(now, read, control, &self.drain))
    }

    /// Takes nothing more from the sources. The sink gets all bytes that were read, for which
    /// its transfer has a limit of its own.
    fn end_at_limit(&mut self) {
        (self.limit, self.ending.is_idle) = (None, true);
        self.close(true);
    }

    /// Takes nothing more from the sources: [`Inlet::close`].
    fn close(&mut self, rest_is_record: bool) {
        for at in self.order.all() {
            let ledger = &mut self.ledger;
            self.inlets[at].close(rest_is_record, &mut |bytes| ledger.entered(at, bytes));
        }
    }

    /// Gives each source a turn, unless the channel is full.
    fn round(&mut self) -> Round {
        loop {
            let (at, turn) = (self.order.turn(), self.turn);
            let ledger = &mut self.ledger;
            let mut entered = |bytes| ledger.entered(at, bytes);
            let gave = self.inlets[at].give(self.channel, turn, &mut entered);
            let end = self.order.pass(gave);
            self.end_after_failure(at);
            if let Some(end) = end {
                return end;
            }
        }
    }

    /// Stops reading after a source with [`OnFailure::End`] has failed.
    fn end_after_failure(&mut self, at: usize) {
        let inlet = &self.inlets[at];
        if inlet.policy == OnFailure::End
            && self.ending.failed_source.is_none()
            && let Some(errno) = inlet.failure()
        {
            (self.ending.failed_source, self.ending.errno) = (Some(at), Some(errno));
            self.close(false);
        }
    }

    /// Stops reading all sources.
    fn stop(&mut self) {
        for at in self.order.all() {
            let ledger = &mut self.ledger;
            self.inlets[at].stop(&mut |bytes| ledger.entered(at, bytes));
        }
    }

    /// Waits until the channel has room, a source has bytes, the transfer to the sink has
    /// ended, or a timeout expires.
    fn wait(&mut self, waiter: &mut dyn Waiter, round: Round) -> Result<(), Errno> {
        if self.limit.as_ref().is_some_and(|limit| !limit.request()) {
            return Ok(());
        }
        let now = waiter.now();
        let mut timeout = (round == Round::More).then_some(Duration::ZERO);
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(self.inlets.len() + 2);
        let full = (round == Round::Full).then(|| self.order.turn());
        let mut watched = Vec::new();
        for (index, inlet) in self.inlets.iter_mut().enumerate() {
            inlet.intake.prepare_wait();
            let halt = inlet.intake.halt();
            match full {
                // Records are written by this thread, not by the transfer.
                Some(its) if its == index && halt != Halt::Channel => {
                    let fd = self.channel.writer();
                    fds.push(PollFd::from_borrowed_fd(fd, PollFlags::OUT));
                    continue;
                }
                Some(its) if its == index => {}
                Some(_) => continue,
                None if halt == Halt::Source => {}
                None => continue,
            }
            let Some((wait, fd)) = inlet.intake.wait() else {
                continue;
            };
            let longest = longest(&wait, fd.is_some());
            let longest = longest.map(|timeout| now.saturating_add(timeout));
            inlet.until = inlet.until.or(longest);
            let left = inlet.until.map(|until| until.saturating_sub(now));
            timeout = timeout.into_iter().chain(left).min();
            watched.push((index, fd.map(|_| fds.len())));
            if let Some(fd) = fd {
                let flags = match full {
                    Some(_) => PollFlags::OUT,
                    None => PollFlags::IN,
                };
                fds.push(PollFd::from_borrowed_fd(fd, flags));
            }
        }
        if let Some(limit) = &self.limit {
            timeout = limit.add_to(&mut fds, timeout, now);
        }
        self.drain.wait(waiter, &mut fds, timeout)?;
        let shown: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        drop(fds);
        if let Some(limit) = &self.limit {
            limit.clear();
        }
        let now = waiter.now();
        for (index, at) in watched {
            let inlet = &mut self.inlets[index];
            let shown = at.map_or(PollFlags::empty(), |at| shown[at]);
            if !shown.is_empty() || inlet.until.is_some_and(|until| until <= now) {
                inlet.intake.resume(shown);
                inlet.until = None;
            }
        }
        Ok(())
    }
}
