//! The pipe and socket descriptors of an engine's transfers, listed for a child of
//! `fork(2)`. The child inherits them, and until it closes them a reader in another
//! process sees no end of file. It closes them at its first call of the library.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::endpoint::Endpoint;
use crate::map::Map;
use crate::sys::{self, Identity};
use crate::transfer::Transfer;

/// In place of the number of a descriptor that is not to be closed.
const NONE: RawFd = -1;

/// A descriptor and the identity of its file. Contains no `Option`, to save the tag:
/// an idle engine may have tens of thousands of these.
struct Inherited {
    /// Or [`NONE`].
    number: RawFd,
    /// A second description of the same pipe, or [`NONE`].
    second: RawFd,
    id: Identity,
}

/// The two descriptors of a transfer.
type Pair = [Inherited; 2];

/// The pairs of one engine's transfers, by transfer number.
#[derive(Default)]
pub(super) struct Inheritable(Mutex<Map<u64, Pair>>);

impl Inheritable {
    fn lock(&self) -> MutexGuard<'_, Map<u64, Pair>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In a child: closes the descriptors that are still open. Not files: no
    /// process waits for their end, and closing a descriptor of a file releases the
    /// child's record locks on it.
    pub(super) fn close(&self) {
        // A thread that held the lock at the fork does not exist here.
        let Ok(mut all) = self.0.try_lock() else {
            return;
        };
        let pairs = std::mem::take(&mut *all).into_values();
        for Inherited { number, second, id } in pairs.flatten() {
            for number in [number, second]
                .into_iter()
                .filter(|number| *number != NONE)
            {
                sys::close_inherited_fd(number, id);
            }
        }
    }
}

/// Keeps a transfer in the list until dropped, which happens before its descriptors
/// are closed: their numbers may be reused from then on.
pub(super) struct InheritableEntry {
    inheritable: Arc<Inheritable>,
    id: u64,
    /// The second descriptions that are listed.
    seconds: [RawFd; 2],
}

impl InheritableEntry {
    /// `transfer` must own its descriptors.
    pub(super) fn new(
        inheritable: &Arc<Inheritable>,
        id: u64,
        transfer: &Transfer<'static>,
    ) -> InheritableEntry {
        let pair = [transfer.source(), transfer.sink()].map(Inherited::new);
        if pair.iter().any(Inherited::is_listed) {
            inheritable.lock().insert(id, pair);
        }
        InheritableEntry {
            inheritable: Arc::clone(inheritable),
            id,
            seconds: [NONE; 2],
        }
    }

    /// Lists the second descriptions of the transfer's pipes in place of those before.
    pub(super) fn set_seconds(&mut self, seconds: [Option<BorrowedFd<'_>>; 2]) {
        let seconds = seconds.map(|fd| fd.map_or(NONE, |fd| fd.as_raw_fd()));
        if std::mem::replace(&mut self.seconds, seconds) == seconds {
            return;
        }
        if let Some(pair) = self.inheritable.lock().get_mut(&self.id) {
            for (listed, second) in pair.iter_mut().zip(seconds) {
                listed.second = second;
            }
        }
    }
}

impl Inherited {
    fn new(end: &Endpoint<'_>) -> Inherited {
        let waited_for = end.kind().is_pipe() || end.kind().is_socket();
        match end.facts().id.filter(|_| waited_for) {
            Some(id) => Inherited {
                number: end.fd().as_raw_fd(),
                second: NONE,
                id: (id.device, id.inode),
            },
            None => Inherited {
                number: NONE,
                second: NONE,
                id: (0, 0),
            },
        }
    }

    fn is_listed(&self) -> bool {
        self.number != NONE
    }
}

impl Drop for InheritableEntry {
    fn drop(&mut self) {
        self.inheritable.lock().remove(&self.id);
    }
}
