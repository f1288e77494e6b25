//! Grants bytes as a [`Schedule`] permits. Time is passed in.
//!
//! A transfer takes a grant before a step, and returns what the step has not used.
//! Transfers that share a pacer share its schedule. All arithmetic is on integers;
//! the unit of credit is a byte for a nanosecond, so that nothing is rounded off.

use std::time::Duration;

use super::auto::{Auto, Load, Step};
use super::credit::{
    Burst, Counts, SECOND, credit_of, least_remainder, most_credit, piece, shortest_piece,
};
use super::need::Need;
use super::queue::{Ask, Queue};
use crate::request::{Aim, Schedule};

/// The shortest rest between two bursts of blocks.
const SHORTEST_REST: Duration = Duration::from_millis(1);

/// A schedule, and any number of schedules that limit it. A grant is the smallest one of
/// all of them.
#[derive(Debug, Default)]
pub(crate) struct Pacers {
    own: Pacer,
    limits: Vec<Pacer>,
    /// The number of times that a pacer, or a burst of blocks, has begun: its count has nothing to
    /// do with what was granted before.
    changes: u64,
}

/// Bytes that a transfer returns after a step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Returned {
    pub(crate) unused: u64,
    /// Bytes that the step has taken beyond its grant.
    pub(crate) overdrawn: u64,
    /// [`Pacers::changes`] at the grant.
    pub(crate) changes: u64,
}

impl Pacers {
    /// Sets the schedule. It is in effect from the next grant, or at once if nothing is limited
    /// any more: no transfer requests a grant then.
    pub(crate) fn set(&mut self, schedule: Schedule) {
        self.own.set(schedule);
        if !self.is_limited() {
            self.changes += 1;
            self.own = Pacer::new(schedule, self.changes);
        }
    }

    /// Returns the schedule, without the limits.
    pub(crate) fn schedule(&self) -> Schedule {
        self.own.next.unwrap_or(self.own.schedule)
    }

    /// Returns the limits: of the rate, and of blocks.
    pub(crate) fn limits(&self) -> (Schedule, Schedule) {
        let find = |is: fn(&Schedule) -> bool| {
            let mut limits = self.limits.iter().map(|limit| limit.schedule);
            limits.find(is).unwrap_or_default()
        };
        (
            find(|limit| matches!(limit, Schedule::Rate(_))),
            find(|limit| matches!(limit, Schedule::Blocks { .. })),
        )
    }

    /// Adds a limit, whose blocks have this length. Only a rate and blocks are limits.
    pub(crate) fn limit(&mut self, schedule: Schedule, block: u64) {
        match schedule {
            Schedule::Rate(_) | Schedule::Blocks { .. } => {}
            Schedule::Unlimited | Schedule::Auto(_) => return,
        }
        for limit in &mut self.limits {
            if let Some(both) = tighter(limit.schedule, schedule) {
                limit.schedule = both;
                limit.block = limit.block.min(Some(block));
                return;
            }
        }
        self.changes += 1;
        self.limits.push(Pacer {
            block: Some(block),
            ..Pacer::new(schedule, self.changes)
        });
    }

    /// Whether anything is limited.
    pub(crate) fn is_limited(&self) -> bool {
        !matches!(
            self.schedule(),
            Schedule::Unlimited | Schedule::Auto(Aim::Throughput)
        ) || !self.limits.is_empty()
    }

    /// Returns whether the schedule depends on the cost of steps.
    pub(crate) fn is_metered(&self) -> bool {
        matches!(
            self.schedule(),
            Schedule::Auto(Aim::Background | Aim::Share(_))
        )
    }

    /// Returns whether it is time for [`Pacers::observe`].
    pub(crate) fn needs_load(&self, now: Duration) -> bool {
        let auto = self.own.auto.as_ref();
        auto.is_some_and(|auto| auto.needs_load(now))
    }

    /// Adapts an automatic schedule to the load of the machine.
    pub(crate) fn observe(&mut self, now: Duration, load: Option<&Load>) {
        if let Some(auto) = &mut self.own.auto {
            auto.observe(now, load);
        }
    }

    /// Records the end of a step.
    pub(crate) fn stepped(&mut self, now: Duration, step: Step) {
        if let Some(auto) = &mut self.own.auto {
            auto.stepped(now, step);
        }
    }

