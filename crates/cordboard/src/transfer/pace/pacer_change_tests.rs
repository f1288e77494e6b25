//! Changes of the schedule with an injected clock: none is a way around the schedules, and none
//! stops the transfer.

use std::sync::PoisonError;
use std::time::Duration;

use proptest::prelude::*;

use super::auto::{SHARES_OF_TESTS, Step};
use super::need::Need;
use super::pacer::{Pacers, Returned};
use super::pacer_tests::{MS, any, blocks, give_back};
use crate::request::{Aim, Schedule};

/// Sets one schedule and the other in turn, every 5 ms for a second. Returns the granted bytes.
fn alternate(schedules: [Schedule; 2], mut seen: impl FnMut(Duration, u64)) -> u64 {
    let mut pacers = Pacers::default();
    let (mut now, mut taken) = (Duration::ZERO, 0);
    for turn in 0..200 {
        pacers.set(schedules[turn % 2]);
        while let Ok(granted) = pacers.grant(now, any()) {
            taken += granted;
        }
        seen(now, taken);
        now += 5 * MS;
    }
    taken
}

/// A client that follows a measurement sets the rate often.
#[test]
fn frequent_changes_of_a_rate_do_not_stop_it() {
    let rates = [10_000_000, 11_000_000].map(Schedule::rate);
    let taken = alternate(rates, |now, taken| {
        assert!(u128::from(taken) <= 11 * now.as_micros(), "{taken}");
    });
    assert!(taken >= 9_000_000, "{taken}");
    // The faster one has no piece within its 5 ms.
    let rates = [1_000_000, 100_000_000].map(Schedule::rate);
    let taken = alternate(rates, |_, _| {});
    assert!(taken >= 1_000_000, "{taken}");
}

#[test]
fn frequent_changes_between_a_rate_and_blocks_do_not_stop_them() {
    // The rest of the blocks passes meanwhile, or enough for a piece of the rate.
    for (rate, rest, least) in [(10, 20, 100_000), (1_000_000, 1000, 400_000)] {
        let taken = alternate([Schedule::rate(rate), blocks(1, rest)], |_, _| {});
        assert!(taken >= least, "{rate}, {rest} ms: {taken}");
    }
}

/// The short rest of one schedule gives no long burst of another one.
#[test]
fn a_burst_is_as_long_as_those_of_its_own_schedule() {
    let (mut pacers, mut bursts) = (Pacers::default(), 0);
    for turn in 0..1000 {
        for schedule in [blocks(5, 100), blocks(1, 1)] {
            pacers.set(schedule);
            while let Ok(granted) = pacers.grant(turn * MS, any()) {
                bursts += granted / 4096;
            }
        }
    }
    assert!((1000..=1005).contains(&bursts), "{bursts}");
}

/// A transfer returns bytes that were granted before a schedule began. They are no second burst
/// of it.
#[test]
fn bytes_of_an_earlier_grant_do_not_refill_a_burst() {
    for is_limit in [true, false] {
        let mut pacers = Pacers::default();
        pacers.set(Schedule::rate(1_000_000_000));
        assert!(pacers.grant(Duration::ZERO, any()).is_err());
        assert_eq!(pacers.grant(40 * MS, any()), Ok(40_000_000));
        let changes = pacers.changes();
        match is_limit {
            true => pacers.limit(blocks(1, 1000), 4096),
            false => pacers.set(blocks(1, 1000)),
        }
        // From a rate to blocks, a rest comes first.
        let now = 1040 * MS;
        assert_eq!(pacers.grant(now, any()), Ok(4096));
        pacers.give_back(Returned {
            unused: 39_000_000,
            overdrawn: 0,
            changes,
        });
        assert_eq!(pacers.grant(now, any()), Err(1000 * MS), "{is_limit}");
        // Those of its own grants are granted again.
        let now = now + 1000 * MS;
        assert_eq!(pacers.grant(now, any()), Ok(4096));
        give_back(&mut pacers, 96, 0);
        assert_eq!(pacers.grant(now, any()), Ok(96));
    }
}

/// From one rate to another, the credit is kept, and so are bytes that are returned.
#[test]
fn a_faster_rate_takes_back_bytes_of_the_slower_one() {
    let mut pacers = Pacers::default();
    pacers.set(Schedule::rate(100_000));
    assert!(pacers.grant(Duration::ZERO, any()).is_err());
    assert_eq!(pacers.grant(40 * MS, any()), Ok(4000));
    let changes = pacers.changes();
    pacers.set(Schedule::rate(200_000));
    assert_eq!(pacers.grant(40 * MS, any()), Err(10 * MS));
    pacers.give_back(Returned {
        unused: 4000,
        overdrawn: 0,
        changes,
    });
    assert_eq!(pacers.grant(40 * MS, any()), Ok(4000));
}

