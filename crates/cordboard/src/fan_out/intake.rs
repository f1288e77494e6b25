//! The transfer from the source into the first channel.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::net::RecvFlags;

use super::block::Block;
use super::channel::Channel;
use crate::errno::Errno;
use crate::report::{Ended, Outcome};
use crate::request::Backend;
use crate::sys::{self, page_size};
use crate::transfer::{Clock as _, Control, Next, Poll, Stepper, Transfer, Turn, Wait, Wakeup};

/// The transfer that reads the source.
pub(super) struct Intake<'a> {
    transfer: Option<Transfer<'a>>,
    stepper: Stepper,
    poll: Poll,
    next: Next,
    /// Bytes of the first channel that have become blocks.
    taken: u64,
    outcome: Option<Outcome>,
}

impl<'a> Intake<'a> {
    /// `control`: its schedule applies to what is read.
    pub(super) fn new(transfer: Transfer<'a>, control: Option<&Control>) -> Intake<'a> {
        let mut transfer = match control {
            Some(control) => transfer.control(control),
            None => transfer,
        };
        let backend = Backend::from_env().unwrap_or_default();
        transfer.set_up(backend);
        let mut poll = Poll::new();
        Intake {
            transfer: Some(transfer),
            stepper: Stepper::begin(poll.now()),
            poll,
            next: Next::Step,
            taken: 0,
            outcome: None,
        }
    }

    /// Takes steps until bytes have arrived in the channel, the transfer has to wait
    /// for its source, or has ended.
    pub(super) fn advance(&mut self) {
        let Some(transfer) = &mut self.transfer else {
            return;
        };
        let before = transfer.counts();
        while matches!(self.next, Next::Step | Next::Elsewhere) {
            self.next = self.stepper.step(transfer, false, &mut self.poll);
            if transfer.counts().1 > before.1 {
                break;
            }
        }
        if let Next::End(turn) = self.next.clone() {
            self.settle(&turn);
        }
    }

    fn settle(&mut self, turn: &Turn) {
        if let Some(transfer) = self.transfer.take() {
            let outcome = transfer.settle(turn, &mut self.poll, self.stepper.start);
            self.outcome = Some(outcome);
        }
    }

    /// Ends the transfer early. Bytes that it has read go into the channel as far as
    /// there is room, and back to the source otherwise.
    pub(super) fn stop(&mut self, ended: Ended) {
        self.settle(&Turn::Done(ended));
    }

    /// Returns the wait for the source, if the transfer waits, and its descriptor.
    pub(super) fn wait(&self) -> Option<(Wait, Option<BorrowedFd<'_>>)> {
        let (Next::Wait(wait), Some(transfer)) = (&self.next, &self.transfer) else {
            return None;
        };
        let interest = wait.interest(transfer);
        // An error that persists would end each wait at once.
        let ready = interest.ready.filter(|_| !interest.edge_triggered[0]);
        Some((*wait, ready.map(|(fd, _)| fd)))
    }

    /// Continues after a wait. `shown`: what `poll(2)` has shown for the source, and
    /// whether more than an error.
    pub(super) fn resume(&mut self, shown: Option<bool>) {
        let (Next::Wait(wait), Some(transfer)) = (self.next.clone(), &mut self.transfer) else {
            return;
        };
        let wakeup = Wakeup {
            ready: shown.is_some(),
            open: shown == Some(true),
            ..Wakeup::default()
        };
        self.next = (self.stepper).resume(transfer, wait, wakeup, &mut self.poll);
        if let Next::End(turn) = self.next.clone() {
            self.settle(&turn);
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.outcome.is_some()
    }

    pub(super) fn outcome(&mut self) -> Option<Outcome> {
        self.outcome.take()
    }

    /// Bytes read from the source.
    pub(super) fn read(&self) -> u64 {
        match (&self.transfer, &self.outcome) {
            (Some(transfer), _) => transfer.counts().0,
            (_, Some(outcome)) => outcome.report.read,
            _ => 0,
        }
    }

    fn arrived(&self) -> u64 {
        match (&self.transfer, &self.outcome) {
            (Some(transfer), _) => transfer.counts().1,
            (_, Some(outcome)) => outcome.report.written,
            _ => 0,
        }
    }

    /// Returns the next block: a datagram, or all bytes in the channel.
    ///
    /// # Errors
    ///
    /// The source's: a page cannot be read.
    pub(super) fn block(&mut self, first: &Channel) -> Result<Option<Block>, Errno> {
        if first.keeps_messages() {
            return message(first.reader());
        }
        let length = self.arrived() - self.taken;
        if length == 0 {
            return Ok(None);
        }
        self.taken += length;
        let mut block = Block::Pages(length as usize);
        // Less than a page would use up a slot of each pipe; a write continues in the
        // pipe's last page.
        if (length as usize) < page_size() {
            block.load(first.reader())?;
        }
        Ok(Some(block))
    }
}

/// Receives one datagram, which may be empty.
fn message(first: BorrowedFd<'_>) -> Result<Option<Block>, Errno> {
    let now = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
    let length = match sys::peek(first, now) {
        Err(Errno::EAGAIN) => return Ok(None),
        length => length?,
    };
    let mut bytes = vec![0; length];
    sys::recv(first, &mut bytes, now)?;
    Ok(Some(Block::Bytes(Arc::from(bytes))))
}
