//! The order of the needs that a rate has refused.
//!
//! A path that moves whole blocks may need more bytes than a piece of the rate. Transfers that
//! share the rate would take each piece before the credit suffices for a block. So the needs
//! wait in a queue while one of them is longer than a piece. The first one is granted once the
//! credit suffices for it. All others get at most half of the credit until then.

use std::time::Duration;

/// A transfer that requests a grant this much later than it was told waits for another event,
/// or has ended.
const LATE: Duration = Duration::from_millis(100);

/// A need, in credit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask {
    /// The least credit that is of use.
    pub(super) least: i128,
    /// The credit of a piece of the rate.
    pub(super) piece: i128,
}

impl Ask {
    /// Returns the need if it is longer than a piece.
    fn long(self) -> Option<i128> {
        (self.least > self.piece).then_some(self.least)
    }
}

/// Needs that wait. Transfers are not told apart: there is one entry for all needs of the same
/// length, and one for all that are no longer than a piece.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The oldest is the first. It stays empty while no need is longer than a piece.
    waiting: Vec<Entry>,
    /// The part of the credit that is saved for the first one.
    saved: i128,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// `None`: a piece.
    long: Option<i128>,
    /// The time of the last refusal.
    refused: Duration,
    /// The credit that was missing then.
    missing: i128,
}

impl Queue {
    /// Drops entries whose transfers request nothing any more. `piece`: as in [`Ask`].
    pub(super) fn expire(&mut self, rate: u128, piece: i128, now: Duration) {
        let first = self.waiting.first().map(|entry| entry.long);
        self.waiting.retain(|entry| {
            let is_long = entry.long.is_none_or(|long| long > piece);
            is_long && now <= entry.due(rate).saturating_add(LATE)
        });
        if self.waiting.first().map(|entry| entry.long) != first {
            self.saved = 0;
        }
    }

    /// Returns the need of the first entry, or 0.
    pub(super) fn first(&self, piece: i128) -> i128 {
        (self.waiting.first()).map_or(0, |entry| entry.long.unwrap_or(piece))
    }

    /// Returns the need of the first entry, if it is that of others.
    fn before(&self, ask: Ask) -> Option<i128> {
        let first = self.waiting.first()?;
        (first.long != ask.long()).then_some(first.long.unwrap_or(ask.piece))
    }

    /// Returns the credit with which a need is granted.
    pub(super) fn required(&self, ask: Ask) -> i128 {
        match self.before(ask) {
            Some(first) => (ask.least * 2 + self.saved).min(ask.least + first),
            None => ask.least,
        }
    }

    /// Returns the part of the credit that a need may take.
    pub(super) fn available(&self, ask: Ask, credit: i128) -> i128 {
        match self.before(ask) {
            Some(first) => ((credit - self.saved) / 2).max(credit - first),
            None => credit,
        }
    }

    /// Records that a need was refused, because this much credit is missing.
    pub(super) fn refused(&mut self, ask: Ask, missing: i128, now: Duration) {
        let entry = Entry {
            long: ask.long(),
            refused: now,
            missing,
        };
        let same = |its: &&mut Entry| its.long == entry.long;
        let is_needed = entry.long.is_some() || !self.waiting.is_empty();
        match self.waiting.iter_mut().find(same) {
            Some(its) => *its = entry,
            None if is_needed => self.waiting.push(entry),
            None => {}
        }
    }

    /// Records that a need was granted this much credit.
    pub(super) fn granted(&mut self, ask: Ask, credit: i128) {
        self.saved = match self.before(ask) {
            Some(first) => (self.saved + credit).min(first),
            None => 0,
        };
        self.waiting.retain(|entry| entry.long != ask.long());
    }
}

impl Entry {
    /// Returns the time at which the missing credit is there.
    fn due(&self, rate: u128) -> Duration {
        let nanos = self.missing.max(0).unsigned_abs().div_ceil(rate.max(1));
        let time = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.refused.saturating_add(time)
    }
}