/// While nothing is limited, no transfer requests a grant. The time until the next schedule counts
/// for none, and the schedule before is not continued.
#[test]
fn a_schedule_begins_anew_after_none() {
    let throughput = Schedule::Auto(Aim::Throughput);
    for none in [Schedule::Unlimited, throughput] {
        let set = |pacers: &mut Pacers, schedule| {
            pacers.set(none);
            assert!(!pacers.is_limited());
            assert_eq!(pacers.schedule(), none);
            pacers.set(schedule);
        };
        let rate = Schedule::rate(1_000_000);
        let mut pacers = Pacers::default();
        pacers.set(rate);
        assert_eq!(pacers.grant(Duration::ZERO, any()), Err(10 * MS));
        assert_eq!(pacers.grant(10 * MS, any()), Ok(10_000));
        let changes = pacers.changes();
        set(&mut pacers, rate);
        assert_eq!(pacers.grant(1000 * MS, any()), Err(10 * MS));
        // A step that began under the first schedule.
        pacers.give_back(Returned {
            unused: 10_000,
            overdrawn: 0,
            changes,
        });
        assert_eq!(pacers.grant(1000 * MS, any()), Err(10 * MS));
        set(&mut pacers, Schedule::rate(2_000_000));
        assert_eq!(pacers.grant(2000 * MS, any()), Err(10 * MS));
        // Blocks begin with a burst.
        set(&mut pacers, blocks(3, 1000));
        assert_eq!(pacers.grant(3000 * MS, any()), Ok(3 * 4096));
        assert_eq!(pacers.grant(3000 * MS, any()), Err(1000 * MS));
        set(&mut pacers, blocks(3, 1000));
        assert_eq!(pacers.grant(3010 * MS, any()), Ok(3 * 4096));
    }
}

/// The schedule changes during a step. The others do not wait for its end, nor for the next grant.
#[test]
fn a_transfer_that_leaves_its_share_delays_no_other() {
    let _shares = SHARES_OF_TESTS
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let share = Schedule::Auto(Aim::share(1).unwrap());
    for (schedule, limit) in [
        (Schedule::Unlimited, None),
        (Schedule::Unlimited, Some(Schedule::rate(1))),
        (Schedule::Auto(Aim::Throughput), None),
        (Schedule::Auto(Aim::Background), None),
        (Schedule::rate(1000), None),
        (blocks(1, 1000), None),
    ] {
        let (mut leaving, mut other) = (Pacers::default(), Pacers::default());
        leaving.set(share);
        other.set(share);
        let need = |most| Need { most, ..any() };
        assert_eq!(leaving.grant(Duration::ZERO, need(1)), Ok(1));
        assert_eq!(other.grant(MS, need(100 << 10)), Ok(100 << 10));
        let shared = other.grant(MS, need(1 << 20));
        assert!(shared.is_ok_and(|bytes| bytes < 1 << 20), "{shared:?}");
        assert!(other.grant(MS, need(1 << 20)).is_err());
        if let Some(limit) = limit {
            leaving.limit(limit, 4096);
        }
        leaving.set(schedule);
        assert_eq!(leaving.schedule(), schedule);
        assert_eq!(other.grant(MS, need(1 << 20)), Ok(1 << 20), "{schedule:?}");
        // It shares again, without a grant in between.
        leaving.set(share);
        assert_eq!(leaving.grant(MS, need(1)).is_ok(), limit.is_none());
    }
}

/// Returns the bytes of two shares in a second at 1 GiB/s. The first one has longer steps. `weight`
/// returns its weight, by the number of its grants. The other one has 1.
fn shared(mut weight: impl FnMut(u64) -> u32) -> [u64; 2] {
    let _shares = SHARES_OF_TESTS
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let share = |weight| Schedule::Auto(Aim::share(weight).unwrap());
    let mut pacers = [(); 2].map(|()| Pacers::default());
    let (mut next, mut taken, mut grants) = ([Duration::ZERO; 2], [0; 2], 0);
    pacers[1].set(share(1));
    let mut now = Duration::ZERO;
    while now < 1000 * MS {
        let index = usize::from(next[1] < next[0]);
        now = now.max(next[index]);
        let one = &mut pacers[index];
        if index == 0 {
            one.set(share(weight(grants)));
            grants += 1;
        }
        next[index] = match one.grant(now, any()) {
            Ok(granted) => {
                let bytes = granted.min([1 << 20, 32 << 10][index]);
                give_back(one, granted - bytes, 0);
                taken[index] += bytes;
                now += Duration::from_nanos((bytes * 1_000_000_000) >> 30);
                let step = Step {
                    spent: Duration::ZERO,
                    waits: Some(false),
                };
                one.stepped(now, step);
                now
            }
            Err(wait) => now + wait,
        };
    }
    taken
}

/// A change of the weight forgives nothing that the transfer is ahead.
#[test]
fn a_share_whose_weight_changes_gets_its_part() {
    let part = |taken: [u64; 2]| taken[0] * 100 / (taken[0] + taken[1]);
    let (one, two) = (part(shared(|_| 1)), part(shared(|_| 2)));
    assert!((48..=52).contains(&one), "{one} %");
    assert!((64..=68).contains(&two), "{two} %");
    let both = part(shared(|grant| 1 + (grant % 2) as u32));
    assert!((one..=two).contains(&both), "{both} %");
}

