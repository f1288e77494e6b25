//! A thread that waits for many transfers and takes steps of them, one each in
//! turn. An engine has one for all its transfers, which takes the steps of those
//! that never block in the kernel. It has another one for direct copies, which
//! stay on one thread and wait for a disk at their heads and tails.
//!
//! A step between pipes and sockets can still block, on a pipe's lock. Before each
//! step the thread stores its state in its `Takeover`. If the step does not end,
//! the watchdog takes the state from there and continues the loop. The blocked
//! thread then sends its transfer to that reactor, and ends. The thread also stores
//! its state while it sleeps on descriptors. If the host closes these
//! (`close_range(2)`), the watchdog ends the transfers.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

use super::state::Reactor;
use crate::engine::core::Core;
use crate::engine::handle::ReactorHandle;
use crate::errno::Errno;
use crate::transfer::ThreadKind;

/// The event loop of one reactor thread.
pub(in crate::engine) struct EventLoop {
    pub(super) core: Arc<Core>,
    pub(super) handle: Arc<ReactorHandle>,
}

/// The reactor, and the result of the call that ran without it.
pub(super) type WithReactor<T> = (Box<Reactor>, T);

impl EventLoop {
    pub(in crate::engine) fn new(core: &Arc<Core>, handle: &Arc<ReactorHandle>) -> EventLoop {
        EventLoop {
            core: Arc::clone(core),
            handle: Arc::clone(handle),
        }
    }

    /// Returns the state of a new thread.
    ///
    /// # Errors
    ///
    /// Any errno that a seccomp filter returns for `epoll_pwait(2)`.
    pub(in crate::engine) fn begin(&self) -> Result<Box<Reactor>, Errno> {
        let poller = self.handle.poller();
        // A filter may refuse this call alone: reported here, before the thread
        // starts.
        poller.fetch(&mut [MaybeUninit::uninit()], Some(Duration::ZERO))?;
        Ok(Box::new(Reactor::new(
            poller,
            self.handle.inbox(),
            self.handle.takeover(),
        )))
    }

    pub(super) fn thread_kind(&self) -> ThreadKind {
        self.handle.poller().thread_kind
    }

    /// Runs `f`, which may block this thread, while the watchdog can take the
    /// reactor over. `Err`: another thread has taken over. `stays`: no other thread
    /// may, because a ring belongs to its thread. No other thread may either while the
    /// ring of another transfer does.
    pub(super) fn with_takeover<T>(
        &self,
        reactor: Box<Reactor>,
        stays: bool,
        f: impl FnOnce() -> T,
    ) -> Result<WithReactor<T>, T> {
        if stays || reactor.is_bound() || self.thread_kind() == ThreadKind::Disk {
            return Ok((reactor, f()));
        }
        self.handle.takeover().step(reactor, f)
    }
}
