//! The sleep of an event loop, and its end without descriptors.

use std::mem::MaybeUninit;
use std::time::Duration;

use rustix::event::epoll::Event;

use super::event_loop::{EventLoop, WithReactor};
use super::state::Reactor;
use crate::engine::job::{EngineForJob, Role};
use crate::engine::message::Message;
use crate::engine::poller::WAKE;
use crate::errno::Errno;
use crate::transfer::{Clock, ThreadKind, Turn};

/// The longest sleep with transfers under way before the thread checks that its
/// descriptors are still its own.
const LONGEST: Duration = Duration::from_secs(60);
/// The same for the thread for direct copies, which has no watchdog. A block takes
/// less time.
const DISK: Duration = Duration::from_secs(1);

impl EventLoop {
    /// Waits for messages, and for descriptors if any transfer is here. The error
    /// is `EBADF`, or what a seccomp filter returns that was installed after the
    /// start, and will return each time. `None`: another thread has taken over.
    pub(super) fn pause(
        &self,
        mut reactor: Box<Reactor>,
        timeout: Option<Duration>,
        events: &mut [MaybeUninit<Event>],
    ) -> Option<WithReactor<Result<(), Errno>>> {
        let handle = &self.handle;
        // Checked here because a busy thread never sleeps, and could take events of
        // the host's epoll instance.
        if !self.has_its_descriptors() {
            return Some((reactor, Err(Errno::EBADF)));
        }
        if timeout == Some(Duration::ZERO) {
            let events = handle.poller().fetch(events, timeout);
            let result = events.and_then(|events| self.handle_events(&mut reactor, events));
            return Some((reactor, result));
        }
        if reactor.jobs.is_empty() && reactor.timers.next().is_none() {
            // A condition variable, not a descriptor: the host cannot close it.
            handle.inbox().wait(timeout);
            let result = self.handle_events(&mut reactor, &[]);
            return Some((reactor, result));
        }
        let step = handle.takeover().begin_sleep(reactor);
        let events = handle.poller().fetch(events, timeout);
        let mut reactor = handle.takeover().reclaim(step)?;
        let result = events.and_then(|events| self.handle_events(&mut reactor, events));
        Some((reactor, result))
    }

    pub(super) fn longest_sleep(&self, reactor: &Reactor) -> Option<Duration> {
        let now = self.core.clock().now();
        let timer = reactor.timers.next().map(|at| at.saturating_sub(now));
        // If the host closes the eventfd nothing else may wake it.
        let disk = self.thread_kind() == ThreadKind::Disk && !reactor.jobs.is_empty();
        let most = if disk { DISK } else { LONGEST };
        let look = self.core.is_active().then_some(most);
        timer.into_iter().chain(look).min()
    }

    /// Returns whether its descriptors are still its own, as of the last
    /// millisecond.
    fn has_its_descriptors(&self) -> bool {
        match self.thread_kind() {
            // Other threads share this check.
            ThreadKind::Reactor => !self.core.is_lost(),
            _ => self.handle.poller().was_open(self.core.clock().now()),
        }
    }

    fn handle_events(&self, reactor: &mut Reactor, events: &[Event]) -> Result<(), Errno> {
        if !self.has_its_descriptors() {
            return Err(Errno::EBADF);
        }
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
        ready.into_iter().for_each(|id| reactor.schedule(id));
        Ok(())
    }

    /// Fails all transfers here after waiting has become impossible, and shuts the
    /// engine down, which ends all others.
    pub(in crate::engine) fn fail_all(&self, mut reactor: Reactor, errno: Errno) {
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
