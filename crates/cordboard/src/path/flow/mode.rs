//! How a transfer runs.

/// What a step may do to its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mode {
    may_sleep: bool,
    shares_thread: bool,
    watched: bool,
}

impl Mode {
    /// Runs on the caller's thread, which blocks only in `poll(2)`.
    pub(crate) fn new() -> Mode {
        Mode {
            may_sleep: false,
            shares_thread: false,
            watched: true,
        }
    }

    /// Whether a step may block in a system call.
    pub(crate) fn may_sleep(self) -> bool {
        self.may_sleep
    }

    /// Whether other transfers share the thread and wait for each call.
    pub(crate) fn shares_thread(self) -> bool {
        self.shares_thread
    }

    /// Whether an observer or a cancellation must be served as soon as any byte
    /// has moved.
    pub(crate) fn is_watched(self) -> bool {
        self.watched
    }

    /// Runs on an engine's thread.
    pub(crate) fn share_thread(&mut self) {
        self.shares_thread = true;
    }

    pub(crate) fn set_watched(&mut self, watched: bool) {
        self.watched = watched;
    }

    pub(super) fn set_may_sleep(&mut self, may_sleep: bool) {
        self.may_sleep = may_sleep;
    }
}
