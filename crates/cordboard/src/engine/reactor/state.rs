//! What a thread that waits for transfers knows of them, and no other thread sees.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::endpoint::Side;
use crate::engine::inbox::Inbox;
use crate::engine::job::{Job, Role};
use crate::engine::message::Message;
use crate::engine::poller::Poller;
use crate::engine::seat::Seat;
use crate::engine::slab::Slab;
use crate::engine::timers::Timers;
use crate::engine::workers::at_once;
use crate::errno::Errno;
use crate::transfer::{Awake, Clock, Need, What};

/// The transfers of one thread: asleep, or in the queue.
pub(in crate::engine) struct Reactor {
    pub(super) poller: Arc<Poller>,
    pub(super) inbox: Arc<Inbox<Message>>,
    seat: Arc<Seat<Box<Reactor>>>,
    pub(super) jobs: Slab<Box<Job>>,
    pub(super) queue: VecDeque<u64>,
    pub(super) timers: Timers,
    pub(super) messages: Vec<Message>,
}

impl Reactor {
    pub(super) fn new(
        poller: &Arc<Poller>,
        inbox: &Arc<Inbox<Message>>,
        seat: &Arc<Seat<Box<Reactor>>>,
    ) -> Reactor {
        Reactor {
            poller: Arc::clone(poller),
            inbox: Arc::clone(inbox),
            seat: Arc::clone(seat),
            jobs: Slab::default(),
            queue: VecDeque::new(),
            timers: Timers::default(),
            messages: Vec::new(),
        }
    }

    pub(super) fn admit(&mut self, mut job: Box<Job>) {
        job.transfer.runs_on = self.poller.home;
        job.settle_at(&self.poller);
        // It may have rung without effect, while a step was blocked.
        self.timers.forget(job.id(), &mut job.alarm);
        match job.need {
            Some(need) => self.park(job, need),
            None => self.enqueue(job),
        }
    }

    pub(super) fn enqueue(&mut self, mut job: Box<Job>) {
        job.queued = true;
        self.queue.push_back(job.id());
        self.jobs.put(job.id(), job);
    }

    /// Not to sleep on, for a reason that the transfer finds out.
    pub(super) fn wake(&mut self, id: u64) {
        if let Some(job) = self.jobs.get_mut(id) {
            job.awake.woken = true;
            self.rouse(id);
        }
    }

    /// Into the queue, if it is not there.
    pub(super) fn rouse(&mut self, id: u64) {
        if let Some(job) = self.jobs.get_mut(id)
            && !job.queued
        {
            job.queued = true;
            self.queue.push_back(id);
        }
    }

    /// Puts one to sleep that comes from elsewhere, and has nothing that it can
    /// do without.
    pub(super) fn park(&mut self, mut job: Box<Job>, need: Need) {
        match at_once(&mut job, &need) {
            Some(awake) => {
                job.awake = awake;
                self.enqueue(job);
            }
            None => self.sleep(job, need),
        }
    }

    pub(super) fn sleep(&mut self, mut job: Box<Job>, need: Need) {
        if job.ends_for_want_of_its_own(&need) {
            return self.enqueue(job);
        }
        self.set_alarm(&mut job, &need);
        self.watch(&mut job, &need);
        // It may have been cancelled on its way here, when nobody saw it.
        if job.is_cancelled() {
            job.awake.woken = true;
        }
        if job.awake == Awake::default() {
            self.jobs.put(job.id(), job);
        } else {
            self.enqueue(job);
        }
    }

    pub(super) fn set_alarm(&mut self, job: &mut Job, need: &Need) {
        let now = job.ticket.crew.clock().now();
        let until = need.timeout.map(|timeout| now.saturating_add(timeout));
        self.timers.arm(job.id(), &mut job.alarm, until);
    }

    pub(super) fn ring_alarms(&mut self, now: Duration) {
        if self.timers.next().is_none() {
            return;
        }
        while let Some((entry, id)) = self.timers.pop(now) {
            if let Some(job) = self.jobs.get_mut(id)
                && self.timers.is_due(id, &mut job.alarm, entry)
            {
                self.rouse(id);
            }
        }
    }

    pub(super) fn watch(&mut self, job: &mut Job, need: &Need) {
        let interest = need.interest(&job.transfer);
        let (ready, watch) = (interest.ready.is_some(), interest.watch.is_some());
        let main = match need.what {
            What::Side(Side::Source) => Role::Source,
            What::Side(Side::Sink) => Role::Sink,
            What::Completions => Role::Completions,
            What::Rest(_) | What::Resume => Role::Wake,
        };
        if ready {
            match job.watch(main) {
                Ok(()) => {}
                // A file or a device without poll: always ready, as poll(2)
                // has it.
                Err(Errno::EPERM) => (job.awake.ready, job.awake.open) = (true, true),
                Err(_) => self.unwatched(job),
            }
        }
        if watch && job.watch(Role::Sink).is_err() {
            self.unwatched(job);
        }
        // One that is ending need not be told so again.
        let wakes = job.wake.is_some() && job.ending.is_none();
        if wakes && job.watch(Role::Wake).is_err() {
            self.unwatched(job);
        }
    }

    /// ENOSPC, the user's share of watches (`/proc/sys/fs/epoll`), or ENOMEM:
    /// it is looked at every so often instead.
    pub(super) fn unwatched(&mut self, job: &mut Job) {
        const EVERY: Duration = Duration::from_millis(5);
        let soon = job.ticket.crew.clock().now() + EVERY;
        let at = job.alarm.at.map_or(soon, |at| at.min(soon));
        self.timers.arm(job.id(), &mut job.alarm, Some(at));
    }
}

impl Drop for Reactor {
    /// What comes too late is given back to its sender.
    fn drop(&mut self) {
        drop(self.inbox.close());
        self.seat.close();
    }
}
