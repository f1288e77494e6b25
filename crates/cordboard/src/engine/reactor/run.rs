//! The cycle of an event loop, and its watchdog.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::Event;

use super::event_loop::EventLoop;
use super::state::Reactor;
use crate::engine::core::{BLOCKED_AFTER, Core};
use crate::engine::cycle::{self, Cycle};
use crate::engine::inbox::Inbox;
use crate::engine::job::{EngineForJob as _, Role};
use crate::engine::message::Message;
use crate::engine::poller::WAKE;
use crate::engine::takeover::{TakenOver, Takeover};
use crate::errno::Errno;
use crate::sys;
use crate::threads;
use crate::transfer::{Clock, ThreadKind, Turn};

/// The number of events that are fetched at a time.
pub(super) const EVENTS: usize = 256;

/// The longest sleep with transfers under way before the thread checks that its
/// descriptors are still its own.
const LONGEST: Duration = Duration::from_secs(60);
/// The same for a thread without a watchdog: that for direct copies, of which a block
/// normally completes sooner, and one whose watchdog could not be started.
const UNWATCHED: Duration = Duration::from_secs(1);
/// The time after which a watchdog that could not be started is tried again.
const WATCHDOG_RETRY: Duration = Duration::from_secs(1);

impl EventLoop {
    /// Runs until the engine has shut down, or another thread has taken over.
    pub(in crate::engine) fn run(&self, mut reactor: Box<Reactor>) {
        if self.thread_kind() == ThreadKind::Reactor {
            self.start_watchdog(&mut reactor);
        }
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];
        cycle::run(self, reactor, &mut events);
    }

    /// Starts a watchdog. If no thread can be started, another try follows.
    pub(super) fn start_watchdog(&self, reactor: &mut Reactor) {
        reactor.next_watchdog = match start_watchdog(&self.core) {
            Ok(()) => None,
            Err(_) => Some(self.core.clock().now() + WATCHDOG_RETRY),
        };
    }
}

impl Cycle for EventLoop {
    type State = Box<Reactor>;
    type Message = Message;
    type Events = [MaybeUninit<Event>; EVENTS];
    type Ready<'a> = &'a [Event];

    fn inbox(&self) -> &Inbox<Message> {
        self.handle.inbox()
    }

    fn takeover(&self) -> &Takeover<Box<Reactor>> {
        self.handle.takeover()
    }

    fn is_done(&self) -> bool {
        self.core.is_done()
    }

    fn handle_message(&self, reactor: &mut Box<Reactor>, message: Message) {
        match message {
            Message::Run(job) => reactor.admit(job),
            // A transfer on its way here finds out when it arrives.
            Message::Recheck(id) => reactor.jobs.wake(id),
            Message::Stop => reactor.jobs.wake_all(),
        }
    }

    fn prepare(&self, reactor: &mut Box<Reactor>) {
        reactor.jobs.shrink();
        if self.thread_kind() == ThreadKind::Disk {
            sys::keep_an_arena(!reactor.jobs.is_empty());
        }
        let now = self.core.clock().now();
        reactor.expire_timers(now);
        if reactor.next_watchdog.is_some_and(|at| at <= now) {
            self.start_watchdog(reactor);
        }
    }

    fn queued(&self, reactor: &Box<Reactor>) -> usize {
        reactor.jobs.queued()
    }

    fn turn(&self, mut reactor: Box<Reactor>) -> Option<Box<Reactor>> {
        match reactor.dequeue() {
            Some(job) => self.turn_of(reactor, job),
            None => Some(reactor),
        }
    }

    fn waits_for_messages_only(&self, reactor: &Box<Reactor>) -> bool {
        reactor.jobs.is_empty() && reactor.timers.next().is_none()
    }

    fn longest_sleep(&self, reactor: &Box<Reactor>) -> Option<Duration> {
        let now = self.core.clock().now();
        let timer = reactor.timers.next().map(|at| at.saturating_sub(now));
        // If the host closes the wake descriptor nothing else may wake it.
        let disk = self.thread_kind() == ThreadKind::Disk && !reactor.jobs.is_empty();
        let is_unwatched = disk || reactor.next_watchdog.is_some();
        let most = if is_unwatched { UNWATCHED } else { LONGEST };
        let check = self.core.is_active().then_some(most);
        timer.into_iter().chain(check).min()
    }

    /// Fails with `EBADF` if its descriptors are no longer its own, as of the last
    /// millisecond.
    fn check(&self) -> Result<(), Errno> {
        let is_intact = match self.thread_kind() {
            // Other threads share this check.
            ThreadKind::Reactor => !self.core.is_lost(),
            _ => self.handle.poller().was_open(self.core.clock().now()),
        };
        is_intact.then_some(()).ok_or(Errno::EBADF)
    }

    fn check_now(&self) -> Result<(), Errno> {
        let is_intact = match self.thread_kind() {
            ThreadKind::Reactor => !self.core.is_lost_now(),
            _ => self.handle.poller().is_open(self.core.clock().now()),
        };
        is_intact.then_some(()).ok_or(Errno::EBADF)
    }

    fn fetch<'a>(
        &self,
        events: &'a mut [MaybeUninit<Event>; EVENTS],
        timeout: Option<Duration>,
    ) -> Result<&'a [Event], Errno> {
        self.handle.poller().fetch(events, timeout)
    }

    fn handle_events(&self, reactor: &mut Box<Reactor>, events: &[Event]) -> Result<(), Errno> {
        self.check()?;
        let mut ready: Vec<u64> = Vec::new();
        for event in events {
            let (data, flags) = (event.data, event.flags);
            if data == WAKE {
                self.handle.poller().clear_wake();
                continue;
            }
            let (id, role) = Role::from_token(data);
            if let Some(job) = reactor.jobs.get_mut(id)
                && job.handle_event(role, flags)
            {
                ready.push(id);
            }
        }
        for id in ready {
            reactor.jobs.schedule(id);
        }
        Ok(())
    }

    /// Shuts the engine down as well, which ends the transfers of other threads.
    fn fail_all(&self, mut reactor: Box<Reactor>, errno: Errno) {
        if !self.handle.poller().is_intact() {
            self.core.mark_lost();
        } else if self.thread_kind() == ThreadKind::Reactor {
            self.core.stop();
        }
        let mut all = reactor.jobs.drain();
        for message in reactor.inbox.close() {
            if let Message::Run(job) = message {
                all.push(job);
            }
        }
        for mut job in all {
            job.ending.get_or_insert(Turn::Failed(None, Some(errno)));
            self.core.settle(job);
        }
    }
}

/// Starts the watchdog, which takes over when the main thread is blocked in a step,
/// or sleeps and can no longer be woken.
fn start_watchdog(core: &Arc<Core>) -> Result<(), Errno> {
    let body = {
        let core = Arc::clone(core);
        move || {
            let main = core.main();
            let is_blocked = || core.thread().is_some_and(|thread| thread.waits());
            let cannot_wake = || !main.inbox().wake_fd().is_still_open();
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
                Some(TakenOver::Unwakeable(reactor)) => event_loop.fail_all(reactor, Errno::EBADF),
                None => {}
            }
        }
    };
    let thread = threads::start(c"cordboard-watch", core.number, body)?;
    core.keep(Some(thread));
    Ok(())
}
