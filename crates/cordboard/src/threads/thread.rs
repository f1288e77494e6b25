//! One thread of the library.

use std::cell::Cell;
use std::ffi::CStr;

use crate::errno::Errno;
use crate::sys::{self, NoSignals, Spawned};

/// The owner number of threads that belong to no engine.
pub(crate) const NO_OWNER: usize = 0;

thread_local! {
    /// `None` in the program's own threads.
    static OWNER: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Whether the calling thread is one of the library.
pub(super) fn is_own() -> bool {
    OWNER.get().is_some()
}

/// Whether the calling thread belongs to this owner.
pub(crate) fn is_of(owner: usize) -> bool {
    OWNER.get() == Some(owner)
}

/// Starts a thread with all signals blocked.
pub(crate) fn start(
    name: &'static CStr,
    owner: usize,
    body: impl FnOnce() + Send + 'static,
) -> Result<Spawned, Errno> {
    let signals = NoSignals::start();
    let started = sys::spawn(name, move || {
        OWNER.set(Some(owner));
        body();
    });
    drop(signals);
    started
}

/// Gives the calling thread another name.
pub(crate) fn rename(name: &CStr) {
    let _ = rustix::thread::set_name(name);
}
