//! What rates and blocks may grant, and the arithmetic of rates.

use std::time::Duration;

use super::need::Need;

/// Nanoseconds in a second.
pub(super) const SECOND: u128 = 1_000_000_000;
/// Bytes of a rate are granted in pieces that take this long: a hundredth of a second,
/// so that the rate is exact to 1 % over a second. Each costs a wakeup, however many steps
/// move it.
pub(super) const PIECE: Duration = Duration::from_millis(10);
/// The remainder of a piece is granted without a wait if it is at least this part of one. A step of
/// fewer bytes is not worth its calls.
const LEAST_REMAINDER: u64 = 16;
/// A thread may wake this much later than a grant is due without a loss of rate. A longer stall is
/// not made up for: the bytes of a piece and of this time may be granted at once.
const LATE: Duration = Duration::from_millis(30);

/// What rates and blocks may grant. One of both changes, and the other one is kept for a change
/// of the schedule. No time counts for both: a grant of a rate begins a new rest, and a grant of
/// a burst takes all credit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    /// The moment of `credit`.
    pub(super) at: Duration,
    /// Of rates. Negative after a record that was longer than its grant.
    pub(super) credit: i128,
    /// The part of the credit that is left of a piece: a grant, or a step, has not used it.
    pub(super) remainder: i128,
    pub(super) burst: Burst,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Burst {
    /// Bytes of the burst that are left. Negative as above.
    Left(i128),
    /// The burst is used up, and the rest has begun. `debt`: 0, or the negative number of
    /// bytes that were taken beyond earlier bursts.
    Rest { since: Duration, debt: i128 },
}

impl Counts {
    /// Nothing was granted before this moment.
    pub(super) fn new(now: Duration) -> Counts {
        Counts {
            at: now,
            credit: 0,
            remainder: 0,
            burst: Burst::Rest {
                since: now,
                debt: 0,
            },
        }
    }

    /// Adds the bytes of this rate up to now.
    pub(super) fn accrue(&mut self, rate: u128, now: Duration) {
        // Threads that share the schedule read the clock before they lock it.
        let now = now.max(self.at);
        let passed = (now - self.at).as_nanos();
        self.credit = (self.credit).saturating_add_unsigned(rate.saturating_mul(passed));
        self.at = now;
    }

    /// Of blocks to a rate: what was taken beyond the bursts is a debt of the rate.
    pub(super) fn begin_rate(&mut self, rate: u128, now: Duration) {
        self.at = now.max(self.at);
        let (ahead, bytes) = match self.burst {
            Burst::Left(left) => (Duration::ZERO, left.min(0)),
            Burst::Rest { since, debt } => (since.saturating_sub(self.at), debt),
        };
        let ahead = i128::try_from(rate.saturating_mul(ahead.as_nanos())).unwrap_or(i128::MAX);
        let debt = bytes.saturating_mul(SECOND as i128).saturating_sub(ahead);
        if debt < 0 {
            self.credit = debt;
        }
    }

    /// Of a rate to blocks: the rest begins once a debt of the rate is paid.
    pub(super) fn end_rate(&mut self, rate: u128) {
        let debt = self.credit.min(0).unsigned_abs().div_ceil(rate.max(1));
        if let (1.., Burst::Rest { since, .. }) = (debt, &mut self.burst) {
            let time = Duration::from_nanos(u64::try_from(debt).unwrap_or(u64::MAX));
            *since = (*since).max(self.at.saturating_add(time));
        }
    }
}

/// Returns the number of bytes that a rate grants at once.
pub(super) fn piece(rate: u128, need: Need) -> u64 {
    shortest_piece(rate).max(need.unit).min(need.most).max(1)
}

/// Returns the least number of bytes that a rate grants of the remainder of a piece.
pub(super) fn least_remainder(rate: u128, need: Need) -> u64 {
    let remainder = shortest_piece(rate).div_ceil(LEAST_REMAINDER);
    remainder.max(need.unit).min(need.most).max(1)
}

/// Returns the number of bytes of a rate for a path that can divide them.
pub(super) fn shortest_piece(rate: u128) -> u64 {
    let piece = u64::try_from(bytes_in(rate, PIECE)).unwrap_or(u64::MAX);
    piece.max(1)
}

pub(super) fn credit_of(bytes: u64) -> i128 {
    i128::from(bytes) * SECOND as i128
}

/// Returns the highest credit of a rate for a transfer that needs this much at once.
pub(super) fn most_credit(rate: u128, needed: i128) -> i128 {
    let of = |time: Duration| {
        let credit = rate.saturating_mul(time.as_nanos());
        i128::try_from(credit).unwrap_or(i128::MAX)
    };
    needed.saturating_add(of(LATE)).max(of(PIECE + LATE))
}

pub(super) fn bytes_in(rate: u128, time: Duration) -> u128 {
    rate.saturating_mul(time.as_nanos()) / SECOND
}
