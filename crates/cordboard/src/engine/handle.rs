//! The part of a reactor that other threads use.

use std::sync::Arc;

use super::inbox::Inbox;
use super::message::Message;
use super::poller::Poller;
use super::reactor::Reactor;
use super::takeover::Takeover;
use crate::errno::Errno;
use crate::transfer::ThreadKind;

/// A reactor's poller and inbox. Its thread may change: see `takeover.rs`.
pub(super) struct ReactorHandle {
    poller: Arc<Poller>,
    inbox: Arc<Inbox<Message>>,
    /// The thread's state, while the thread is in a step or sleeps.
    takeover: Arc<Takeover<Box<Reactor>>>,
}

impl ReactorHandle {
    pub(super) fn new(number: usize, thread_kind: ThreadKind) -> Result<Arc<ReactorHandle>, Errno> {
        let inbox = Arc::new(Inbox::new()?);
        Ok(Arc::new(ReactorHandle {
            poller: Arc::new(Poller::new(number, thread_kind, inbox.wake_fd())?),
            inbox,
            takeover: Arc::new(Takeover::new()),
        }))
    }

    pub(super) fn poller(&self) -> &Arc<Poller> {
        &self.poller
    }

    pub(super) fn inbox(&self) -> &Arc<Inbox<Message>> {
        &self.inbox
    }

    pub(super) fn takeover(&self) -> &Arc<Takeover<Box<Reactor>>> {
        &self.takeover
    }
}
