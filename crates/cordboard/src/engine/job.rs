//! A transfer on an engine. It moves between threads as a whole, and has one owner
//! at a time.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};

use super::inheritable::InheritableEntry;
use super::poller::Poller;
use super::running::Shared;
use super::table::Scheduled;
use super::timers::Timer;
use crate::errno::Errno;
use crate::report::Outcome;
use crate::sys::close;
use crate::threads::guard_callers;
use crate::transfer::{
    Clock, Interest, Next, Poll, Settlement, Stepper, Transfer, Trials, Turn, Wait, WaitFor,
    Waiter, Wakeup,
};

/// The operations of the engine that a job uses.
pub(super) trait EngineForJob: Send + Sync {
    /// Returns the clock that all transfers of the engine share.
    fn clock(&self) -> Poll;

    /// Returns whether the host has closed the engine's descriptors, as of the last
    /// millisecond.
    fn is_lost(&self) -> bool;

    /// Returns whether the host has closed the engine's descriptors, checked now.
    /// Called before descriptors are closed by number.
    fn is_lost_now(&self) -> bool;

    /// Returns whether all transfers are to end.
    fn is_stopping(&self) -> bool;

    /// Counts a transfer that has begun.
    fn job_started(&self);

    /// Uncounts a transfer whose end has been reported.
    fn job_ended(&self, id: u64);

    /// Returns whether a worker may wait for a few milliseconds. If so, `end_wait` follows.
    fn begin_wait(&self) -> bool;

    fn end_wait(&self);

    /// Sends a transfer from a worker to its reactor, to wait or to continue.
    /// Returns it if the reactor's thread has given up.
    fn send_to_reactor(&self, job: Box<Job>) -> Result<(), Box<Job>>;
}

/// A transfer and its state on the engine.
pub(super) struct Job {
    /// Dropped before the transfer is.
    pub(super) inheritable: InheritableEntry,
    pub(super) transfer: Transfer<'static>,
    pub(super) stepper: Stepper,
    /// The current wait.
    pub(super) wait: Option<Wait>,
    /// The events of the current wait so far.
    pub(super) wakeup: Wakeup,
    /// Whether waiting on a worker has paid so far.
    pub(super) worker_waits: Trials,
    /// The wait before this step found the source ready.
    pub(super) source_polled: bool,
    /// Whether the job is in the reactor's queue.
    pub(super) queued: bool,
    /// The last turn, if the transfer has ended and is not yet settled.
    pub(super) ending: Option<Turn>,
    pub(super) timer: Timer,
    /// The poller that waits for it.
    pub(super) poller: Arc<Poller>,
    pub(super) registered: Registrations,
    /// A copy of the wakeup descriptor of the caller's [`Control`](crate::Control):
    /// an epoll instance registers a descriptor once only, and several transfers
    /// may share it.
    pub(super) wake: Option<OwnedFd>,
    pub(super) reporter: EndReporter,
}

impl Scheduled for Job {
    fn id(&self) -> u64 {
        self.reporter.shared.id
    }

    fn queued(&mut self) -> &mut bool {
        &mut self.queued
    }

    fn needs_step(&self) -> bool {
        let is_complete = self.reporter.source_is_complete();
        self.reporter.is_cancelled()
            || is_complete && !self.transfer.source_is_complete
            || self.reporter.source_rests() != self.transfer.source_rests
    }

    fn wake(&mut self) {
        self.wakeup.woken = true;
    }

    fn is_awake(&self) -> bool {
        self.wakeup != Wakeup::default()
    }
}

impl Job {
    /// Makes the job of a transfer that has taken no step. `wake`: a copy of the wakeup
    /// descriptor of its control.
    pub(super) fn new(
        transfer: Transfer<'static>,
        wake: Option<OwnedFd>,
        inheritable: InheritableEntry,
        poller: &Arc<Poller>,
        reporter: EndReporter,
    ) -> Job {
        Job {
            inheritable,
            transfer,
            stepper: Stepper::begin(reporter.engine.clock().now()),
            wait: None,
            wakeup: Wakeup::default(),
            worker_waits: Trials::default(),
            source_polled: false,
            queued: false,
            ending: None,
            timer: Timer::default(),
            poller: Arc::clone(poller),
            registered: Registrations::default(),
            wake,
            reporter,
        }
    }