    /// Returns a number that tells apart grants before and after a pacer, or a burst, has begun.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Grants as many bytes as are allowed now, or returns the time until a piece is
    /// allowed. Without a schedule it grants `u64::MAX`.
    pub(crate) fn grant(&mut self, now: Duration, need: Need) -> Result<u64, Duration> {
        if let Some(schedule) = self.own.next.take()
            && self.own.change(schedule, now, need)
        {
            self.changes += 1;
            self.own.since = self.changes;
            self.own.begin_burst(self.changes);
        }
        let mut all: Vec<&mut Pacer> = std::iter::once(&mut self.own)
            .chain(&mut self.limits)
            .collect();
        let mut granted = u64::MAX;
        for index in 0..all.len() {
            let most = need.most.min(granted);
            let answer = all[index].grant(now, Need { most, ..need }, &mut self.changes);
            let less = answer.map_or(0, |bytes| bytes.min(granted));
            // Bytes that a later pacer has not granted go back to the earlier ones.
            for before in &mut all[..index] {
                before.give_back(Returned {
                    unused: granted - less,
                    overdrawn: 0,
                    changes: self.changes,
                });
            }
            if let (Err(_), 1.., Some(auto)) = (answer, index, &mut all[0].auto) {
                auto.held_back(now);
            }
            answer?;
            granted = less;
        }
        Ok(granted)
    }

    /// Records that a step begins with the bytes of the last grant. It ends with
    /// [`Pacers::give_back`].
    pub(crate) fn begin_step(&mut self) {
        for pacer in std::iter::once(&mut self.own).chain(&mut self.limits) {
            pacer.holders = pacer.holders.saturating_add(1);
        }
    }

    /// Takes back the unused bytes of a step.
    pub(crate) fn give_back(&mut self, returned: Returned) {
        for pacer in std::iter::once(&mut self.own).chain(&mut self.limits) {
            pacer.give_back(returned);
            if pacer.is_of_burst(returned) {
                pacer.holders = pacer.holders.saturating_sub(1);
            }
        }
    }
}

/// The state of one schedule.
#[derive(Debug, Default)]
struct Pacer {
    schedule: Schedule,
    /// The schedule that is in effect from the next grant on.
    next: Option<Schedule>,
    /// The length of its blocks, if it is not that of the request.
    block: Option<u64>,
    /// [`Pacers::changes`] when it began. It has granted nothing before.
    since: u64,
    /// [`Pacers::changes`] when its present burst began.
    burst_since: u64,
    /// The number of steps in progress that may return bytes of the present burst.
    holders: u32,
    /// A request was refused because such a step has all of it: in the burst before, and in the
    /// present one.
    is_contended: [bool; 2],
    /// `None`: nothing was requested under a schedule.
    counts: Option<Counts>,
    /// Requests that its rate has refused.
    queue: Queue,
    auto: Option<Box<Auto>>,
}

impl Pacer {
    fn new(schedule: Schedule, changes: u64) -> Pacer {
        Pacer {
            schedule,
            since: changes,
            burst_since: changes,
            ..Pacer::default()
        }
    }

    /// Begins a burst, to which no earlier grant belongs.
    fn begin_burst(&mut self, changes: u64) {
        (self.burst_since, self.holders) = (changes, 0);
        self.is_contended = [self.is_contended[1], false];
    }

    /// Returns whether these bytes were granted in the present burst.
    fn is_of_burst(&self, returned: Returned) -> bool {
        returned.changes >= self.burst_since
    }

    fn set(&mut self, schedule: Schedule) {
        self.next = Some(schedule);
        // A step may be in progress, at whose end the schedule is another one: the others would
        // wait for its bytes.
        let shares = self.auto.as_ref().is_some_and(|auto| auto.is_share());
        if shares && !matches!(schedule, Schedule::Auto(Aim::Share(_))) {
            (self.schedule, self.auto) = (Schedule::Unlimited, None);
        }
    }

