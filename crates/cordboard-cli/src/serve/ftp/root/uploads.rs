//! The files of the running uploads, so that a failed upload removes no file to which another
//! one writes. No system call on the served tree is made under the lock: one that hangs would
//! stop all uploads.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Device and inode.
pub type FileId = (u64, u64);

#[derive(Default)]
pub struct Uploads {
    state: Mutex<State>,
    /// A removal has ended.
    removed: Condvar,
}

#[derive(Default)]
struct State {
    running: Vec<FileId>,
    /// The files that are being removed.
    removing: Vec<FileId>,
    /// The number of removals that have ended.
    removals: u64,
}

/// An upload that writes to a file.
pub struct Running {
    all: Arc<Uploads>,
    pub(super) id: FileId,
    /// The upload has created the file.
    pub(super) is_new: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        forget(&mut self.all.lock().running, self.id);
    }
}

/// The removal of the file of an upload. No other upload begins on its device meanwhile.
pub struct Removal<'a>(&'a Running);

impl Drop for Removal<'_> {
    fn drop(&mut self) {
        let mut state = self.0.all.lock();
        forget(&mut state.removing, self.0.id);
        state.removals += 1;
        self.0.all.removed.notify_all();
    }
}

fn forget(ids: &mut Vec<FileId>, id: FileId) {
    if let Some(at) = ids.iter().position(|other| *other == id) {
        ids.swap_remove(at);
    }
}

impl Uploads {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of removals that have ended.
    pub fn removals(&self) -> u64 {
        self.lock().removals
    }

    /// Returns the number of running uploads, or `None` if the lock is held.
    #[cfg(test)]
    pub fn running(&self) -> Option<usize> {
        self.state.try_lock().ok().map(|state| state.running.len())
    }

    /// Adds an upload to an open file, and waits until no removal on its device runs. If
    /// `removals` has changed since before the file was opened, its name may have been removed.
    /// Later removals do not remove this file.
    pub fn begin(self: &Arc<Self>, id: FileId, is_new: bool) -> Running {
        let mut state = self.lock();
        state.running.push(id);
        // A name may have got another file since its removal began: all files of the device
        // are affected.
        while state.removing.iter().any(|(device, _)| *device == id.0) {
            state = (self.removed.wait(state)).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        Running {
            all: Arc::clone(self),
            id,
            is_new,
        }
    }
}

impl Running {
    /// Begins the removal of the file, if this upload has created it and no other upload
    /// writes to it.
    pub fn begin_removal(&self) -> Option<Removal<'_>> {
        let mut state = self.all.lock();
        let uploads = state.running.iter().filter(|id| **id == self.id).count();
        if !self.is_new || uploads != 1 {
            return None;
        }
        state.removing.push(self.id);
        Some(Removal(self))
    }
}
