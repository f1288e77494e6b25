//! Whether a descriptor can be used without waiting.

/// Whether a blocking descriptor may be used without waiting.
///
/// A descriptor that is not in non-blocking mode, and whose call has no flag
/// of its own against waiting, is only used after `poll(2)` has found it
/// ready; each use takes the mark away. Setting `O_NONBLOCK` instead would
/// reach everyone who shares the open description.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ready {
    /// Polled ready, and not used since.
    pub(crate) marked: bool,
    /// It was marked before the use that is under way.
    pub(crate) was_marked: bool,
    /// Its calls never wait: non-blocking, or a file.
    pub(crate) never_waits: bool,
    /// Waiting inside a call is allowed.
    pub(crate) may_sleep: bool,
    /// `poll(2)` reports an error that no call returns: the socket's error
    /// queue has an entry, which is left to its requester. Only a change
    /// counts.
    pub(crate) doubted: bool,
}

impl Ready {
    /// Takes the mark; `false` if the side must be polled first. `covered`:
    /// the call has a flag of its own against waiting.
    pub(crate) fn take(&mut self, covered: bool) -> bool {
        self.take_polled() || self.may_sleep || covered
    }

    /// Takes the mark, where waiting inside the call would hold up others.
    pub(crate) fn take_polled(&mut self) -> bool {
        self.was_marked = std::mem::take(&mut self.marked);
        self.was_marked || self.never_waits
    }

    /// The use under way may wait, and `poll(2)` was not asked before.
    pub(crate) fn is_unasked(&self) -> bool {
        !self.was_marked && !self.never_waits
    }
}