    /// Changes the schedule. No change grants anything at once: otherwise a sequence of
    /// changes would be faster than any of the schedules. None takes away what was counted:
    /// otherwise frequent changes would grant nothing. Returns whether the schedule is of another
    /// kind, so that the pacer begins.
    fn change(&mut self, schedule: Schedule, now: Duration, need: Need) -> bool {
        if schedule == self.schedule {
            return false;
        }
        let had_blocks = matches!(self.schedule, Schedule::Blocks { .. });
        let before = self.rate();
        if let (Some(rate), Some(counts)) = (before, &mut self.counts) {
            counts.accrue(rate, now);
        }
        self.schedule = schedule;
        // Bytes of earlier grants are not returned at the new weight.
        if let Some(auto) = &self.auto
            && auto.set_weight(schedule)
        {
            return true;
        }
        self.auto = match schedule {
            Schedule::Auto(aim) => Auto::new(aim),
            _ => None,
        };
        let rate = self.rate();
        let has_blocks = matches!(schedule, Schedule::Blocks { .. });
        let begins = !(before.is_some() && rate.is_some() || had_blocks && has_blocks);
        let Some(counts) = &mut self.counts else {
            return begins;
        };
        match (before, rate) {
            (Some(before), Some(rate)) => {
                let slower = before.min(rate);
                let waiting = self.queue.first(credit_of(shortest_piece(slower)));
                let needed = waiting.max(credit_of(piece(slower, need)));
                counts.credit = counts.credit.min(most_credit(slower, needed));
            }
            (Some(before), None) => {
                let needed = credit_of(piece(before, need));
                counts.credit = counts.credit.min(most_credit(before, needed));
                counts.end_rate(before);
            }
            (None, Some(rate)) => counts.begin_rate(rate, now),
            (None, None) => {}
        }
        if rate.is_none() && !has_blocks {
            self.counts = None;
        }
        begins
    }

    /// Returns the rate, if the schedule has one.
    fn rate(&self) -> Option<u128> {
        match (self.schedule, &self.auto) {
            (Schedule::Rate(rate), _) => Some(u128::from(rate.get())),
            // A background schedule is a rate.
            (_, Some(auto)) => auto.rate().map(u128::from),
            _ => None,
        }
    }

    /// `changes`: [`Pacers::changes`].
    fn grant(&mut self, now: Duration, need: Need, changes: &mut u64) -> Result<u64, Duration> {
        match self.schedule {
            Schedule::Unlimited => Ok(u64::MAX),
            Schedule::Auto(_) => self.grant_of_auto(now, need),
            Schedule::Rate(rate) => self.grant_of_rate(u128::from(rate.get()), now, need),
            Schedule::Blocks { count, .. } => {
                let block = self.block.unwrap_or(need.block).max(1);
                let burst = i128::from(count.get()) * i128::from(block);
                let granted = self.grant_of_burst(burst, block, now, need);
                if let Ok((_, true)) = granted {
                    *changes += 1;
                    self.begin_burst(*changes);
                }
                granted.map(|(bytes, _)| bytes)
            }
        }
    }

    fn grant_of_auto(&mut self, now: Duration, need: Need) -> Result<u64, Duration> {
        let Some(mut auto) = self.auto.take() else {
            return Ok(u64::MAX);
        };
        let answer = match auto.rate() {
            Some(rate) => self.grant_of_rate(u128::from(rate), now, need),
            None => auto.grant(now, need),
        };
        if let Ok(bytes) = answer {
            auto.granted(bytes);
        }
        self.auto = Some(auto);
        answer
    }

    fn grant_of_rate(&mut self, rate: u128, now: Duration, need: Need) -> Result<u64, Duration> {
        let counts = self.counts.get_or_insert_with(|| Counts::new(now));
        counts.accrue(rate, now);
        let whole = Ask {
            least: credit_of(piece(rate, need)),
            piece: credit_of(shortest_piece(rate)),
        };
        self.queue.expire(rate, whole.piece, now);
        let needed = whole.least.max(self.queue.first(whole.piece));
        counts.credit = counts.credit.min(most_credit(rate, needed));
        let remainder = Ask {
            least: credit_of(least_remainder(rate, need)),
            ..whole
        };
        let has_it = counts.remainder >= remainder.least;
        let ask = match has_it && counts.credit >= self.queue.required(remainder) {
            true => remainder,
            false => whole,
        };
        let missing = self.queue.required(ask) - counts.credit;
        if missing > 0 {
            // Once the bytes in flight have arrived, the transfer may need fewer.
            if need.in_flight == 0 {
                self.queue.refused(ask, missing, now);
            }
            let nanos = missing.unsigned_abs().div_ceil(rate);
            let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
            return Err(Duration::from_nanos(nanos));
        }
        let available = self.queue.available(ask, counts.credit).unsigned_abs();
        let granted = (available / SECOND).min(u128::from(need.most)) as u64;
        self.queue.granted(ask, credit_of(granted));
        counts.credit -= credit_of(granted);
        counts.remainder = counts.credit;
        counts.burst = Counts::new(counts.at).burst;
        Ok(granted)
    }

