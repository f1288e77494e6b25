//! Whether a descriptor can be used without blocking.

/// Whether a blocking descriptor may be used without blocking.
///
/// A blocking descriptor whose call has no flag against blocking is used only
/// after `poll(2)` has found it ready; each use clears the mark. Setting
/// `O_NONBLOCK` instead would affect every process that shares the open file
/// description.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ready {
    /// Polled ready, and not used since.
    pub(crate) marked: bool,
    /// The mark as it was before the current use.
    pub(crate) was_marked: bool,
    /// Its calls never block: non-blocking, or a file.
    pub(crate) never_waits: bool,
    /// Blocking in a call is allowed.
    pub(crate) may_sleep: bool,
    /// `poll(2)` reports an error that no call returns: the socket's error
    /// queue has an entry, which is left to its owner. Only a change of state
    /// counts.
    pub(crate) error_persists: bool,
}

impl Ready {
    /// Clears the mark. `false` if the end must be polled first. `covered`: the
    /// call has its own flag against blocking.
    pub(crate) fn take(&mut self, covered: bool) -> bool {
        self.take_polled() || self.may_sleep || covered
    }

    /// Clears the mark. `false` if the end must be polled first, even if
    /// blocking is allowed: for a call that would block other processes too.
    pub(crate) fn take_polled(&mut self) -> bool {
        self.was_marked = std::mem::take(&mut self.marked);
        self.was_marked || self.never_waits
    }

    /// Whether the current use may block, because the end was not polled before
    /// it.
    pub(crate) fn is_unasked(&self) -> bool {
        !self.was_marked && !self.never_waits
    }
}
