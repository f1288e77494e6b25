//! The state of a reactor thread. One thread at a time owns it.

use std::sync::Arc;
use std::time::Duration;

use crate::endpoint::Side;
use crate::engine::inbox::Inbox;
use crate::engine::job::{Job, Role};
use crate::engine::message::Message;
use crate::engine::poller::Poller;
use crate::engine::table::{Scheduled as _, Table};
use crate::engine::takeover::Takeover;
use crate::engine::timers::Timers;
use crate::engine::workers::poll_before_sleep;
use crate::errno::Errno;
use crate::transfer::{Clock, Wait, WaitFor};

/// The transfers of one thread: sleeping, or in the queue.
pub(in crate::engine) struct Reactor {
    pub(super) poller: Arc<Poller>,
    pub(super) inbox: Arc<Inbox<Message>>,
    takeover: Arc<Takeover<Box<Reactor>>>,
    pub(super) jobs: Table<Job>,
    /// The number of these transfers that have completions, which the kernel reports to
    /// this thread only.
    bound: usize,
    pub(super) timers: Timers,
    /// When to try again to start the watchdog. `None`: it has been started, or the
    /// thread has none.
    pub(super) next_watchdog: Option<Duration>,
}

impl Reactor {
    pub(super) fn new(
        poller: &Arc<Poller>,
        inbox: &Arc<Inbox<Message>>,
        takeover: &Arc<Takeover<Box<Reactor>>>,
    ) -> Reactor {
        Reactor {
            poller: Arc::clone(poller),
            inbox: Arc::clone(inbox),
            takeover: Arc::clone(takeover),
            jobs: Table::default(),
            bound: 0,
            timers: Timers::default(),
            next_watchdog: None,
        }
    }

    pub(super) fn admit(&mut self, mut job: Box<Job>) {
        job.transfer.runs_on = self.poller.thread_kind;
        job.move_to(&self.poller);
        // The timer may have expired unnoticed while a step was blocked.
        self.timers.forget(job.id(), &mut job.timer);
        match job.wait {
            Some(wait) => self.park(job, wait),
            None => self.enqueue(job),
        }
    }

    /// Returns whether another thread must not take over.
    pub(super) fn is_bound(&self) -> bool {
        self.bound > 0
    }

    /// Inserts a transfer at the end of the queue.
    pub(super) fn enqueue(&mut self, job: Box<Job>) {
        self.bound += usize::from(job.has_completions());
        self.jobs.enqueue(job);
    }

    /// Removes the first transfer of the queue.
    pub(super) fn dequeue(&mut self) -> Option<Box<Job>> {
        let job = self.jobs.dequeue()?;
        // Only a step changes that.
        self.bound -= usize::from(job.has_completions());
        Some(job)
    }

    /// Inserts a transfer that sleeps even if it was cancelled.
    pub(super) fn put(&mut self, job: Box<Job>) {
        self.bound += usize::from(job.has_completions());
        self.jobs.put(job);
    }

    /// Puts a transfer from another thread to sleep, unless it is ready.
    pub(super) fn park(&mut self, mut job: Box<Job>, wait: Wait) {
        match poll_before_sleep(&mut job, &wait) {
            Some(wakeup) => {
                job.wakeup = wakeup;
                self.enqueue(job);
            }
            None => self.sleep(job, wait),
        }
    }

    pub(super) fn sleep(&mut self, mut job: Box<Job>, wait: Wait) {
        if job.ends_if_descriptors_are_replaced(&wait) {
            return self.enqueue(job);
        }
        self.arm_timer(&mut job, &wait);
        self.register(&mut job, &wait);
        self.bound += usize::from(job.has_completions());
        self.jobs.sleep(job);
    }

    pub(super) fn arm_timer(&mut self, job: &mut Job, wait: &Wait) {
        let now = job.reporter.engine.clock().now();
        let until = wait.timeout.map(|timeout| now.saturating_add(timeout));
        self.timers.arm(job.id(), &mut job.timer, until);
    }

    pub(super) fn expire_timers(&mut self, now: Duration) {
        if self.timers.next().is_none() {
            return;
        }
        while let Some((entry, id)) = self.timers.pop(now) {
            if let Some(job) = self.jobs.get_mut(id)
                && self.timers.is_due(id, &mut job.timer, entry)
            {
                self.jobs.schedule(id);
            }
        }
    }

    pub(super) fn register(&mut self, job: &mut Job, wait: &Wait) {
        let interest = wait.interest(&job.transfer);
        let (ready, watch) = (interest.ready.is_some(), interest.watch.is_some());
        // A transfer that is ending ignores the wakeup. One that cannot clear it has
        // none any more, but still has its copy.
        let wakes = interest.wake.is_some() && job.ending.is_none();
        let main = match wait.target {
            WaitFor::Side(Side::Source) => Role::Source,
            WaitFor::Side(Side::Sink) => Role::Sink,
            WaitFor::Completions => Role::Completions,
            WaitFor::Backoff(_) | WaitFor::Resume | WaitFor::Grant => Role::Wake,
        };
        if ready {
            let done = match interest.polled() {
                Some(_) => job.register(main),
                None => Err(Errno::EPERM),
            };
            let is_ready = done == Err(Errno::EPERM) && wait.interest(&job.transfer).is_ready_now();
            match done {
                Ok(()) => {}
                // A file or a device without poll: always ready, as for poll(2).
                Err(Errno::EPERM) if is_ready => {
                    (job.wakeup.ready, job.wakeup.open) = (true, true);
                }
                Err(_) => self.poll_by_timer(job),
            }
        }
        if watch && job.register(Role::Sink).is_err() {
            self.poll_by_timer(job);
        }
        if wakes && job.register(Role::Wake).is_err() {
            self.poll_by_timer(job);
        }
    }

    /// Polls at intervals, because epoll refuses the registration: `ENOSPC`, the
    /// user's limit of watches (`/proc/sys/fs/epoll`), or `ENOMEM`.
    pub(super) fn poll_by_timer(&mut self, job: &mut Job) {
        const EVERY: Duration = Duration::from_millis(5);
        let soon = job.reporter.engine.clock().now() + EVERY;
        let at = job.timer.at.map_or(soon, |at| at.min(soon));
        self.timers.arm(job.id(), &mut job.timer, Some(at));
    }
}

impl Drop for Reactor {
    /// Messages that arrive later are returned to their senders.
    fn drop(&mut self) {
        drop(self.inbox.close());
        self.takeover.close();
    }
}
