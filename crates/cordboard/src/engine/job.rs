//! One transfer on an engine. It goes from thread to thread as a whole, and
//! never belongs to two.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};

use super::ends::Listed;
use super::poller::Poller;
use super::running::Shared;
use super::timers::Timer;
use crate::errno::Errno;
use crate::guarded::guarded;
use crate::report::Outcome;
use crate::transfer::{
    Clock, Interest, Next, Poll, Settlement, Stepper, Transfer, Turn, Wait, WaitFor, Waiter, Wakeup,
};

/// What a transfer asks of the engine that runs it.
pub(super) trait EngineForJob: Send + Sync {
    /// The time as all its transfers count it.
    fn clock(&self) -> Poll;

    /// The host has closed the engine's descriptors, as of the last millisecond.
    fn is_lost(&self) -> bool;

    /// The same, as of now: before descriptors are closed by number.
    fn is_lost_now(&self) -> bool;

    /// Every transfer is to end.
    fn is_stopping(&self) -> bool;

    /// A transfer has begun.
    fn job_started(&self);

    /// The end of this transfer has been reported.
    fn job_ended(&self, id: u64);

    /// Takes a transfer back from a worker, to wait for it or to go on with it.
    /// Comes back if the engine's thread has given up.
    fn take_back(&self, job: Box<Job>) -> Result<(), Box<Job>>;
}

/// A transfer and all that its engine knows of it.
pub(super) struct Job {
    /// Dropped before the transfer is.
    pub(super) listed: Listed,
    pub(super) transfer: Transfer<'static>,
    pub(super) stepper: Stepper,
    /// What it waits for.
    pub(super) wait: Option<Wait>,
    /// What has come of that so far.
    pub(super) wakeup: Wakeup,
    /// The wait before this step has found what it waited for.
    pub(super) source_polled: bool,
    /// It is in the reactor's queue.
    pub(super) queued: bool,
    /// How it has ended; left to do is the settling.
    pub(super) ending: Option<Turn>,
    pub(super) timer: Timer,
    /// Where it is waited for.
    pub(super) poller: Arc<Poller>,
    pub(super) registered: Registrations,
    /// The wake-up of the caller's own [`Control`](crate::Control): a copy,
    /// since one is registered once only, and several transfers may share it.
    pub(super) wake: Option<OwnedFd>,
    pub(super) ticket: Ticket,
}

impl Job {
    pub(super) fn id(&self) -> u64 {
        self.ticket.shared.id
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.ticket.is_cancelled()
    }

    /// Goes on where the transfer is: after a wait, or with a step.
    pub(super) fn advance(&mut self) -> Next {
        let mut clock = self.ticket.engine.clock();
        let cancelled = self.is_cancelled();
        let wakeup = std::mem::take(&mut self.wakeup);
        let (stepper, transfer) = (&mut self.stepper, &mut self.transfer);
        // A caller's observer may panic; the others' transfers go on.
        let source_polled = &mut self.source_polled;
        let next = guarded(|| match self.wait.take() {
            Some(wait) => {
                *source_polled = wakeup.ready;
                stepper.resume(transfer, wait, wakeup, &mut clock)
            }
            None => {
                let source_polled = std::mem::take(source_polled) || cancelled;
                let look =
                    (!source_polled).then(|| stepper.poll_source_first(transfer, &mut clock));
                (look.flatten()).unwrap_or_else(|| stepper.step(transfer, cancelled, &mut clock))
            }
        });
        self.ticket.shared.live.update(&self.transfer);
        next.unwrap_or(Next::End(Turn::Failed(None, Some(Errno::ECANCELED))))
    }

    /// Has it give up what it can do without, which is closed by number.
    pub(super) fn release_idle(&mut self) {
        if !self.ticket.engine.is_lost() {
            self.transfer.release_idle();
        }
    }

