//! The controller of [`Aim::Background`](crate::Aim::Background): a rate that leaves
//! processors and disks to other work.
//!
//! It lowers the rate while other work takes all of a resource that the transfer also
//! uses, first by a quarter and then by half, and raises the rate while there is idle
//! time. Near the rate that was last too fast, it raises the rate slowly. The caller
//! passes the time and the observations.

use std::time::Duration;

use super::load::{Change, Load};

/// The time between two observations. Idle time is counted in steps of 10 ms.
const WINDOW: Duration = Duration::from_millis(200);
/// The rate at the beginning, in bytes a second.
const FIRST: u64 = 32 << 20;
/// The lowest rate.
const FLOOR: u64 = 64 << 10;
/// One part in this number is negligible: of a processor's time, or of the traffic of a
/// disk.
const LITTLE: u32 = 20;
/// A transfer that uses at most one part in this number of a processor does not disturb
/// other work.
const UNNOTICED: u32 = 50;
/// A disk that is busy for at least this part of the time, in percent, counts as saturated.
const BUSY: u128 = 80;

/// A rate, and the window in which it is observed.
#[derive(Debug)]
pub(in crate::transfer) struct Background {
    rate: u64,
    /// The rate that was last too fast. `None`: no rate was too fast yet.
    too_fast: Option<u64>,
    /// The rate was too fast in the last window.
    is_slowing: bool,
    since: Option<(Duration, Load)>,
    /// Bytes taken from the source in this window.
    taken: u64,
    /// Processor time of the transfer in this window.
    spent: Duration,
    /// Bytes that were written to the sink and have not reached its disk yet: they are in
    /// the page cache.
    unwritten: u64,
}

impl Default for Background {
    fn default() -> Background {
        Background {
            rate: FIRST,
            too_fast: None,
            is_slowing: false,
            since: None,
            taken: 0,
            spent: Duration::ZERO,
            unwritten: 0,
        }
    }
}

impl Background {
    /// Returns the rate, in bytes a second.
    pub(super) fn rate(&self) -> u64 {
        self.rate
    }

    pub(super) fn took(&mut self, bytes: u64) {
        self.taken += bytes;
    }

    pub(super) fn give_back(&mut self, unused: u64, overdrawn: u64) {
        self.taken = (self.taken + overdrawn).saturating_sub(unused);
    }

    pub(super) fn spent(&mut self, time: Duration) {
        self.spent += time;
    }

    /// Returns whether it is time for an observation.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        let since = self.since.map(|(at, _)| at);
        since.is_none_or(|at| now.saturating_sub(at) >= WINDOW)
    }

    /// Adapts the rate to the load since the last observation.
    pub(super) fn observe(&mut self, now: Duration, load: Option<&Load>) {
        let before = self.since.take();
        self.since = load.map(|load| (now, *load));
        let taken = std::mem::take(&mut self.taken);
        let spent = std::mem::take(&mut self.spent);
        let (Some((at, before)), Some(after)) = (before, load) else {
            return;
        };
        let elapsed = now.saturating_sub(at);
        let change = Change::new(elapsed, before, *after);
        let disturbs = self.disturbs(&change, taken, spent);
        // A long window: the transfer was paused, or waited for its source or its sink.
        if elapsed > 4 * WINDOW || elapsed.is_zero() {
            return;
        }
        let achieved = u128::from(taken) * 1_000_000_000 / elapsed.as_nanos();
        let achieved = u64::try_from(achieved).unwrap_or(u64::MAX);
        match disturbs {
            Disturbs::Yes => {
                let was_slowing = std::mem::replace(&mut self.is_slowing, true);
                let rate = achieved.min(self.rate);
                self.too_fast = Some(rate);
                let lower = if was_slowing { rate / 2 } else { rate / 4 * 3 };
                self.rate = lower.max(FLOOR);
                return;
            }
            Disturbs::Unnoticed => self.rate = achieved.clamp(FLOOR, self.rate.max(FLOOR)),
            // The rate rises until the part of the transfer is `Unnoticed`. If the other work
            // has the processor, the rate is not achieved. It is not lowered then, because it
            // would never rise again.
            Disturbs::Little if achieved < self.rate / 8 * 7 => {}
            Disturbs::Little => self.rate += self.rate / 8,
            // A higher rate would change nothing: the source or the sink is slower.
            Disturbs::No if achieved < self.rate / 10 * 7 => {}
            Disturbs::No => self.raise(),
        }
        self.is_slowing = false;
    }

    fn raise(&mut self) {
        let step = match self.too_fast {
            None => self.rate,
            Some(limit) if self.rate < limit / 2 => self.rate / 2,
            Some(limit) if self.rate < limit / 4 * 5 => self.rate / 16,
            Some(_) => self.rate / 4,
        };
        // This is more than any path moves, and does not overflow the arithmetic of credit.
        self.rate = self.rate.saturating_add(step.max(1)).min(1 << 50);
    }

    fn disturbs(&mut self, change: &Change, taken: u64, spent: Duration) -> Disturbs {
        let of_processors = of_processors(change, spent);
        let of_disks = self.of_disks(change, taken);
        of_processors.max(of_disks)
    }

    fn of_disks(&mut self, change: &Change, taken: u64) -> Disturbs {
        let mut worst = Disturbs::No;
        let one = change.is_one_disk();
        for side in [0, 1] {
            let Some((read, written, busy)) = change.disk(side) else {
                continue;
            };
            let mut own = 0;
            if side == 0 {
                own += read.min(taken);
            }
            if side == 1 || one {
                // Bytes that were written earlier reach the disk later.
                self.unwritten = self.unwritten.saturating_add(taken);
                let own_written = written.min(self.unwritten);
                self.unwritten -= own_written;
                own += own_written;
            }
            let all = read + written;
            let others = all - own;
            let is_busy = busy.as_nanos() * 100 >= change.elapsed.as_nanos() * BUSY;
            let disturbs = if !is_busy || others <= all / u64::from(LITTLE) {
                Disturbs::No
            } else if own <= all / u64::from(LITTLE) / 2 {
                Disturbs::Little
            } else if own <= all / u64::from(LITTLE) {
                Disturbs::Unnoticed
            } else {
                Disturbs::Yes
            };
            worst = worst.max(disturbs);
        }
        worst
    }
}

/// Whether a transfer takes a resource from other work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Disturbs {
    /// There is idle time, or no other work.
    No,
    /// Other work uses all of the resource, and the part of the transfer is at most half of
    /// what is negligible.
    Little,
    /// Other work uses all of the resource, but the part of the transfer is negligible.
    Unnoticed,
    /// Other work uses all of the resource, and the part of the transfer matters.
    Yes,
}

fn of_processors(change: &Change, spent: Duration) -> Disturbs {
    let Some((idle, others)) = change.processors(spent) else {
        return Disturbs::No;
    };
    let little = change.elapsed / LITTLE;
    if idle >= little || others <= little {
        Disturbs::No
    } else if spent <= change.elapsed / UNNOTICED / 2 {
        Disturbs::Little
    } else if spent <= change.elapsed / UNNOTICED {
        Disturbs::Unnoticed
    } else {
        Disturbs::Yes
    }
}
