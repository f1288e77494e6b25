//! The events of an event loop, and its end without descriptors.

use std::time::Duration;

use rustix::event::epoll::Event;

use super::event_loop::EventLoop;
use super::state::Reactor;
use crate::engine::job::{EngineForJob, Role};
use crate::engine::message::Message;
use crate::engine::poller::WAKE;
use crate::errno::Errno;
use crate::transfer::{Clock, ThreadKind, Turn};

/// The longest sleep with transfers under way before the thread checks that its
/// descriptors are still its own.
const LONGEST: Duration = Duration::from_secs(60);
/// The same for the thread for direct copies, which has no watchdog. A block
/// normally completes sooner.
const DISK: Duration = Duration::from_secs(1);

impl EventLoop {
    pub(super) fn longest_sleep(&self, reactor: &Reactor) -> Option<Duration> {
        let now = self.core.clock().now();
        let timer = reactor.timers.next().map(|at| at.saturating_sub(now));
        // If the host closes the eventfd nothing else may wake it.
        let disk = self.thread_kind() == ThreadKind::Disk && !reactor.jobs.is_empty();
        let most = if disk { DISK } else { LONGEST };
        let check = self.core.is_active().then_some(most);
        timer.into_iter().chain(check).min()
    }

    /// Fails with `EBADF` if its descriptors are no longer its own, as of the last
    /// millisecond.
    pub(super) fn check(&self) -> Result<(), Errno> {
        let is_intact = match self.thread_kind() {
            // Other threads share this check.
            ThreadKind::Reactor => !self.core.is_lost(),
            _ => self.handle.poller().was_open(self.core.clock().now()),
        };
        is_intact.then_some(()).ok_or(Errno::EBADF)
    }

    pub(super) fn handle_events(
        &self,
        reactor: &mut Reactor,
        events: &[Event],
    ) -> Result<(), Errno> {
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
