//! The loop: messages, timers, one step of each queued transfer, a sleep.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

use super::event_loop::EventLoop;
use super::state::Reactor;
use crate::engine::core::{BLOCKED_AFTER, Core};
use crate::engine::handle::ReactorHandle;
use crate::engine::job::{EngineForJob, Job};
use crate::engine::message::Message;
use crate::engine::takeover::TakenOver;
use crate::engine::workers::{Task, poll_before_sleep};
use crate::errno::Errno;
use crate::sys;
use crate::threads;
use crate::transfer::{Clock, Next, ThreadKind, Wait};

/// The number of events that are fetched at a time.
const EVENTS: usize = 256;
/// The capacity for messages, and for the queue, that an idle reactor keeps.
const KEPT: usize = 256;

impl EventLoop {
    /// Runs until the engine has shut down, or another thread has taken over.
    pub(in crate::engine) fn run(&self, mut reactor: Box<Reactor>) {
        let core = &self.core;
        if self.thread_kind() == ThreadKind::Reactor {
            start_watchdog(core);
        }
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];

        while !core.is_done() {
            let nothing_new = self.read_messages(&mut reactor);
            if self.thread_kind() == ThreadKind::Disk {
                sys::keep_an_arena(!reactor.jobs.is_empty());
            }
            reactor.expire_timers(core.clock().now());
            // Only those that are queued now; what they queue waits.
            for _ in 0..reactor.queue.len() {
                if let Some(id) = reactor.queue.pop_front() {
                    match self.turn(reactor, id) {
                        Some(back) => reactor = back,
                        None => return,
                    }
                }
            }
            // Checked again before a sleep: that is no system call.
            let nothing_new =
                nothing_new || reactor.queue.is_empty() && self.read_messages(&mut reactor);
            let timeout = match !nothing_new || !reactor.queue.is_empty() {
                true => Some(Duration::ZERO),
                false => self.longest_sleep(&reactor),
            };
            match self.pause(reactor, timeout, &mut events) {
                Some((back, Ok(()))) => reactor = back,
                Some((back, Err(errno))) => return self.fail_all(*back, errno),
                None => return,
            }
        }
    }

    /// Handles all messages. Returns true if there were none.
    fn read_messages(&self, reactor: &mut Reactor) -> bool {
        let mut messages = std::mem::take(&mut reactor.messages);
        reactor.inbox.take(&mut messages);
        let none = messages.is_empty();
        for message in messages.drain(..) {
            match message {
                Message::Run(job) => reactor.admit(job),
                Message::Recheck(id) => self.recheck(reactor, id),
                Message::Stop => {
                    let all = reactor.jobs.numbers();
                    all.into_iter().for_each(|id| reactor.wake(id));
                }
            }
        }
        // A burst of messages leaves no memory behind.
        messages.shrink_to(KEPT);
        reactor.messages = messages;
        if reactor.queue.is_empty() {
            reactor.queue.shrink_to(KEPT);
        }
        reactor.jobs.shrink();
        none
    }

    fn recheck(&self, reactor: &mut Reactor, id: u64) {
        if reactor.jobs.get_mut(id).is_some() {
            reactor.wake(id);
        } else if self.thread_kind() == ThreadKind::Reactor
            && let Some(disk) = self.core.disk_reactor()
        {
            let _ = disk.inbox().push(Message::Recheck(id));
        }
    }

    /// Handles the wakeup of one transfer and takes one step. `None`: another
    /// thread has taken over.
    fn turn(&self, mut reactor: Box<Reactor>, id: u64) -> Option<Box<Reactor>> {
        let core = &self.core;
        let Some(mut job) = reactor.jobs.take(id) else {
            return Some(reactor);
        };
        job.queued = false;
        reactor.timers.arm(id, &mut job.timer, None);
        if job.ending.is_some() {
            return self.end(reactor, job);
        }
        loop {
            let steps = job.wait.is_none();
            let thread_kind = job.transfer.thread_kind();
            // The kernel reports completions to one thread only.
            let movable = job.transfer.completions().is_none();
            if steps && movable {
                if matches!(thread_kind, ThreadKind::Worker | ThreadKind::Anywhere) {
                    reactor.timers.forget(id, &mut job.timer);
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

    /// Sends a transfer to the reactor that takes its steps. Returns it if that is
    /// this one, or no other is available.
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
        if let Err(Message::Run(job)) = handle.inbox().push(Message::Run(job)) {
            job.finish();
        }
        None
    }

    /// Puts a transfer to sleep after a step. Releasing what it does not need may
    /// close an end of a caller's pipe, which waits for the pipe's lock.
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
        // Only this thread may reap what is in flight.
        if job.transfer.completions().is_some() && job.transfer.reap_completions() {
            let wait = Wait::completions(&job.transfer);
            job.wait = Some(wait);
            reactor.arm_timer(&mut job, &wait);
            reactor.register(&mut job, &wait);
            reactor.jobs.put(job.id(), job);
            return Some(reactor);
        }
        let settled = self.with_takeover(reactor, false, || self.core.settle(job));
        settled.ok().map(|(reactor, ())| reactor)
    }
}

/// Starts the watchdog, which takes over when the main thread is blocked in a step,
/// or sleeps and can no longer be woken. Without a free thread there is no
/// watchdog.
fn start_watchdog(core: &Arc<Core>) {
    let body = {
        let core = Arc::clone(core);
        move || {
            let main = core.main();
            let is_blocked = || core.thread().is_some_and(|thread| thread.waits());
            let cannot_wake = || !main.inbox().eventfd().is_still_open();
            let event_loop = EventLoop::new(&core, main);
            match main
                .takeover()
                .watch(BLOCKED_AFTER, is_blocked, cannot_wake)
            {
                Some(TakenOver::Blocked(reactor)) => {
                    threads::rename(c"cordboard");
                    core.set_thread();
                    event_loop.run(reactor);
                }
                Some(TakenOver::Unwakeable(reactor)) => event_loop.fail_all(*reactor, Errno::EBADF),
                None => {}
            }
        }
    };
    if let Ok(thread) = threads::start(c"cordboard-watch", core.number, body) {
        let mut watchdogs = core.watchdogs();
        watchdogs.retain(|thread| !thread.is_finished());
        watchdogs.push(thread);
    }
}

/// Returns the reactor for direct copies, and starts it if necessary; `None` if no
/// descriptors or no thread are available.
fn open_disk_reactor(core: &Arc<Core>) -> Option<Arc<ReactorHandle>> {
    let mut disk = core.disk();
    if disk.is_none() {
        let handle = ReactorHandle::new(ThreadKind::Disk).ok()?;
        let event_loop = EventLoop::new(core, &handle);
        let reactor = event_loop.begin().ok()?;
        let body = move || event_loop.run(reactor);
        let thread = threads::start(c"cordboard-disk", core.number, body).ok()?;
        *disk = Some((handle, thread));
    }
    disk.as_ref().map(|(handle, _)| Arc::clone(handle))
}