fn schedules() -> impl Strategy<Value = Schedule> {
    prop_oneof![
        (1..2_000_000u64).prop_map(Schedule::rate),
        (1..6u32, 0..100u64).prop_map(|(count, rest)| blocks(count, rest)),
    ]
}

fn schedules_or_none() -> impl Strategy<Value = Schedule> {
    prop_oneof![
        schedules(),
        Just(Schedule::Unlimited),
        Just(Schedule::Auto(Aim::Throughput)),
    ]
}

proptest! {
    /// Changes of the schedule are no way around it: under a limit nothing is faster
    /// than the limit.
    #[test]
    fn no_sequence_of_changes_is_faster_than_the_limit(
        limit in schedules(),
        changes in prop::collection::vec((schedules_or_none(), 0..50_000u64), 1..100),
    ) {
        let mut pacers = Pacers::default();
        pacers.limit(limit, 4096);
        let (mut now, mut taken) = (Duration::ZERO, 0u128);
        for (schedule, micros) in changes {
            pacers.set(schedule);
            now += Duration::from_micros(micros);
            while let Ok(granted) = pacers.grant(now, any()) {
                taken += u128::from(granted);
            }
            let allowed = match limit {
                Schedule::Rate(rate) => u128::from(rate.get()) * now.as_nanos() / 1_000_000_000,
                Schedule::Blocks { count, rest } => {
                    let bursts = now.as_nanos() / rest.max(MS).as_nanos() + 1;
                    u128::from(count.get()) * 4096 * bursts
                }
                Schedule::Unlimited | Schedule::Auto(_) => unreachable!(),
            };
            prop_assert!(taken <= allowed, "{taken} of {allowed} at {now:?}");
        }
    }

    #[test]
    fn no_sequence_of_rates_and_blocks_is_faster_than_the_fastest(
        changes in prop::collection::vec((schedules(), 0..30_000u64, 0..9000u64), 1..100),
    ) {
        let speed = |schedule: &Schedule| match schedule {
            Schedule::Rate(rate) => (u128::from(rate.get()), 0),
            Schedule::Blocks { count, rest } => {
                let burst = u128::from(count.get()) * 4096;
                (burst * 1000 / rest.max(&MS).as_millis() + 1, burst)
            }
            Schedule::Unlimited | Schedule::Auto(_) => unreachable!(),
        };
        let speeds = changes.iter().map(|(schedule, ..)| speed(schedule));
        let fastest = speeds.clone().map(|(speed, _)| speed).max().unwrap();
        let burst = speeds.map(|(_, burst)| burst).max().unwrap();
        let mut pacers = Pacers::default();
        let (mut now, mut taken, mut longest) = (Duration::ZERO, 0, 0);
        for (schedule, micros, over) in changes {
            pacers.set(schedule);
            while let Ok(granted) = pacers.grant(now, any()) {
                taken += u128::from(granted + over);
                give_back(&mut pacers, 0, over);
                longest = longest.max(over);
            }
            let allowed = fastest * now.as_nanos() / 1_000_000_000 + burst + u128::from(longest);
            prop_assert!(taken <= allowed, "{taken} of {allowed} at {now:?}");
            now += Duration::from_micros(micros);
        }
    }

    #[test]
    fn no_sequence_of_rates_is_slower_than_the_slowest(
        changes in prop::collection::vec((10_000..20_000_000u64, 0..30_000u64), 1..100),
    ) {
        let slowest = u128::from(changes.iter().map(|(rate, _)| *rate).min().unwrap());
        let mut pacers = Pacers::default();
        let (mut now, mut taken) = (Duration::ZERO, 0);
        for (rate, micros) in changes {
            pacers.set(Schedule::rate(rate));
            while let Ok(granted) = pacers.grant(now, any()) {
                taken += u128::from(granted);
            }
            // What has no grant yet is at most the credit that is kept.
            let least = slowest * now.saturating_sub(70 * MS).as_nanos() / 1_000_000_000;
            prop_assert!(taken >= least, "{taken} of {least} at {now:?}");
            now += Duration::from_micros(micros);
        }
    }

    /// Several changes within one rest give no burst each.
    #[test]
    fn no_sequence_of_changes_is_faster_than_its_fastest_schedule(
        changes in prop::collection::vec((1..5u32, 10..100u64, 0..5_000u64), 2..100),
    ) {
        let mut pacers = Pacers::default();
        let (mut now, mut taken, mut bursts) = (Duration::ZERO, 0u64, 0u64);
        for (count, rest, micros) in changes {
            now += Duration::from_micros(micros);
            pacers.set(blocks(count, rest));
            while let Ok(granted) = pacers.grant(now, any()) {
                taken += granted;
                bursts += 1;
            }
            let most = now.as_millis() as u64 / 10 + 1;
            prop_assert!(bursts <= most && taken <= most * 4 * 4096, "{bursts} of {most}");
        }
    }
}
