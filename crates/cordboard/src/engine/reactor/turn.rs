//! The turn of one transfer: a step, and where the transfer goes then.

use std::sync::Arc;

use super::event_loop::EventLoop;
use super::state::Reactor;
use crate::engine::core::{Core, DISK};
use crate::engine::handle::ReactorHandle;
use crate::engine::job::{EngineForJob as _, Job};
use crate::engine::message::Message;
use crate::engine::table::Scheduled as _;
use crate::engine::workers::{Task, poll_before_sleep};
use crate::threads;
use crate::transfer::{Next, ThreadKind, Wait};

impl EventLoop {
    /// Resumes one transfer, or takes a step. `None`: another thread has taken over.
    pub(super) fn turn_of(
        &self,
        mut reactor: Box<Reactor>,
        mut job: Box<Job>,
    ) -> Option<Box<Reactor>> {
        let (core, id) = (&self.core, job.id());
        reactor.timers.arm(id, &mut job.timer, None);
        if job.ending.is_some() {
            return self.end(reactor, job);
        }
        loop {
            let steps = job.wait.is_none();
            let thread_kind = job.transfer.thread_kind();
            // The kernel reports completions to one thread only.
            let movable = !job.has_completions();
            if steps && movable {
                if matches!(thread_kind, ThreadKind::Worker | ThreadKind::Anywhere) {
                    reactor.timers.forget(id, &mut job.timer);
                    // The disk reactor may wait for a disk.
                    job.move_to(core.main().poller());
                    // If no worker is available, the step runs here.
                    let done = self.with_takeover(reactor, false, || core.submit(Task::Piece(job)));
                    return done.ok().map(|(reactor, ())| reactor);
                }
                match self.move_to_thread(&mut reactor, job, thread_kind) {
                    Some(here) => job = here,
                    None => return Some(reactor),
                }
            }
            let stays = thread_kind == ThreadKind::Disk;
            let next = match self.with_takeover(reactor, stays, || job.advance()) {
                Ok((back, next)) => {
                    reactor = back;
                    next
                }
                Err(next) => {
                    core.return_late(job, next);
                    return None;
                }
            };
            match next {
                Next::Step if steps => reactor.enqueue(job),
                Next::Step | Next::Elsewhere => continue,
                Next::Wait(wait) => return self.put_to_sleep(reactor, job, wait),
                Next::End(turn) => {
                    job.ending = Some(turn);
                    return self.end(reactor, job);
                }
            }
            return Some(reactor);
        }
    }

    /// Sends a transfer to the reactor that takes its steps. Returns the transfer
    /// if that is this reactor, or if no other is available.
    fn move_to_thread(
        &self,
        reactor: &mut Reactor,
        mut job: Box<Job>,
        thread_kind: ThreadKind,
    ) -> Option<Box<Job>> {
        let other = match thread_kind {
            _ if thread_kind == self.thread_kind() => None,
            ThreadKind::Disk => open_disk_reactor(&self.core),
            _ => Some(Arc::clone(self.core.main())),
        };
        let Some(handle) = other else {
            job.transfer.runs_on = thread_kind;
            return Some(job);
        };
        reactor.timers.forget(job.id(), &mut job.timer);
        job.move_to(handle.poller());
        let Err(Message::Run(mut job)) = handle.inbox().push(Message::Run(job)) else {
            return None;
        };
        let ends = self.core.is_lost() || self.core.is_stopping();
        if ends || thread_kind != ThreadKind::Disk {
            job.finish();
            return None;
        }
        // The thread for direct copies has given up, and the engine continues.
        self.core.retire_disk_reactor(&handle);
        job.move_to(self.handle.poller());
        job.transfer.runs_on = thread_kind;
        Some(job)
    }

    /// Puts a transfer to sleep after a step. Releasing its idle resources may
    /// close a descriptor of a caller's pipe, which waits for the pipe's lock.
    fn put_to_sleep(
        &self,
        mut reactor: Box<Reactor>,
        mut job: Box<Job>,
        wait: Wait,
    ) -> Option<Box<Reactor>> {
        job.wait = Some(wait);
        if let Some(wakeup) = poll_before_sleep(&mut job, &wait) {
            job.wakeup = wakeup;
            reactor.enqueue(job);
            return Some(reactor);
        }
        let stays = job.transfer.thread_kind() == ThreadKind::Disk;
        match self.with_takeover(reactor, stays, || job.release_idle()) {
            Ok((mut reactor, ())) => {
                reactor.sleep(job, wait);
                Some(reactor)
            }
            Err(()) => {
                self.core.return_late(job, Next::Wait(wait));
                None
            }
        }
    }

    /// Settles a transfer, on this thread if that cannot take long.
    fn end(&self, mut reactor: Box<Reactor>, mut job: Box<Job>) -> Option<Box<Reactor>> {
        reactor.timers.forget(job.id(), &mut job.timer);
        // Only this thread may reap operations in flight.
        if job.has_completions() && job.transfer.reap_completions() {
            let wait = Wait::completions(&job.transfer);
            job.wait = Some(wait);
            reactor.arm_timer(&mut job, &wait);
            reactor.register(&mut job, &wait);
            reactor.put(job);
            return Some(reactor);
        }
        let settled = self.with_takeover(reactor, false, || self.core.settle(job));
        settled.ok().map(|(reactor, ())| reactor)
    }
}

/// Returns the reactor for direct copies, and starts it if necessary; `None` if no
/// descriptors or no thread are available.
pub(super) fn open_disk_reactor(core: &Arc<Core>) -> Option<Arc<ReactorHandle>> {
    let mut disk = core.disk();
    if disk.handle.is_none() {
        let handle = ReactorHandle::new(DISK, ThreadKind::Disk).ok()?;
        let event_loop = EventLoop::new(core, &handle);
        let reactor = event_loop.begin().ok()?;
        let body = move || event_loop.run(reactor);
        let thread = threads::start(c"cordboard-disk", core.number, body).ok()?;
        (disk.handle, disk.thread) = (Some(handle), Some(thread));
    }
    disk.handle.clone()
}
