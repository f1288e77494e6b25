//! Grants bytes as a [`Schedule`] permits. Time is passed in.
//!
//! A transfer takes a grant before a step, and returns what the step has not used.
//! Transfers that share a pacer share its schedule. All arithmetic is on integers;
//! the unit of credit is a byte for a nanosecond, so that nothing is rounded off.

use std::time::Duration;

use super::auto::{Auto, Load, Step};
use super::need::Need;
use crate::request::{Aim, Schedule};

/// Nanoseconds in a second.
const SECOND: u128 = 1_000_000_000;
/// Bytes of a rate are granted in pieces that take this long: a hundredth of a second,
/// so that the rate is exact to 1 % over a second. Each costs a wakeup.
const PIECE: Duration = Duration::from_millis(10);
/// The bytes of this time may be granted at once. A thread may wake that late
/// without a loss of rate; a longer stall is not made up for.
const BURST: Duration = Duration::from_millis(40);
/// The shortest rest between two bursts of blocks.
const SHORTEST_REST: Duration = Duration::from_millis(1);

/// A schedule, and any number of schedules that limit it. A grant is the smallest one of
/// all of them.
#[derive(Debug, Default)]
pub(crate) struct Pacers {
    own: Pacer,
    limits: Vec<Pacer>,
}

impl Pacers {
    /// Sets the schedule. It is in effect from the next grant.
    pub(crate) fn set(&mut self, schedule: Schedule) {
        self.own.set(schedule);
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

    /// Adds a limit, whose blocks have this length.
    pub(crate) fn limit(&mut self, schedule: Schedule, block: u64) {
        if schedule == Schedule::Unlimited {
            return;
        }
        for limit in &mut self.limits {
            if let Some(both) = tighter(limit.schedule, schedule) {
                limit.schedule = both;
                limit.block = limit.block.min(Some(block));
                return;
            }
        }
        self.limits.push(Pacer {
            schedule,
            block: Some(block),
            ..Pacer::default()
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

    /// Grants as many bytes as are allowed now, or returns the time until a piece is
    /// allowed. Without a schedule it grants `u64::MAX`.
    pub(crate) fn grant(&mut self, now: Duration, need: Need) -> Result<u64, Duration> {
        let mut all: Vec<&mut Pacer> = std::iter::once(&mut self.own)
            .chain(&mut self.limits)
            .collect();
        let mut granted = u64::MAX;
        for index in 0..all.len() {
            let most = need.most.min(granted);
            let answer = all[index].grant(now, Need { most, ..need });
            let less = answer.map_or(0, |bytes| bytes.min(granted));
            // Bytes that a later pacer has not granted go back to the earlier ones.
            for before in &mut all[..index] {
                before.give_back(granted - less, 0);
            }
            if let (Err(_), 1.., Some(auto)) = (answer, index, &mut all[0].auto) {
                auto.held_back(now);
            }
            answer?;
            granted = less;
        }
        Ok(granted)
    }

    /// Takes back the unused bytes of a step. `overdrawn`: bytes that the step has taken
    /// beyond its grant.
    pub(crate) fn give_back(&mut self, unused: u64, overdrawn: u64) {
        for pacer in std::iter::once(&mut self.own).chain(&mut self.limits) {
            pacer.give_back(unused, overdrawn);
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
    state: State,
    auto: Option<Box<Auto>>,
}

#[derive(Debug, Clone, Copy, Default)]
enum State {
    /// Nothing has been granted under this schedule.
    #[default]
    Fresh,
    /// Of a rate: the credit at a moment. Negative after a record that was longer
    /// than its grant.
    Credit { at: Duration, credit: i128 },
    /// Of blocks: bytes of the burst that are left. Negative as above.
    Burst { left: i128 },
    /// Of blocks: the burst is used up, and the next one may begin at `until`. It has at
    /// most `left` bytes: those taken beyond earlier bursts are subtracted.
    Rest { until: Duration, left: i128 },
}

impl Pacer {
    fn set(&mut self, schedule: Schedule) {
        self.next = Some(schedule);
    }

    /// Changes the schedule. No change grants anything at once: otherwise a sequence of
    /// changes would be faster than any of the schedules.
    fn change(&mut self, schedule: Schedule, now: Duration) {
        if schedule == self.schedule {
            return;
        }
        self.schedule = schedule;
        self.auto = match schedule {
            Schedule::Auto(aim) => Auto::new(aim),
            _ => None,
        };
        self.state = match (schedule, self.state) {
            (_, State::Fresh) => State::Fresh,
            // A background schedule is a rate.
            (Schedule::Rate(_) | Schedule::Auto(Aim::Background), state) => State::Credit {
                at: now,
                credit: match state {
                    State::Credit { credit, .. } => credit.min(0),
                    _ => 0,
                },
            },
            (Schedule::Unlimited | Schedule::Auto(_), _) => State::Fresh,
            // The burst that is left, up to the length of the new one.
            (Schedule::Blocks { .. }, state @ State::Burst { .. }) => state,
            (Schedule::Blocks { .. }, State::Rest { until, left }) => State::Rest {
                until: until.min(now.saturating_add(self.rest())),
                left,
            },
            (Schedule::Blocks { .. }, State::Credit { .. }) => State::Rest {
                until: now.saturating_add(self.rest()),
                left: i128::MAX,
            },
        };
    }

    fn grant(&mut self, now: Duration, need: Need) -> Result<u64, Duration> {
        if let Some(schedule) = self.next.take() {
            self.change(schedule, now);
        }
        match self.schedule {
            Schedule::Unlimited => Ok(u64::MAX),
            Schedule::Auto(_) => self.grant_of_auto(now, need),
            Schedule::Rate(rate) => self.grant_of_rate(u128::from(rate.get()), now, need),
            Schedule::Blocks { count, .. } => {
                let block = self.block.unwrap_or(need.block).max(1);
                let burst = i128::from(count.get()) * i128::from(block);
                self.grant_of_burst(burst, now, need)
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

    fn grant_of_rate(
        &mut self,
        rate: u128,
        mut now: Duration,
        need: Need,
    ) -> Result<u64, Duration> {
        let piece = u64::try_from(bytes_in(rate, PIECE)).unwrap_or(u64::MAX);
        let piece = piece.max(need.unit).min(need.most).max(1);
        let credit = match self.state {
            State::Credit { at, credit } => {
                // Threads that share the schedule read the clock before they lock it.
                now = now.max(at);
                let passed = (now - at).as_nanos();
                credit.saturating_add_unsigned(rate.saturating_mul(passed))
            }
            _ => 0,
        };
        let most = bytes_in(rate, BURST).max(u128::from(piece)) * SECOND;
        let credit = credit.min(i128::try_from(most).unwrap_or(i128::MAX));
        let wanted = i128::from(piece) * SECOND as i128;
        if credit < wanted {
            self.state = State::Credit { at: now, credit };
            let missing = (wanted - credit) as u128;
            let nanos = u64::try_from(missing.div_ceil(rate)).unwrap_or(u64::MAX);
            return Err(Duration::from_nanos(nanos));
        }
        let granted = (credit as u128 / SECOND).min(u128::from(need.most)) as u64;
        self.state = State::Credit {
            at: now,
            credit: credit - i128::from(granted) * SECOND as i128,
        };
        Ok(granted)
    }

    fn grant_of_burst(&mut self, burst: i128, now: Duration, need: Need) -> Result<u64, Duration> {
        let left = match self.state {
            State::Burst { left } => left.min(burst),
            State::Rest { until, .. } if now < until => return Err(until - now),
            State::Rest { left, .. } => left.min(burst),
            _ => burst,
        };
        // A path whose unit is longer than a burst gets the burst, and declines.
        let unit = i128::from(need.unit.min(need.most)).clamp(1, burst);
        // Less than the path can move, unless more comes back from other transfers,
        // counts as used up.
        if left < unit && need.in_flight == 0 {
            // Bytes beyond the burst cost further rests.
            let missing = unit.saturating_sub(left.min(0));
            let rests = u32::try_from((missing + burst - 1) / burst).unwrap_or(u32::MAX);
            let until = now.saturating_add(self.rest().saturating_mul(rests));
            let left = left
                .min(0)
                .saturating_add(burst.saturating_mul(i128::from(rests)));
            self.state = State::Rest { until, left };
            return Err(until - now);
        }
        let granted = left.clamp(0, i128::from(need.most)) as u64;
        self.state = State::Burst {
            left: left - i128::from(granted),
        };
        Ok(granted)
    }

    fn rest(&self) -> Duration {
        match self.schedule {
            Schedule::Blocks { rest, .. } => rest.max(SHORTEST_REST),
            _ => Duration::ZERO,
        }
    }

    fn give_back(&mut self, unused: u64, overdrawn: u64) {
        if let Some(auto) = &mut self.auto {
            auto.give_back(unused, overdrawn);
        }
        let bytes = i128::from(unused) - i128::from(overdrawn);
        match &mut self.state {
            State::Credit { credit, .. } => *credit += bytes * SECOND as i128,
            State::Burst { left } => *left += bytes,
            // The burst was used up by another transfer, and its rest has begun. What is
            // unused is not granted again.
            State::Rest { left, .. } => *left = left.saturating_sub_unsigned(overdrawn.into()),
            State::Fresh => {}
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

fn bytes_in(rate: u128, time: Duration) -> u128 {
    rate.saturating_mul(time.as_nanos()) / SECOND
}
