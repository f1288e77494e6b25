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
use crate::engine::workers::{Task, ready_already};
use crate::errno::Errno;
use crate::sys;
use crate::threads;
use crate::transfer::{Clock, Next, ThreadKind, Wait};

/// Events that are fetched at a time.
const EVENTS: usize = 256;
/// Messages that a reactor keeps room for while there are none.
const MESSAGES: usize = 256;

impl EventLoop {
    /// Until the engine has shut down, or another thread has taken over.
    pub(in crate::engine) fn run(&self, reactor: Box<Reactor>) {
        let core = &self.core;
        if self.thread_kind() == ThreadKind::Reactor {
            start_watchdog(core);
        }
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];
        let mut this = reactor;
        while !core.is_done() {
            let nothing_new = self.read_messages(&mut this);
            if self.thread_kind() == ThreadKind::Disk {
                sys::keep_an_arena(!this.jobs.is_empty());
            }
            this.expire_timers(core.clock().now());
            // Those that are in the queue now; what they put there waits.
            for _ in 0..this.queue.len() {
                if let Some(id) = this.queue.pop_front() {
                    match self.turn(this, id) {
                        Some(back) => this = back,
                        None => return,
                    }
                }
            }
            // Asked again rather than waited for in vain: that is no call.
            let nothing_new = nothing_new || this.queue.is_empty() && self.read_messages(&mut this);
            let timeout = match !nothing_new || !this.queue.is_empty() {
                true => Some(Duration::ZERO),
                false => self.longest_sleep(&this),
            };
            match self.pause(this, timeout, &mut events) {
                Some((back, Ok(()))) => this = back,
                Some((back, Err(errno))) => return self.give_up(*back, errno),
                None => return,
            }
        }
    }

    /// True if there were none.
    fn read_messages(&self, this: &mut Reactor) -> bool {
        let mut messages = std::mem::take(&mut this.messages);
        this.inbox.take(&mut messages);
        let none = messages.is_empty();
        for message in messages.drain(..) {
            match message {
                Message::Run(job) => this.admit(job),
                Message::Recheck(id) => self.recheck(this, id),
                Message::Stop => {
                    let all = this.jobs.numbers();
                    all.into_iter().for_each(|id| this.wake(id));
                }
            }
        }
        // Many that have come at once leave no memory behind.
        messages.shrink_to(MESSAGES);
        this.messages = messages;
        this.jobs.shrink();
        none
    }

    fn recheck(&self, this: &mut Reactor, id: u64) {
        if this.jobs.get_mut(id).is_some() {
            this.wake(id);
        } else if self.thread_kind() == ThreadKind::Reactor
            && let Some(disk) = self.core.disk_reactor()
        {
            let _ = disk.inbox().push(Message::Recheck(id));
        }
    }

    /// One transfer's turn: what its wait has come to, and one step. `None`:
    /// another thread is in charge.
    fn turn(&self, mut this: Box<Reactor>, id: u64) -> Option<Box<Reactor>> {
        let core = &self.core;
        let Some(mut job) = this.jobs.take(id) else {
            return Some(this);
        };
        job.queued = false;
        this.timers.arm(id, &mut job.timer, None);
        if job.ending.is_some() {
            return self.end(this, job);
        }
        loop {
            let steps = job.wait.is_none();
            let thread_kind = job.transfer.thread_kind();
            // What the kernel does for a transfer is told to one thread only.
            let movable = job.transfer.completions().is_none();
            if steps && movable {
                if matches!(thread_kind, ThreadKind::Worker | ThreadKind::Anywhere) {
                    this.timers.forget(id, &mut job.timer);
                    // If no worker is available, it is done here.
                    let done = self.with_takeover(this, false, || core.submit(Task::Piece(job)));
                    return done.ok().map(|(this, ())| this);
                }
                match self.move_to_thread(&mut this, job, thread_kind) {
                    Some(here) => job = here,
                    None => return Some(this),
                }
            }
            let stays = thread_kind == ThreadKind::Disk;
            let next = match self.with_takeover(this, stays, || job.advance()) {
                Ok((back, next)) => {
                    this = back;
                    next
                }
                Err(next) => {
                    core.return_late(job, next);
                    return None;
                }
            };
            match next {
                Next::Step if steps => this.enqueue(job),
                Next::Step | Next::Elsewhere => continue,
                Next::Wait(wait) => return self.put_to_sleep(this, job, wait),
                Next::End(turn) => {
                    job.ending = Some(turn);
                    return self.end(this, job);
                }
            }
            return Some(this);
        }
    }

    /// To the one of these threads that takes its steps. Comes back where that
    /// is this one, or no other can be had.
    fn move_to_thread(
        &self,
        this: &mut Reactor,
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
        this.timers.forget(job.id(), &mut job.timer);
        job.move_to(handle.poller());
        if let Err(Message::Run(job)) = handle.inbox().push(Message::Run(job)) {
            job.finish();
        }
        None
    }

    /// Puts a transfer to sleep after a step. What it can do without meanwhile
    /// may be an end of a caller's pipe, whose lock closing it waits for.
    fn put_to_sleep(
        &self,
        mut this: Box<Reactor>,
        mut job: Box<Job>,
        wait: Wait,
    ) -> Option<Box<Reactor>> {
        job.wait = Some(wait);
        if let Some(wakeup) = ready_already(&mut job, &wait) {
            job.wakeup = wakeup;
            this.enqueue(job);
            return Some(this);
        }
        let stays = job.transfer.thread_kind() == ThreadKind::Disk;
        match self.with_takeover(this, stays, || job.release_idle()) {
            Ok((mut this, ())) => {
                this.sleep(job, wait);
                Some(this)
            }
            Err(()) => {
                self.core.return_late(job, Next::Wait(wait));
                None
            }
        }
    }

    /// Settles, here if that cannot take long.
    fn end(&self, mut this: Box<Reactor>, mut job: Box<Job>) -> Option<Box<Reactor>> {
        this.timers.forget(job.id(), &mut job.timer);
        // Only this thread may ask for what is still on its way.
        if job.transfer.completions().is_some() && job.transfer.reap_completions() {
            let wait = Wait::completions(&job.transfer);
            job.wait = Some(wait);
            this.arm_timer(&mut job, &wait);
            this.register(&mut job, &wait);
            this.jobs.put(job.id(), job);
            return Some(this);
        }
        let settled = self.with_takeover(this, false, || self.core.settle(job));
        settled.ok().map(|(this, ())| this)
    }
}

/// Starts the watch, which takes over whenever the main thread is blocked in a
/// step, or sleeps and cannot be woken any more. If no thread is available, there is
/// no watch.
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
                Some(TakenOver::Unwakeable(reactor)) => event_loop.give_up(*reactor, Errno::EBADF),
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

/// The station for direct copies; `None` if no descriptors or no thread are
/// available.
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
