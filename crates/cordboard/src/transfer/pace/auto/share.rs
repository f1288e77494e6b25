//! [`Aim::Share`](crate::Aim::Share): divides the throughput among transfers of one process
//! in proportion to their weights.
//!
//! Start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996): each transfer has a
//! virtual time, its bytes divided by its weight. A transfer whose virtual time is more
//! than a quantum ahead of the slowest transfer waits. A transfer that waits for its
//! source or its sink delays no other transfer, and then continues at the virtual time of
//! the slowest one.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::sys::{Lock, PerProcess};
use crate::transfer::pace::Need;

/// The number of bytes, at weight 1, by which a transfer may be ahead.
const QUANTUM: u64 = 256 << 10;
/// The number of bytes that are granted at once if no other transfer is active.
const ALONE: u64 = 4 << 20;
/// A transfer that has not requested a grant for this time after a step is not active.
const FORGOTTEN: Duration = Duration::from_millis(20);
/// A transfer whose step takes longer is not active.
const LONGEST_STEP: Duration = Duration::from_secs(1);
/// The same if the step may wait for its source or its sink inside a system call.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);
/// The time after which a transfer that is ahead requests a grant again.
const RETRY: Duration = Duration::from_millis(1);
/// The number of fraction bits of virtual time.
const SHIFT: u32 = 20;

/// All transfers that share the throughput.
#[derive(Debug, Default)]
pub(super) struct Shares {
    entries: Vec<Entry>,
    next: u64,
    /// The highest virtual time at which bytes were granted.
    newest: u128,
}

#[derive(Debug)]
struct Entry {
    name: u64,
    weight: NonZeroU32,
    virtual_time: u128,
    state: State,
    /// Its steps may wait for its source or its sink inside a system call.
    may_sleep: bool,
    /// The last step has probably done so.
    has_slept: bool,
    /// The number of long steps that have used the processor, since one has slept.
    works: u32,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// The transfer has not begun, or waits for its source or its sink.
    Waiting,
    /// The transfer was granted bytes at this time, and moves them.
    Stepping(Duration),
    /// A grant was refused, or a step has ended, at this time.
    Asking(Duration),
}

impl Shares {
    #[cfg(test)]
    pub(super) fn members(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn join(&mut self, weight: NonZeroU32) -> u64 {
        self.next += 1;
        self.entries.push(Entry {
            name: self.next,
            weight,
            virtual_time: 0,
            state: State::Waiting,
            may_sleep: false,
            has_slept: false,
            works: 0,
        });
        self.next
    }

    /// Changes the weight of further bytes: a transfer that is ahead stays ahead.
    pub(super) fn set_weight(&mut self, name: u64, weight: NonZeroU32) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.name == name) {
            entry.weight = weight;
        }
    }

    /// Sets whether further steps may wait for their source or their sink inside a system call.
    pub(super) fn set_may_sleep(&mut self, name: u64, may_sleep: bool) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.name == name) {
            entry.may_sleep = may_sleep;
            entry.has_slept &= may_sleep;
        }
    }

    pub(super) fn leave(&mut self, name: u64) {
        self.entries.retain(|entry| entry.name != name);
    }

    /// Grants at most `most` bytes, and at least a unit of the path, or returns the time
    /// after which to request them again.
    pub(super) fn grant(
        &mut self,
        name: u64,
        now: Duration,
        most: u64,
        unit: u64,
    ) -> Result<u64, Duration> {
        let last = self.last_but(name, now);
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.name == name) else {
            return Ok(most);
        };
        if !entry.is_active(now) {
            // Those that wait now have no debt to this one: without `newest`, it would be alone
            // until it has moved as many bytes as they have.
            entry.virtual_time = entry.virtual_time.max(last.unwrap_or(self.newest));
        }
        entry.state = State::Stepping(now);
        self.newest = self.newest.max(entry.virtual_time);
        let Some(last) = last else {
            let granted = most.min(ALONE);
            entry.charge(granted);
            return Ok(granted);
        };
        let end = last + (u128::from(QUANTUM) << SHIFT);
        let room = end.saturating_sub(entry.virtual_time) * u128::from(entry.weight.get());
        let room = u64::try_from(room >> SHIFT).unwrap_or(u64::MAX);
        match most.min(room) {
            few if few < unit.min(most).clamp(1, QUANTUM) => {
                entry.state = State::Asking(now);
                Err(RETRY)
            }
            granted => {
                entry.charge(granted);
                Ok(granted)
            }
        }
    }

    /// Records the end of a step. `spent`: its processor time. `waits`: the transfer waits for its
    /// source or its sink.
    pub(super) fn stepped(&mut self, name: u64, now: Duration, spent: Duration, waits: bool) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.name == name) {
            let is_long = entry.exceeds_a_step(now);
            entry.note_sleep(now, spent);
            // Others were not held back by it in the meantime.
            entry.state = match waits || is_long || entry.has_slept {
                true => State::Waiting,
                false => State::Asking(now),
            };
        }
    }

    /// Takes back unused bytes, and charges those taken beyond the grant.
    pub(super) fn give_back(&mut self, name: u64, unused: u64, overdrawn: u64) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.name == name) {
            entry.charge(overdrawn);
            let back = entry.virtual_of(unused);
            entry.virtual_time = entry.virtual_time.saturating_sub(back);
        }
    }

    /// Returns the lowest virtual time of the other active transfers.
    fn last_but(&self, name: u64, now: Duration) -> Option<u128> {
        let others = self.entries.iter().filter(|entry| entry.name != name);
        let active = others.filter(|entry| entry.is_active(now));
        active.map(|entry| entry.virtual_time).min()
    }
}

