//! How much a transfer may still take from its source. Every path asks before it
//! takes bytes, so a limit that is set here holds on each of them.

/// What may still be taken.
///
/// Three things end it: the size of the request, a [close](Allowance::close), which
/// is final, and a [pause](Allowance::set_paused), which is not. What was taken before is
/// still given to the sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// Bytes of the request that are still to be taken; `u64::MAX`: to the end.
    request: u64,
    /// Bytes before the next hole of the source.
    extent: u64,
    closed: bool,
    cut_short: bool,
    paused: bool,
}

impl Allowance {
    /// So many bytes; `None`: to the end of the source.
    pub(crate) fn new(size: Option<u64>) -> Allowance {
        Allowance {
            request: size.unwrap_or(u64::MAX),
            extent: u64::MAX,
            closed: false,
            cut_short: false,
            paused: false,
        }
    }

    /// Bytes that may be taken now.
    pub(crate) fn now(&self) -> u64 {
        match self.paused {
            true => 0,
            false => self.remaining().min(self.extent),
        }
    }

    /// Bytes that are still to be taken, by now or later. 0: the transfer ends once
    /// what it holds is in the sink.
    pub(crate) fn remaining(&self) -> u64 {
        match self.closed {
            true => 0,
            false => self.request,
        }
    }

    /// Nothing more of the request is to be taken.
    pub(crate) fn is_over(&self) -> bool {
        self.remaining() == 0
    }

    /// Nothing comes before the size, or before the next hole is dealt with.
    pub(crate) fn is_spent(&self) -> bool {
        self.remaining().min(self.extent) == 0
    }

    /// There is no size: the source is taken to its end.
    pub(crate) fn is_endless(&self) -> bool {
        !self.closed && self.request == u64::MAX
    }

    /// So many bytes were taken.
    pub(crate) fn took(&mut self, bytes: u64) {
        self.request = self.request.saturating_sub(bytes);
        self.extent = self.extent.saturating_sub(bytes);
    }

    /// Bytes before the next hole.
    pub(crate) fn extent(&self) -> u64 {
        self.extent
    }

    pub(crate) fn set_extent(&mut self, bytes: u64) {
        self.extent = bytes;
    }

    /// Nothing more is taken: the source has ended, or what comes next does not fit
    /// into the rest of the size.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// Nothing more is taken, though the source may go on: the transfer is cancelled
    /// or idle.
    pub(crate) fn cut_short(&mut self) {
        (self.closed, self.cut_short) = (true, true);
    }

    pub(crate) fn is_cut_short(&self) -> bool {
        self.cut_short
    }

    /// Nothing is taken while it is paused.
    pub(crate) fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_taken_past_the_size_or_the_next_hole() {
        let mut allowance = Allowance::new(Some(100));
        assert_eq!((allowance.now(), allowance.remaining()), (100, 100));
        allowance.set_extent(30);
        assert_eq!((allowance.now(), allowance.remaining()), (30, 100));
        allowance.took(30);
        assert_eq!((allowance.now(), allowance.remaining()), (0, 70));
        allowance.set_extent(u64::MAX);
        allowance.took(80);
        assert_eq!((allowance.now(), allowance.remaining()), (0, 0));
    }

    #[test]
    fn a_pause_is_taken_back_and_a_close_is_not() {
        let mut allowance = Allowance::new(None);
        allowance.set_paused(true);
        assert_eq!((allowance.now(), allowance.remaining()), (0, u64::MAX));
        allowance.set_paused(false);
        assert_eq!(allowance.now(), u64::MAX);
        allowance.close();
        allowance.set_paused(false);
        assert_eq!((allowance.now(), allowance.remaining()), (0, 0));
        assert!(!allowance.is_cut_short());
    }
}
