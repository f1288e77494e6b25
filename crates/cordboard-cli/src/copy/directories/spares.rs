//! Directories above the current one of a walk, which are open and can be
//! opened again. They are closed if a call finds no descriptor left.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::io::Errno;

/// The number kept of one side, besides the top. In a tree that is no deeper,
/// no directory is opened twice.
pub const EACH: usize = 15;

/// The spares of both sides of a walk.
#[derive(Debug, Default)]
pub struct Spares(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    tops: Vec<Arc<OwnedFd>>,
    /// The oldest, which is needed last, comes first.
    others: VecDeque<Arc<OwnedFd>>,
}

impl Spares {
    /// Keeps a directory open. The top helps to find the others again.
    pub fn keep(&self, fd: Arc<OwnedFd>, top: bool) {
        let mut kept = self.lock();
        if top {
            kept.tops.push(fd);
            return;
        }
        kept.others.push_back(fd);
        if kept.others.len() > 2 * EACH {
            kept.others.pop_front();
        }
    }

    /// Takes a directory back, if it is still open.
    pub fn take(&self, fd: &Weak<OwnedFd>) -> Option<Arc<OwnedFd>> {
        let fd = fd.upgrade()?;
        let mut kept = self.lock();
        let is_it = |other: &Arc<OwnedFd>| Arc::ptr_eq(other, &fd);
        if let Some(index) = kept.others.iter().rposition(is_it) {
            kept.others.remove(index);
        } else {
            kept.tops.retain(|other| !is_it(other));
        }
        Some(fd)
    }

    /// Opens something. If no descriptor is left, closes all spares and tries
    /// again.
    pub fn retry_without_spares<T>(&self, open: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
        match open() {
            Err(Errno::MFILE | Errno::NFILE) if self.close_all() => open(),
            done => done,
        }
    }

    /// Closes all; `false`: there are none.
    fn close_all(&self) -> bool {
        let kept = std::mem::take(&mut *self.lock());
        !kept.tops.is_empty() || !kept.others.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