    /// Settles, closes the descriptors, and tells everyone: in this order, so
    /// that whoever has heard of the end can rely on the rest.
    pub(super) fn finish(self: Box<Self>) {
        // The host may have other files under these numbers: an end that was
        // found there does not count, and nothing is closed. All that is asked
        // again behind this is what may have waited since.
        if self.ticket.engine.is_lost_now() || !self.transfer.has_its_descriptors() {
            return self.end_without_close();
        }
        let quick = self.transfer.end_never_blocks();
        self.deregister();
        let job = *self;
        let mut waiter = Closing {
            poll: job.ticket.engine.clock(),
            ticket: &job.ticket,
        };
        let turn = job
            .ending
            .unwrap_or(Turn::Failed(None, Some(Errno::ECANCELED)));
        drop(job.wake);
        let (transfer, start, listed) = (job.transfer, job.stepper.start, job.listed);
        let engine = Arc::clone(&job.ticket.engine);
        // A caller's observer or stage may panic; the thread is the others' too.
        let settled = guarded(|| {
            let (outcome, open) = Settlement::new(transfer, &turn, start).finish(&mut waiter);
            // Not before: the account may take long, for a sync.
            drop(listed);
            match quick || !engine.is_lost_now() {
                true => open.close(quick),
                false => open.drop_without_close(),
            }
            outcome
        });
        match settled {
            Some(outcome) => job.ticket.end(outcome),
            // As the ticket tells it.
            None => drop(job.ticket),
        }
    }

    /// Ends it if the host has closed its descriptors: what has
    /// their numbers by now is not touched.
    pub(super) fn end_without_close(self: Box<Self>) {
        let job = *self;
        drop(job.listed);
        std::mem::forget(job.wake);
        guarded(|| job.transfer.drop_without_close());
        let lost = job.ticket.shared.lost(Errno::EBADF);
        job.ticket.end(lost);
    }

    /// Ends it where it was ready, and blocked all the same, because the host has
    /// a file of its own in a descriptor's place: on Linux 5.10 the end of a
    /// regular file is `EAGAIN` with `RWF_NOWAIT`, for ever.
    pub(super) fn ends_if_descriptors_are_replaced(&mut self, wait: &Wait) -> bool {
        let ends =
            matches!(wait.target, WaitFor::Backoff(_)) && !self.transfer.has_its_descriptors();
        if ends {
            self.ending = Some(Turn::Failed(None, Some(Errno::EBADF)));
        }
        ends
    }

    /// It is waited for here from now on.
    pub(super) fn move_to(&mut self, poller: &Arc<Poller>) {
        if !Arc::ptr_eq(&self.poller, poller) {
            self.deregister();
            self.registered = Registrations::default();
            self.poller = Arc::clone(poller);
        }
    }

    /// Tells of this descriptor, once.
    pub(super) fn register(&mut self, role: Role) -> Result<(), Errno> {
        let Some((fd, flags)) = role.of(&self.transfer, self.wait, self.wake.as_ref()) else {
            return Ok(());
        };
        let epoll = self.poller.epoll();
        let data = role.token(self.id());
        let flags = match role.is_edge_triggered(&self.transfer, self.wait) {
            true => flags | EventFlags::ET,
            false => flags | EventFlags::ONESHOT,
        };
        // Registered anew, it would tell of what it told before.
        if self.registered.tells_changes(role, flags) {
            return Ok(());
        }
        let known = self.registered.has(role);
        let done = if known {
            match epoll::modify(epoll, fd, data, flags) {
                // The path has another one now.
                Err(rustix::io::Errno::NOENT) => epoll::add(epoll, fd, data, flags),
                done => done,
            }
        } else {
            epoll::add(epoll, fd, data, flags)
        };
        done?;
        self.registered.add(role, flags);
        Ok(())
    }

    /// An event of one of its descriptors has come. True if it waits for that:
    /// what was registered for an earlier wait may still be told.
    pub(super) fn handle_event(&mut self, role: Role, flags: EventFlags) -> bool {
        let Some(wait) = self.wait else {
            return false;
        };
        let interest = wait.interest(&self.transfer);
        match (role, interest.ready) {
            (Role::Source, Some((_, false))) if matches!(wait.target, WaitFor::Side(_)) => {
                self.wakeup.ready = true;
                self.wakeup.open |= flags.intersects(EventFlags::IN | EventFlags::HUP);
            }
            (Role::Sink, Some((_, true))) => {
                self.wakeup.ready = true;
                self.wakeup.open |= flags.intersects(EventFlags::OUT | EventFlags::HUP);
            }
            (Role::Sink, _) if interest.watch.is_some() => {
                self.wakeup.error |= flags.contains(EventFlags::ERR);
                self.wakeup.hang_up |= flags.contains(EventFlags::HUP);
            }
            (Role::Completions, _) if wait.target == WaitFor::Completions => {
                self.wakeup.ready = true
            }
            (Role::Wake, _) => self.wakeup.woken = true,
            _ => return false,
        }
        true
    }

