//! The reactor that a transfer belongs to, for the messages that other threads send.
//! `crates/model` tries the interleavings of a move and a cancel.

use super::sync::{AtomicUsize, Ordering, fence};

/// The number of the reactor that new transfers start on.
pub(crate) const MAIN: usize = 0;

/// The number of a transfer's reactor.
#[derive(Debug, Default)]
pub(crate) struct Home(AtomicUsize);

impl Home {
    /// Changes the reactor. The transfer is sent there afterwards; that reactor asks
    /// for a cancel before the transfer sleeps.
    pub(crate) fn set(&self, reactor: usize) {
        self.0.store(reactor, Ordering::Relaxed);
        // Either the new reactor sees the flag of a cancel, or the cancel sees the
        // new reactor.
        fence(Ordering::SeqCst);
    }

    /// Returns the reactor, after a flag of the transfer was changed.
    pub(crate) fn after_change(&self) -> usize {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed)
    }
}