    /// Continues the transfer: after a wait, or with a step.
    pub(super) fn advance(&mut self) -> Next {
        let mut clock = self.reporter.engine.clock();
        let cancelled = self.reporter.is_cancelled();
        // Before the step: an empty source has ended only if it was complete by then.
        self.transfer.source_is_complete = self.reporter.source_is_complete();
        self.transfer.source_rests = self.reporter.source_rests();
        let at_once = cancelled || self.transfer.source_is_complete;
        let wakeup = std::mem::take(&mut self.wakeup);
        let (stepper, transfer) = (&mut self.stepper, &mut self.transfer);
        // A caller's observer may panic; the other transfers continue.
        let source_polled = &mut self.source_polled;
        let next = guard_callers(|| match self.wait.take() {
            Some(wait) => {
                *source_polled = wait.found_source(wakeup);
                stepper.resume(transfer, wait, wakeup, &mut clock)
            }
            None => {
                let source_polled = std::mem::take(source_polled) || at_once;
                let poll =
                    (!source_polled).then(|| stepper.poll_source_first(transfer, &mut clock));
                (poll.flatten()).unwrap_or_else(|| stepper.step(transfer, cancelled, &mut clock))
            }
        });
        self.inheritable
            .set_seconds(self.transfer.second_descriptions());
        self.reporter.shared.live.update(&self.transfer);
        let next = next.unwrap_or(Next::End(Turn::Failed(None, Some(Errno::ECANCELED))));
        self.reporter.shared.live.note_next(&next);
        next
    }

    /// Releases resources that the transfer does not need while it waits. Closes
    /// descriptors by number.
    pub(super) fn release_idle(&mut self) {
        if !self.reporter.engine.is_lost() {
            // Before they are closed: their numbers may be reused from then on.
            self.inheritable.set_seconds([None; 2]);
            self.transfer.release_idle();
            self.inheritable
                .set_seconds(self.transfer.second_descriptions());
        }
    }

    /// Settles, closes the descriptors, and reports the end: in this order, so that
    /// the descriptors are closed once the end is known.
    pub(super) fn finish(self: Box<Self>) {
        // The host may have other files under these numbers: then the result does
        // not count, and nothing is closed. From here on, only an operation that
        // may have blocked is followed by another check.
        if self.reporter.engine.is_lost_now() || !self.transfer.has_its_descriptors() {
            return self.end_without_close();
        }
        let quick = self.transfer.end_never_blocks();
        self.deregister();
        let job = *self;
        let mut waiter = Closing {
            poll: job.reporter.engine.clock(),
            reporter: &job.reporter,
        };
        let turn = job
            .ending
            .unwrap_or(Turn::Failed(None, Some(Errno::ECANCELED)));
        job.wake.into_iter().for_each(close);
        let (transfer, start, inheritable) = (job.transfer, job.stepper.start, job.inheritable);
        let engine = Arc::clone(&job.reporter.engine);
        // A caller's observer or stage may panic; the thread also serves other
        // transfers.
        let settled = guard_callers(|| {
            let (mut outcome, open) = Settlement::new(transfer, &turn, start).finish(&mut waiter);
            // Dropped only now: settling may take long (`fsync(2)`), and a process
            // that forks meanwhile must find the entry.
            drop(inheritable);
            match quick || !engine.is_lost_now() {
                true => outcome.report.closed(open.close(quick)),
                false => open.drop_without_close(),
            }
            outcome
        });
        match settled {
            Some(outcome) => job.reporter.end(outcome),
            // Dropping the reporter reports the end.
            None => drop(job.reporter),
        }
    }

    /// Ends the transfer after the host has closed its descriptors, without
    /// touching the files that have their numbers by now.
    pub(super) fn end_without_close(self: Box<Self>) {
        let job = *self;
        drop(job.inheritable);
        std::mem::forget(job.wake);
        job.transfer.drop_without_close();
        let lost = job.reporter.shared.lost(Errno::EBADF);
        job.reporter.end(lost);
    }

    /// Ends a transfer that waits after too many false reports of readiness, if the
    /// host has replaced one of its descriptors. On Linux 5.10 a read at the end of
    /// a regular file with `RWF_NOWAIT` returns `EAGAIN` each time.
    pub(super) fn ends_if_descriptors_are_replaced(&mut self, wait: &Wait) -> bool {
        let ends =
            matches!(wait.target, WaitFor::Backoff(_)) && !self.transfer.has_its_descriptors();
        if ends {
            self.ending = Some(Turn::Failed(None, Some(Errno::EBADF)));
        }
        ends
    }

