//! How a transfer is run.

/// What a step may do to the thread it runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mode {
    may_sleep: bool,
    shares_thread: bool,
    watched: bool,
}

impl Mode {
    /// On the caller's thread, which sleeps in `poll(2)` only.
    pub(crate) fn new() -> Mode {
        Mode {
            may_sleep: false,
            shares_thread: false,
            watched: true,
        }
    }

    /// A step may sleep inside a system call.
    pub(crate) fn may_sleep(self) -> bool {
        self.may_sleep
    }

    /// Other transfers use the thread too, and wait for each call.
    pub(crate) fn shares_thread(self) -> bool {
        self.shares_thread
    }

    /// An observer is called, or a cancellation noticed, as soon as any byte has
    /// moved.
    pub(crate) fn is_watched(self) -> bool {
        self.watched
    }

    /// On an engine's thread.
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