impl Entry {
    fn is_active(&self, now: Duration) -> bool {
        match self.state {
            State::Waiting => false,
            State::Stepping(_) => !self.has_slept && !self.exceeds_a_step(now),
            State::Asking(at) => now.saturating_sub(at) < FORGOTTEN,
        }
    }

    /// Returns whether its present step takes so long that it probably waits. The processor time
    /// of a step is known only at its end, so those before it decide. After a sleep, two have to:
    /// the steps of a stage may sleep and work in turn.
    fn exceeds_a_step(&self, now: Duration) -> bool {
        let longest = match self.may_sleep && self.works < 2 {
            true => LONGEST_SLEEP,
            false => LONGEST_STEP,
        };
        self.elapsed(now) >= longest
    }

    /// Returns the time since its present step has begun.
    fn elapsed(&self, now: Duration) -> Duration {
        match self.state {
            State::Stepping(since) => now.saturating_sub(since),
            _ => Duration::ZERO,
        }
    }

    /// Records at the end of a step whether it has slept, or has worked for as long.
    fn note_sleep(&mut self, now: Duration, spent: Duration) {
        let elapsed = self.elapsed(now);
        self.has_slept = self.may_sleep && elapsed.saturating_sub(spent) >= LONGEST_SLEEP;
        if self.has_slept {
            self.works = 0;
        } else if self.may_sleep && elapsed >= LONGEST_SLEEP {
            self.works = self.works.saturating_add(1);
        }
    }

    fn virtual_of(&self, bytes: u64) -> u128 {
        (u128::from(bytes) << SHIFT) / u128::from(self.weight.get())
    }

    fn charge(&mut self, bytes: u64) {
        self.virtual_time += self.virtual_of(bytes);
    }
}

/// The shares of this process. A child of `fork(2)` has none of its parent's transfers.
pub(super) fn shares() -> &'static Lock<Shares> {
    static SHARES: PerProcess<Lock<Shares>> = PerProcess::new();
    let Ok(shares) = SHARES.get(|_| Ok::<_, Infallible>(Lock::default()));
    shares
}

/// One member of the shares of a process.
#[derive(Debug)]
pub(in crate::transfer) struct Sharer {
    name: u64,
    /// The shares that it has joined.
    shares: &'static Lock<Shares>,
}

impl Sharer {
    pub(super) fn new(weight: NonZeroU32) -> Sharer {
        let shares = shares();
        let joined = shares.lock().map(|mut shares| shares.join(weight));
        Sharer {
            name: joined.unwrap_or(0),
            shares,
        }
    }

    pub(super) fn set_weight(&self, weight: NonZeroU32) {
        if let Some(mut shares) = self.shares.lock() {
            shares.set_weight(self.name, weight);
        }
    }

    pub(super) fn grant(&self, now: Duration, need: Need) -> Result<u64, Duration> {
        match self.shares.lock() {
            Some(mut shares) => {
                shares.set_may_sleep(self.name, need.may_sleep);
                shares.grant(self.name, now, need.most, need.unit)
            }
            None => Ok(need.most),
        }
    }

    pub(super) fn give_back(&self, unused: u64, overdrawn: u64) {
        if let Some(mut shares) = self.shares.lock() {
            shares.give_back(self.name, unused, overdrawn);
        }
    }

    pub(super) fn stepped(&self, now: Duration, spent: Duration, waits: bool) {
        if let Some(mut shares) = self.shares.lock() {
            shares.stepped(self.name, now, spent, waits);
        }
    }
}

impl Drop for Sharer {
    fn drop(&mut self) {
        if let Some(mut shares) = self.shares.lock() {
            shares.leave(self.name);
        }
    }
}