    /// A descriptor that is only closed stays watched for as long as somebody
    /// else has a copy of it.
    fn deregister(&self) {
        for role in Role::ALL {
            if self.registered.has(role)
                && let Some((fd, _)) = role.of(&self.transfer, self.wait, self.wake.as_ref())
            {
                let _ = epoll::delete(self.poller.epoll(), fd);
            }
        }
    }
}

/// While an account is closed, it may be cancelled still.
struct Closing<'a> {
    poll: Poll,
    ticket: &'a Ticket,
}

impl Clock for Closing<'_> {
    fn now(&mut self) -> Duration {
        self.poll.now()
    }

    fn is_cancelled(&self) -> bool {
        self.ticket.is_cancelled()
    }
}

impl Waiter for Closing<'_> {
    fn wait(
        &mut self,
        interest: &Interest<'_>,
        timeout: Option<Duration>,
    ) -> Result<Wakeup, Errno> {
        self.poll.wait(interest, timeout)
    }
}

/// What a descriptor is to a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Source,
    Sink,
    Completions,
    Wake,
}

impl Role {
    pub(super) const ALL: [Role; 4] = [Role::Source, Role::Sink, Role::Completions, Role::Wake];

    fn of<'a>(
        self,
        transfer: &'a Transfer<'static>,
        wait: Option<Wait>,
        wake: Option<&'a OwnedFd>,
    ) -> Option<(BorrowedFd<'a>, EventFlags)> {
        let waits = |write| {
            let interest = wait.map(|wait| wait.interest(transfer));
            interest.is_some_and(|i| matches!(i.ready, Some((_, w)) if w == write))
        };
        match self {
            Role::Source => Some((transfer.source().fd(), EventFlags::IN)),
            // Errors and hang-ups are always told, asked for or not.
            Role::Sink if waits(true) => Some((transfer.sink().fd(), EventFlags::OUT)),
            Role::Sink => Some((transfer.sink().fd(), EventFlags::empty())),
            Role::Completions => transfer.completions().map(|fd| (fd, EventFlags::IN)),
            Role::Wake => wake.map(|fd| (fd.as_fd(), EventFlags::IN)),
        }
    }

    /// Its error is known, and stays.
    fn is_edge_triggered(self, transfer: &Transfer<'static>, wait: Option<Wait>) -> bool {
        let Some(interest) = wait.map(|wait| wait.interest(transfer)) else {
            return false;
        };
        let [ready, watch] = interest.edge_triggered;
        match (self, interest.ready) {
            (Role::Source, Some((_, false))) | (Role::Sink, Some((_, true))) => ready,
            (Role::Sink, _) => watch,
            _ => false,
        }
    }

    /// What comes back with an event.
    fn token(self, id: u64) -> EventData {
        EventData::new_u64(id << 2 | self as u64)
    }

    pub(super) fn from_token(token: EventData) -> (u64, Role) {
        let token = token.u64();
        (token >> 2, Role::ALL[(token & 3) as usize])
    }
}

/// The descriptors that are registered, by role, and how.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Registrations([Option<EventFlags>; Role::ALL.len()]);

impl Registrations {
    fn has(self, role: Role) -> bool {
        self.0[role as usize].is_some()
    }

    /// So registered, and for more than one event.
    fn tells_changes(self, role: Role, flags: EventFlags) -> bool {
        flags.contains(EventFlags::ET) && self.0[role as usize] == Some(flags)
    }

    fn add(&mut self, role: Role, flags: EventFlags) {
        self.0[role as usize] = Some(flags);
    }
}

/// The promise that somebody is told of the end, whatever happens.
pub(super) struct Ticket {
    pub(super) shared: Arc<Shared>,
    pub(super) engine: Arc<dyn EngineForJob>,
    told: bool,
}

impl Ticket {
    pub(super) fn new(shared: Arc<Shared>, engine: Arc<dyn EngineForJob>) -> Ticket {
        engine.job_started();
        Ticket {
            shared,
            engine,
            told: false,
        }
    }

    fn is_cancelled(&self) -> bool {
        self.shared.completion.is_cancelled() || self.engine.is_stopping()
    }

    fn end(mut self, outcome: Outcome) {
        self.tell(outcome);
    }

    fn tell(&mut self, outcome: Outcome) {
        self.told = true;
        let report = &outcome.report;
        let live = &self.shared.live;
        live.end(report.read, report.written, report.elapsed);
        self.shared.completion.end(outcome);
        self.engine.job_ended(self.shared.id);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.told {
            // A panic took the transfer along.
            let lost = self.shared.lost(Errno::ECANCELED);
            self.tell(lost);
        }
    }
}
