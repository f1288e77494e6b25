//! What the measurements of other settings have cost, and what they may cost.

/// The loss that is accepted at any time, in bytes.
const FREE: u64 = 64 << 20;
/// The loss that is accepted in addition, as a divisor of the bytes moved.
const PER_LOSS: u64 = 128;
/// The loss by a measurement that the end of the transfer has cut off.
const CUT: u64 = 4 << 20;
/// After a change of the conditions, [`FREE`] bytes may be lost again, if at least this number
/// of bytes was moved since the last time, and as many as before the last time.
const REFILL: [u64; 2] = [512 << 20, 4 << 30];

/// Bounds the loss by the bytes that were moved.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Budget {
    moved: u64,
    /// The bytes that the best setting would have moved, in addition, in the time or the
    /// processor time of the measurements of other settings.
    lost: u64,
    /// The bytes moved when `lost` was last reduced.
    refilled: u64,
}

impl Budget {
    /// Records that a window has moved `bytes`.
    pub(super) fn add(&mut self, bytes: u64) {
        self.moved = self.moved.saturating_add(bytes);
    }

    /// Records that a measurement has cost `bytes`.
    pub(super) fn lose(&mut self, bytes: u64) {
        self.lost = self.lost.saturating_add(bytes);
    }

    /// Records a measurement that has not ended. It may have cost as much as one that has.
    pub(super) fn lose_cut(&mut self) {
        self.lose(CUT);
    }

    /// Returns the bytes moved.
    pub(super) fn moved(&self) -> u64 {
        self.moved
    }

    /// Returns whether no more may be lost.
    pub(super) fn is_spent(&self) -> bool {
        self.lost > self.limit()
    }

    /// Returns whether twice as much was lost as is accepted.
    pub(super) fn is_spent_twice(&self) -> bool {
        self.lost > 2 * self.limit()
    }

    /// Accepts further losses, because the conditions have changed.
    pub(super) fn refill(&mut self) {
        if self.moved - self.refilled >= self.refilled.clamp(REFILL[0], REFILL[1]) {
            self.refilled = self.moved;
            self.lost = self.lost.min(self.moved / PER_LOSS);
        }
    }

    fn limit(&self) -> u64 {
        FREE + self.moved / PER_LOSS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_loss_is_bounded_by_the_bytes_moved() {
        let mut budget = Budget::default();
        budget.lose(64 * MIB);
        assert!(!budget.is_spent());
        budget.lose(1);
        assert!(budget.is_spent() && !budget.is_spent_twice());
        budget.add(128);
        assert!(!budget.is_spent());
        budget.lose(64 * MIB + 2);
        assert!(budget.is_spent_twice());
    }

    #[test]
    fn it_is_refilled_after_enough_bytes_only() {
        let mut budget = Budget::default();
        let mut lose_and_refill = |moved| {
            budget.add(moved);
            budget.lose(1 << 40);
            budget.refill();
            !budget.is_spent()
        };
        assert!(!lose_and_refill(511 * MIB));
        assert!(lose_and_refill(MIB));
        assert!(!lose_and_refill(511 * MIB));
        assert!(lose_and_refill(MIB));
        assert!(!lose_and_refill(1023 * MIB));
        assert!(lose_and_refill(MIB));
    }
}
