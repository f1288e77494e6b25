//! The ends of pipes and sockets that an engine's transfers have, listed for a
//! child of `fork(2)`. The child inherits them all, and as long as it has them no
//! reader in another process sees the end. So it closes them at its first call
//! of the library.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::endpoint::Endpoint;
use crate::map::Map;
use crate::sys::{self, Identity};
use crate::transfer::Transfer;

/// The two descriptors of a transfer: number, device and inode.
type Pair = [Option<(RawFd, Identity)>; 2];

/// Those of one engine's transfers, by the transfer's number.
#[derive(Default)]
pub(super) struct Ends(Mutex<Map<u64, Pair>>);

impl Ends {
    fn lock(&self) -> MutexGuard<'_, Map<u64, Pair>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In a child: closes what is still there. Not files: no process waits for their
    /// end, and with a descriptor of one the child loses its record locks on it.
    pub(super) fn close(&self) {
        // A thread that held the lock at the fork does not exist here.
        let Ok(mut all) = self.0.try_lock() else {
            return;
        };
        for (number, id) in std::mem::take(&mut *all).into_values().flatten().flatten() {
            sys::close_inherited(number, id);
        }
    }
}

/// A transfer that is in the list until this is dropped: before its descriptors
/// are closed, since the numbers may be somebody else's from then on.
pub(super) struct Listed {
    ends: Arc<Ends>,
    id: u64,
}

impl Listed {
    /// The transfer has its own descriptors by now.
    pub(super) fn new(ends: &Arc<Ends>, id: u64, transfer: &Transfer<'static>) -> Listed {
        let pair = [transfer.source(), transfer.sink()].map(listed);
        if pair.iter().any(Option::is_some) {
            ends.lock().insert(id, pair);
        }
        Listed {
            ends: Arc::clone(ends),
            id,
        }
    }
}

fn listed(end: &Endpoint<'_>) -> Option<(RawFd, Identity)> {
    let waited_for = end.kind().is_pipe() || end.kind().is_socket();
    let id = end.facts().id.filter(|_| waited_for)?;
    Some((end.fd().as_raw_fd(), (id.device, id.inode)))
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.ends.lock().remove(&self.id);
    }
}
