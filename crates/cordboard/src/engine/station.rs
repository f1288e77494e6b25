//! What other threads know of a thread of an engine that waits for transfers.

use std::sync::Arc;

use super::inbox::Inbox;
use super::message::Message;
use super::poller::Poller;
use super::reactor::Reactor;
use super::seat::Seat;
use crate::errno::Errno;
use crate::transfer::Home;

/// Where transfers are waited for. Its thread may change: see `seat.rs`.
pub(super) struct Station {
    poller: Arc<Poller>,
    inbox: Arc<Inbox<Message>>,
    /// Its thread's state, while the thread is in a step or sleeps.
    seat: Arc<Seat<Box<Reactor>>>,
}

impl Station {
    pub(super) fn new(home: Home) -> Result<Arc<Station>, Errno> {
        let inbox = Arc::new(Inbox::new()?);
        Ok(Arc::new(Station {
            poller: Arc::new(Poller::new(home, inbox.bell())?),
            inbox,
            seat: Arc::new(Seat::new()),
        }))
    }

    pub(super) fn poller(&self) -> &Arc<Poller> {
        &self.poller
    }

    pub(super) fn inbox(&self) -> &Arc<Inbox<Message>> {
        &self.inbox
    }

    pub(super) fn seat(&self) -> &Arc<Seat<Box<Reactor>>> {
        &self.seat
    }
}