    /// Returns whether the kernel reports completions of it to one thread only.
    pub(super) fn has_completions(&self) -> bool {
        self.transfer.has_completions()
    }

    /// Makes this poller, and its reactor, wait for the job from now on.
    pub(super) fn move_to(&mut self, poller: &Arc<Poller>) {
        if !Arc::ptr_eq(&self.poller, poller) {
            self.deregister();
            self.registered = Registrations::default();
            self.poller = Arc::clone(poller);
            self.reporter.shared.home.set(poller.reactor);
        }
    }

    /// Registers this descriptor for one event.
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
        // A new registration would report the known state again.
        if self.registered.reports_changes(role, flags) {
            return Ok(());
        }
        let known = self.registered.has(role);
        let done = if known {
            match epoll::modify(epoll, fd, data, flags) {
                // The path has another descriptor now.
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

    /// Records an event of one of its descriptors. Returns whether the job waits
    /// for it: an earlier registration may still report.
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

    /// Removes all registrations. A descriptor that is only closed stays registered
    /// as long as another copy of it is open.
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

/// The waiter of a settlement, which may still be cancelled.
struct Closing<'a> {
    poll: Poll,
    reporter: &'a EndReporter,
}

impl Clock for Closing<'_> {
    fn now(&mut self) -> Duration {
        self.poll.now()
    }

    fn is_cancelled(&self) -> bool {
        self.reporter.is_cancelled()
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

/// The use of a descriptor by a transfer.
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
            // Errors and hang-ups are always reported.
            Role::Sink if waits(true) => Some((transfer.sink().fd(), EventFlags::OUT)),
            Role::Sink => Some((transfer.sink().fd(), EventFlags::empty())),
            Role::Completions => transfer.completions().map(|fd| (fd, EventFlags::IN)),
            Role::Wake => wake.map(|fd| (fd.as_fd(), EventFlags::IN)),
        }
    }

    /// Returns whether an error of the descriptor is known and persists, so that
    /// only changes are to be reported.
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

    /// Returns the user data of the registration.
    fn token(self, id: u64) -> EventData {
        EventData::new_u64(id << 2 | self as u64)
    }

    pub(super) fn from_token(token: EventData) -> (u64, Role) {
        let token = token.u64();
        (token >> 2, Role::ALL[(token & 3) as usize])
    }
}

/// The registered descriptors by role, with their flags.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Registrations([Option<EventFlags>; Role::ALL.len()]);

impl Registrations {
    fn has(self, role: Role) -> bool {
        self.0[role as usize].is_some()
    }

    /// Returns whether it is registered with these flags, edge-triggered.
    fn reports_changes(self, role: Role, flags: EventFlags) -> bool {
        flags.contains(EventFlags::ET) && self.0[role as usize] == Some(flags)
    }

    fn add(&mut self, role: Role, flags: EventFlags) {
        self.0[role as usize] = Some(flags);
    }
}

/// Reports the end of a transfer exactly once, also after a panic.
pub(super) struct EndReporter {
    pub(super) shared: Arc<Shared>,
    pub(super) engine: Arc<dyn EngineForJob>,
    reported: bool,
}

impl EndReporter {
    pub(super) fn new(shared: Arc<Shared>, engine: Arc<dyn EngineForJob>) -> EndReporter {
        engine.job_started();
        EndReporter {
            shared,
            engine,
            reported: false,
        }
    }

    fn is_cancelled(&self) -> bool {
        self.shared.completion.is_cancelled() || self.engine.is_stopping()
    }

    fn source_is_complete(&self) -> bool {
        self.shared.source_is_complete()
    }

    fn source_rests(&self) -> bool {
        self.shared.source_rests()
    }

    fn end(mut self, outcome: Outcome) {
        self.report_end(outcome);
    }

    fn report_end(&mut self, mut outcome: Outcome) {
        self.reported = true;
        self.shared.live.end(&mut outcome.report);
        self.shared.completion.end(outcome);
        self.engine.job_ended(self.shared.id);
    }
}

impl Drop for EndReporter {
    fn drop(&mut self) {
        if !self.reported {
            // A panic has dropped the transfer.
            let lost = self.shared.lost(Errno::ECANCELED);
            self.report_end(lost);
        }
    }
}
