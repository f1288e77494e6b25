//! How much a transfer may still take from its source. Every path checks it before it
//! takes bytes, so a limit set here applies to all of them.

/// Why a path declines whose unit no grant of the schedule reaches.
pub(crate) const SHORT_BURSTS: &str = "the schedule's bursts are shorter than a block";

/// The number of bytes that may still be taken.
///
/// Four things stop it: the size of the request, a [close](Allowance::close), which is
/// final, and a [pause](Allowance::set_paused) and a used-up
/// [grant](Allowance::add_grant), which are not. Bytes taken before are still given to
/// the sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// Bytes of the request still to be taken; `u64::MAX`: up to the end.
    request: u64,
    /// Bytes before the next hole of the source.
    extent: u64,
    closed: bool,
    /// Closed although the source may continue.
    early: bool,
    cut_short: bool,
    paused: bool,
    /// Bytes that the schedule has granted and that are not taken yet; `u64::MAX`: there
    /// is no schedule.
    granted: u64,
    /// Bytes taken beyond the grant, by records that cannot be divided.
    overdrawn: u64,
}

impl Allowance {
    /// Allows `size` bytes; `None`: up to the end of the source.
    pub(crate) fn new(size: Option<u64>) -> Allowance {
        Allowance {
            request: size.unwrap_or(u64::MAX),
            extent: u64::MAX,
            closed: false,
            early: false,
            cut_short: false,
            paused: false,
            granted: u64::MAX,
            overdrawn: 0,
        }
    }

    /// Bytes that may be taken now.
    pub(crate) fn now(&self) -> u64 {
        match self.paused {
            true => 0,
            false => self.remaining().min(self.extent).min(self.granted),
        }
    }

    /// Bytes that may be taken now if a grant must not divide `piece` bytes: all of the grant,
    /// in whole pieces, and at least one piece. The bytes beyond the grant count as
    /// overdrawn.
    pub(crate) fn now_in_pieces(&self, piece: u64) -> u64 {
        let granted = match self.granted {
            0 | u64::MAX => self.granted,
            granted => (granted / piece * piece).max(piece),
        };
        match self.paused {
            true => 0,
            false => self.remaining().min(self.extent).min(granted),
        }
    }

    /// Bytes still to be taken, now or later. 0: the transfer ends once the bytes it
    /// holds are in the sink.
    pub(crate) fn remaining(&self) -> u64 {
        match self.closed {
            true => 0,
            false => self.request,
        }
    }

    /// Whether nothing more is to be taken.
    pub(crate) fn is_over(&self) -> bool {
        self.remaining() == 0
    }

    /// Whether the size or the next hole is reached.
    pub(crate) fn is_spent(&self) -> bool {
        self.remaining().min(self.extent) == 0
    }

    /// Whether there is no size: the source is read to its end.
    pub(crate) fn is_endless(&self) -> bool {
        !self.closed && self.request == u64::MAX
    }

    /// Records that `bytes` were taken.
    pub(crate) fn took(&mut self, bytes: u64) {
        self.passed(bytes);
        if self.is_paced() {
            self.overdrawn += bytes.saturating_sub(self.granted);
            self.granted = self.granted.saturating_sub(bytes);
        }
    }

    /// Records that a hole of this many bytes was passed: a schedule does not count it.
    pub(crate) fn passed(&mut self, bytes: u64) {
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

    /// Takes nothing more: the source has ended, or the next message does not fit into
    /// the rest of the size.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// Takes nothing more, though the source may continue: it has been silent for the idle
    /// limit. The stages end as at its end.
    pub(crate) fn close_early(&mut self) {
        (self.closed, self.early) = (true, true);
    }

    /// Takes nothing more, though the source may continue: the transfer is cancelled or
    /// idle.
    pub(crate) fn cut_short(&mut self) {
        self.close_early();
        self.cut_short = true;
    }

    /// Whether it was closed although the source may continue.
    pub(crate) fn is_early(&self) -> bool {
        self.early
    }

    pub(crate) fn is_cut_short(&self) -> bool {
        self.cut_short
    }

    /// Pauses or resumes taking bytes.
    pub(crate) fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Whether nothing may be taken now, but later: it is paused, or the grant is used
    /// up.
    pub(crate) fn is_held_back(&self) -> bool {
        (self.paused || self.granted == 0) && !self.is_over()
    }

    /// Whether a schedule limits what may be taken.
    pub(crate) fn is_paced(&self) -> bool {
        self.granted != u64::MAX
    }

    /// Whether a schedule has granted bytes, but fewer than this.
    pub(crate) fn is_less_than(&self, unit: u64) -> bool {
        let granted = (1..unit).contains(&self.granted);
        granted && self.remaining().min(self.extent) > self.granted
    }

    /// Grants more bytes; `u64::MAX` ends the schedule.
    pub(crate) fn add_grant(&mut self, bytes: u64) {
        self.granted = match self.is_paced() && bytes != u64::MAX {
            true => self.granted.saturating_add(bytes).min(u64::MAX - 1),
            false => bytes,
        };
    }

    /// Returns the granted bytes that are left, apart from `kept`, and the bytes taken
    /// beyond the grant. Both are then 0.
    pub(crate) fn take_surplus(&mut self, kept: u64) -> (u64, u64) {
        if !self.is_paced() {
            return (0, 0);
        }
        let surplus = self.granted.saturating_sub(kept);
        self.granted -= surplus;
        (surplus, std::mem::take(&mut self.overdrawn))
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
    fn a_grant_is_used_up_and_a_hole_is_not_charged() {
        let mut allowance = Allowance::new(Some(100));
        allowance.add_grant(30);
        allowance.passed(10);
        assert_eq!((allowance.now(), allowance.remaining()), (30, 90));
        allowance.took(20);
        assert_eq!(allowance.take_surplus(4), (6, 0));
        assert!(!allowance.is_held_back());
        // A record of 9 bytes.
        allowance.took(9);
        assert!(allowance.is_held_back());
        assert_eq!(allowance.take_surplus(0), (0, 5));
        allowance.add_grant(u64::MAX);
        assert_eq!((allowance.now(), allowance.is_paced()), (61, false));
    }

    #[test]
    fn a_grant_divides_no_piece() {
        let mut allowance = Allowance::new(Some(100));
        assert_eq!(allowance.now_in_pieces(8), 100);
        allowance.add_grant(0);
        assert_eq!(allowance.now_in_pieces(8), 0);
        allowance.add_grant(1);
        assert_eq!(allowance.now_in_pieces(8), 8);
        allowance.took(8);
        assert_eq!(allowance.take_surplus(0), (0, 7));
        allowance.add_grant(20);
        assert_eq!(allowance.now_in_pieces(8), 16);
        assert_eq!(allowance.now_in_pieces(200), 92);
        allowance.set_paused(true);
        assert_eq!(allowance.now_in_pieces(8), 0);
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
        assert!(!allowance.is_cut_short() && !allowance.is_early());
        allowance.close_early();
        assert!(!allowance.is_cut_short() && allowance.is_early());
        allowance.cut_short();
        assert!(allowance.is_cut_short() && allowance.is_early());
    }
}
