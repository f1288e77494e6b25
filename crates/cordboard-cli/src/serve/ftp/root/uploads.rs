//! The files of the running uploads, so that a failed upload removes no file to which another
//! one writes. No system call on the served tree is made under the lock: one that hangs would
//! stop all uploads.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::files::Id;

#[derive(Default)]
pub struct Uploads {
    state: Mutex<State>,
    /// A removal has ended.
    removed: Condvar,
}

#[derive(Default)]
struct State {
    /// The running uploads, and whether another upload to the same file is complete. All uploads
    /// to a file have the same value.
    running: Vec<(Id, bool)>,
    /// The files that are being removed.
    removing: Vec<Id>,
    /// The number of removals that have ended.
    removals: u64,
}

/// An upload that writes to a file.
pub struct Running {
    all: Arc<Uploads>,
    pub(super) id: Id,
    /// The upload has created the file.
    pub(super) is_new: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        forget(&mut self.all.lock().running, |(id, _)| *id == self.id);
    }
}

/// The removal of the file of an upload. No other upload begins on its device meanwhile.
pub struct Removal<'a>(&'a Running);

impl Drop for Removal<'_> {
    fn drop(&mut self) {
        let mut state = self.0.all.lock();
        forget(&mut state.removing, |id| *id == self.0.id);
        state.removals += 1;
        self.0.all.removed.notify_all();
    }
}

/// Removes one of the equal entries.
fn forget<T>(all: &mut Vec<T>, is_it: impl Fn(&T) -> bool) {
    if let Some(at) = all.iter().position(is_it) {
        all.swap_remove(at);
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
    pub fn begin(self: &Arc<Self>, id: Id, is_new: bool) -> Running {
        let mut state = self.lock();
        let is_kept = state.running.contains(&(id, true));
        state.running.push((id, is_kept));
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
    /// States that all bytes of the upload were stored. The file, which may be empty, is not removed
    /// if the upload that has created it fails later.
    pub fn complete(&self) {
        let mut state = self.all.lock();
        let same = state.running.iter_mut().filter(|(id, _)| *id == self.id);
        same.for_each(|(_, is_kept)| *is_kept = true);
    }

    /// Begins the removal of the file, if this upload has created it, no other upload writes to it,
    /// and none is complete.
    pub fn begin_removal(&self) -> Option<Removal<'_>> {
        let mut state = self.all.lock();
        let same = |(id, _): &&(Id, bool)| *id == self.id;
        let mut uploads = state.running.iter().filter(same);
        let is_only = matches!((uploads.next(), uploads.next()), (Some((_, false)), None));
        if !self.is_new || !is_only {
            return None;
        }
        state.removing.push(self.id);
        Some(Removal(self))
    }
}
