//! The settings among which a controller chooses.

/// The index of a setting.
pub(crate) type Arm = usize;

/// A set of settings, and which of them differ by one change.
pub(crate) trait Arms {
    /// The number of settings.
    fn len(&self) -> usize;

    /// Returns whether `to` differs from `from` by one change. If `from` is fast, `to` is
    /// then measured as well.
    fn is_neighbour(&self, from: Arm, to: Arm) -> bool;

    /// Returns the index of a setting's path: the rates of other paths tell nothing about its rate.
    fn path_index(&self, _arm: Arm) -> usize {
        0
    }

    /// Returns whether the setting can be used now.
    fn is_possible(&self, _arm: Arm) -> bool {
        true
    }

    /// Returns the bytes in flight with this setting: the first bytes that arrive after
    /// a change are not measured.
    fn in_flight(&self, _arm: Arm) -> u64 {
        0
    }

    /// Returns the least number of bytes of a measurement: several blocks may arrive together.
    fn least(&self, arm: Arm) -> u64 {
        self.in_flight(arm)
    }

    /// Returns the gain of the rate, in 1/1024, that a change requires in addition to a real
    /// difference: windows are short, and what a setting leaves behind affects the next one.
    fn reserve(&self, _from: Arm, _to: Arm) -> u64 {
        0
    }

    /// Returns the setting with about half of the bytes in flight, or the same one if
    /// there is none.
    fn shrink(&self, arm: Arm) -> Arm {
        arm
    }
}

/// Returns whether a device of this rate completes the bytes in flight within a second,
/// which bounds the time of a cancellation.
pub(super) fn is_soon_done(arms: &dyn Arms, arm: Arm, rate: u64) -> bool {
    arms.in_flight(arm) <= rate || arms.shrink(arm) == arm
}