    /// Returns also whether a burst begins with the grant.
    fn grant_of_burst(
        &mut self,
        burst: i128,
        block: u64,
        now: Duration,
        need: Need,
    ) -> Result<(u64, bool), Duration> {
        let rest = self.rest();
        // A step in progress may return bytes of the burst, which are granted again. It may also
        // last longer than the rest, so the time between two requests doubles.
        let is_held = self.holders > 0;
        let wait = |left: Duration, passed: Duration| match is_held {
            true => left.min(passed.max(SHORTEST_REST)),
            false => left,
        };
        let counts = self.counts.get_or_insert_with(|| Counts {
            burst: Burst::Left(burst),
            ..Counts::new(now)
        });
        // A path whose unit is longer than a burst gets the burst, and declines.
        let unit = i128::from(need.unit.min(need.most)).clamp(1, burst);
        // Bytes beyond the burst cost further rests.
        let rests = |debt: i128| {
            let missing = unit.saturating_sub(debt);
            u32::try_from((missing + burst - 1) / burst).unwrap_or(u32::MAX)
        };
        let (left, begins) = match counts.burst {
            Burst::Left(left) => (left.min(burst), false),
            Burst::Rest { since, debt } => {
                let until = since.saturating_add(rest.saturating_mul(rests(debt)));
                if now < until {
                    return Err(wait(until - now, now.saturating_sub(since)));
                }
                let all = burst.saturating_mul(i128::from(rests(debt)));
                (debt.saturating_add(all).min(burst), true)
            }
        };
        // Less than the path can move, unless more comes back from other transfers,
        // counts as used up.
        if left < unit && need.in_flight == 0 {
            self.is_contended[1] |= is_held;
            let debt = left.min(0);
            counts.burst = Burst::Rest { since: now, debt };
            return Err(wait(rest.saturating_mul(rests(debt)), Duration::ZERO));
        }
        // Otherwise a transfer would take all that is left again, at once after each step.
        // At the end of a rest, several threads request a grant at once.
        let is_contended = self.is_contended[1] || self.is_contended[0] && !begins;
        let part = match is_contended {
            true => left.min((left / 2).max(i128::from(block)).max(unit)),
            false => left,
        };
        let granted = part.clamp(0, i128::from(need.most)) as u64;
        counts.burst = Burst::Left(left - i128::from(granted));
        if granted > 0 {
            (counts.credit, counts.remainder) = (0, 0);
        }
        Ok((granted, begins))
    }

    fn rest(&self) -> Duration {
        match self.schedule {
            Schedule::Blocks { rest, .. } => rest.max(SHORTEST_REST),
            _ => Duration::ZERO,
        }
    }

    fn give_back(&mut self, returned: Returned) {
        let overdrawn = returned.overdrawn;
        // Otherwise a burst would follow one without a rest, in a schedule that begins while
        // another transfer moves the bytes of an earlier grant.
        let is_own = returned.changes >= self.since;
        let unused = if is_own { returned.unused } else { 0 };
        if let Some(auto) = &mut self.auto {
            auto.give_back(unused, overdrawn);
        }
        let has_rate = self.rate().is_some();
        let is_of_burst = self.is_of_burst(returned);
        let Some(counts) = &mut self.counts else {
            return;
        };
        if has_rate {
            let bytes = i128::from(unused) - i128::from(overdrawn);
            counts.credit += bytes * SECOND as i128;
            counts.remainder = (counts.remainder + credit_of(unused)).min(counts.credit);
            return;
        }
        // Blocks that were not taken from an earlier burst are lost: they would come in addition
        // to those of the present one.
        let unused = if is_of_burst { unused } else { 0 };
        let bytes = i128::from(unused) - i128::from(overdrawn);
        match &mut counts.burst {
            Burst::Left(left) => *left += bytes,
            // Another transfer has found nothing left, but the burst is not used up.
            Burst::Rest { debt, .. } if unused > 0 => {
                counts.burst = Burst::Left(debt.saturating_add(bytes));
            }
            Burst::Rest { debt, .. } => *debt = debt.saturating_add(bytes),
        }
    }
}

/// Returns a schedule that no more than either permits, if they are of one kind.
fn tighter(one: Schedule, other: Schedule) -> Option<Schedule> {
    match (one, other) {
        (Schedule::Rate(one), Schedule::Rate(other)) => Some(Schedule::Rate(one.min(other))),
        (
            Schedule::Blocks { count, rest },
            Schedule::Blocks {
                count: other,
                rest: longer,
            },
        ) => Some(Schedule::Blocks {
            count: count.min(other),
            rest: rest.max(longer),
        }),
        _ => None,
    }
}
