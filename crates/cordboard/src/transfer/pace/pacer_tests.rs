//! Schedules with an injected clock: never more than they permit, and no less than the
//! wakeups allow.

use std::sync::PoisonError;
use std::time::Duration;

use proptest::prelude::*;

use super::auto::{SHARES_OF_TESTS, Step};
use super::need::Need;
use super::pacer::{Pacers, Returned};
use crate::request::{Aim, Schedule};

pub(super) const MS: Duration = Duration::from_millis(1);

pub(super) fn any() -> Need {
    Need {
        most: u64::MAX,
        unit: 1,
        block: 4096,
        in_flight: 0,
        may_sleep: false,
    }
}

fn of(schedule: Schedule) -> Pacers {
    let mut pacers = Pacers::default();
    pacers.set(schedule);
    pacers
}

/// Returns bytes of the last grant.
pub(super) fn give_back(pacers: &mut Pacers, unused: u64, overdrawn: u64) {
    pacers.give_back(Returned {
        unused,
        overdrawn,
        changes: pacers.changes(),
    });
}

pub(super) fn blocks(count: u32, rest: u64) -> Schedule {
    Schedule::blocks(count, Duration::from_millis(rest))
}

/// Takes everything that is granted for this long. Each wakeup is `late`. `seen` gets
/// the time and the total after each grant.
fn take_all(
    pacers: &mut Pacers,
    now: &mut Duration,
    time: Duration,
    late: Duration,
    mut seen: impl FnMut(Duration, u64),
) -> u64 {
    let (end, mut total) = (*now + time, 0);
    while *now <= end {
        match pacers.grant(*now, any()) {
            Ok(bytes) => {
                total += bytes;
                seen(*now, total);
            }
            Err(wait) => {
                assert!(wait > Duration::ZERO, "it would not sleep");
                *now += wait + late;
            }
        }
    }
    total
}

#[test]
fn a_rate_is_met_within_one_percent_of_a_second() {
    for rate in [64 << 10, 1_000_000, 100_000_000, 1_000_000_000, 1 << 40] {
        for late in [0, 1, 5, 25] {
            let mut pacers = of(Schedule::rate(rate));
            let mut now = Duration::ZERO;
            let mut taken_in_all = 0;
            // The first grant is a piece late.
            for second in 1..=3 {
                let bound = |now: Duration| u128::from(rate) * now.as_nanos() / 1_000_000_000;
                let second = Duration::from_secs(second);
                let left = second.saturating_sub(now);
                taken_in_all += take_all(&mut pacers, &mut now, left, late * MS, |now, total| {
                    assert!(u128::from(taken_in_all + total) <= bound(now));
                });
            }
            let least = u128::from(rate) * 3 * 99 / 100;
            let taken = u128::from(taken_in_all);
            assert!(
                taken >= least,
                "{rate} B/s, {late} ms late: {taken} of {least}"
            );
        }
    }
}

/// A byte a second is one wakeup a second.
#[test]
fn a_slow_rate_wakes_seldom() {
    let mut pacers = of(Schedule::rate(1));
    assert_eq!(
        pacers.grant(Duration::ZERO, any()),
        Err(Duration::from_secs(1))
    );
    assert_eq!(pacers.grant(Duration::from_secs(1), any()), Ok(1));
    let mut pacers = of(Schedule::rate(64 << 10));
    let mut wakeups = 0;
    take_all(
        &mut pacers,
        &mut Duration::ZERO.clone(),
        Duration::from_secs(1),
        Duration::ZERO,
        |_, _| wakeups += 1,
    );
    assert_eq!(wakeups, 100);
}

#[test]
fn an_idle_transfer_hoards_no_credit() {
    let mut pacers = of(Schedule::rate(1_000_000));
    assert!(pacers.grant(Duration::ZERO, any()).is_err());
    assert_eq!(pacers.grant(Duration::from_secs(3600), any()), Ok(40_000));
    let mut pacers = of(blocks(3, 20));
    let now = Duration::from_secs(1);
    assert_eq!(pacers.grant(now, any()), Ok(3 * 4096));
    assert_eq!(pacers.grant(now, any()), Err(20 * MS));
    assert_eq!(pacers.grant(now * 3600, any()), Ok(3 * 4096));
    assert!(pacers.grant(now * 3600, any()).is_err());
}

/// Threads that share a schedule read the clock before they take its lock.
#[test]
fn no_time_is_granted_twice() {
    let mut pacers = of(Schedule::rate(1_000_000));
    assert!(pacers.grant(Duration::ZERO, any()).is_err());
    assert_eq!(pacers.grant(10 * MS, any()), Ok(10_000));
    assert_eq!(pacers.grant(5 * MS, any()), Err(10 * MS));
    assert_eq!(pacers.grant(10 * MS, any()), Err(10 * MS));
    assert_eq!(pacers.grant(20 * MS, any()), Ok(10_000));
}

/// Two shares, of which one has a limit: it does not delay the other one.
#[test]
fn the_limit_of_one_share_is_not_that_of_the_others() {
    let _shares = SHARES_OF_TESTS
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let share = || of(Schedule::Auto(Aim::share(1).unwrap()));
    let (mut limited, mut free) = (share(), share());
    limited.limit(Schedule::rate(1_000_000), 4096);
    let step = Step {
        spent: Duration::ZERO,
        waits: Some(false),
    };
    let need = Need {
        most: 100_000,
        ..any()
    };
    let (mut now, mut taken) = (Duration::ZERO, [0; 2]);
    let mut next = Duration::ZERO;
    while now < Duration::from_secs(1) {
        if now >= next {
            match limited.grant(now, need) {
                Ok(bytes) => {
                    taken[0] += bytes;
                    limited.stepped(now, step);
                }
                Err(wait) => next = now + wait,
            }
        }
        if let Ok(bytes) = free.grant(now, need) {
            taken[1] += bytes;
            free.stepped(now, step);
        }
        now += MS;
    }
    // A megabyte by the limit; 100,000 bytes in each millisecond.
    assert!((900_000..=1_100_000).contains(&taken[0]), "{taken:?}");
    assert!(taken[1] >= 50_000_000, "{taken:?}");
}

#[test]
fn blocks_come_between_rests() {
    let mut pacers = of(blocks(4, 70));
    let mut now = Duration::ZERO;
    let mut bursts = Vec::new();
    take_all(&mut pacers, &mut now, 350 * MS, Duration::ZERO, |now, _| {
        bursts.push(now.as_millis())
    });
    assert_eq!(bursts, [0, 70, 140, 210, 280, 350]);
    // Without a rest there is still one of a millisecond.
    assert!(of(blocks(1, 0)).grant(now, any()).is_ok());
    let mut pacers = of(blocks(1, 0));
    assert!(pacers.grant(now, any()).is_ok());
    assert_eq!(pacers.grant(now, any()), Err(MS));
}

/// A record that is longer than its grant is paid for by a longer wait.
#[test]
fn an_overdrawn_grant_is_waited_for() {
    let mut pacers = of(Schedule::rate(1000));
    let now = Duration::from_secs(1);
    assert_eq!(pacers.grant(now, any()), Err(10 * MS));
    assert_eq!(pacers.grant(now + 10 * MS, any()), Ok(10));
    give_back(&mut pacers, 0, 900);
    assert_eq!(pacers.grant(now + 10 * MS, any()), Err(910 * MS));
    // Unused bytes are granted again.
    assert_eq!(pacers.grant(now + 920 * MS, any()), Ok(10));
    give_back(&mut pacers, 6, 0);
    assert_eq!(pacers.grant(now + 920 * MS, any()), Ok(6));
    give_back(&mut pacers, 0, 90);
    assert_eq!(pacers.grant(now + 920 * MS, any()), Err(100 * MS));
}

/// A datagram that is longer than a burst is paid for by further rests.
#[test]
fn an_overdrawn_burst_is_waited_for() {
    let mut pacers = of(blocks(1, 10));
    let mut now = Duration::from_secs(1);
    assert_eq!(pacers.grant(now, any()), Ok(4096));
    give_back(&mut pacers, 0, 10 * 4096);
    assert_eq!(pacers.grant(now, any()), Err(110 * MS));
    now += 110 * MS;
    assert_eq!(pacers.grant(now, any()), Ok(4096));
    // A part of a burst is left.
    give_back(&mut pacers, 0, 4000);
    assert_eq!(pacers.grant(now, any()), Err(10 * MS));
    now += 10 * MS;
    assert_eq!(pacers.grant(now, any()), Ok(96));
    // Another transfer takes more than its grant in the rest.
    assert_eq!(pacers.grant(now, any()), Err(10 * MS));
    give_back(&mut pacers, 0, 4096);
    now += 10 * MS;
    assert_eq!(pacers.grant(now, any()), Err(10 * MS));
    now += 10 * MS;
    assert_eq!(pacers.grant(now, any()), Ok(4096));
}

/// In an hour, records of any length take no more than the bursts and one record.
#[test]
fn records_take_no_more_than_the_bursts() {
    for record in [500, 4000, 4096, 4097, 100_000, 1_000_000] {
        let mut pacers = of(blocks(1, 100));
        let (mut now, mut total) = (Duration::ZERO, 0);
        while now < Duration::from_secs(3600) {
            match pacers.grant(now, any()) {
                Ok(granted) => {
                    total += record;
                    let unused = granted.saturating_sub(record);
                    give_back(&mut pacers, unused, record.saturating_sub(granted));
                    let bursts = now.as_millis() as u64 / 100 + 1;
                    assert!(total <= bursts * 4096 + record, "{record}: {total}");
                }
                Err(wait) => now += wait,
            }
        }
        assert!(total >= 36_000 * 4000 - record, "{record}: {total}");
    }
}

/// The path declines such a grant: it cannot move less than its unit.
#[test]
fn a_burst_that_is_shorter_than_a_unit_is_granted() {
    let mut pacers = of(blocks(1, 10));
    let need = Need {
        unit: 8192,
        ..any()
    };
    let now = Duration::from_secs(1);
    assert_eq!(pacers.grant(now, need), Ok(4096));
    give_back(&mut pacers, 4096, 0);
    assert_eq!(pacers.grant(now, any()), Ok(4096));
    assert_eq!(pacers.grant(now, any()), Err(10 * MS));
}

#[test]
fn the_end_of_a_transfer_does_not_wait_for_a_whole_piece() {
    let mut pacers = of(Schedule::rate(1_000_000));
    let need = Need { most: 100, ..any() };
    assert_eq!(
        pacers.grant(Duration::ZERO, need),
        Err(Duration::from_micros(100))
    );
    assert_eq!(pacers.grant(Duration::from_micros(100), need), Ok(100));
}

/// A path that moves whole pages only gets at least one.
#[test]
fn a_grant_is_no_smaller_than_the_path_can_use() {
    let need = Need {
        unit: 4096,
        ..any()
    };
    let mut pacers = of(Schedule::rate(1000));
    assert_eq!(
        pacers.grant(Duration::ZERO, need),
        Err(Duration::from_millis(4096))
    );
    assert_eq!(pacers.grant(4096 * MS, need), Ok(4096));
}

/// A unit, or a byte, that takes 40 ms of the rate or longer: what accrues between the time at
/// which it is due and the wakeup is kept.
#[test]
fn a_slow_rate_loses_no_bytes_of_a_late_thread() {
    for (rate, unit) in [(65_536, 4096), (1000, 4096), (10, 1)] {
        let mut pacers = of(Schedule::rate(rate));
        let need = Need { unit, ..any() };
        let (seconds, mut now, mut taken) = (10_000, Duration::ZERO, 0);
        while now < Duration::from_secs(seconds) {
            match pacers.grant(now, need) {
                Ok(granted) => {
                    assert!(granted <= unit + rate / 33, "{granted} of {unit}");
                    let unused = granted % unit;
                    give_back(&mut pacers, unused, 0);
                    taken += granted - unused;
                }
                Err(wait) => now += wait + 25 * MS,
            }
        }
        let least = rate * seconds * 999 / 1000;
        assert!(taken + unit >= least, "{rate} B/s: {taken} of {least}");
    }
}

#[test]
fn a_limit_holds_whatever_the_schedule() {
    for (schedule, bytes) in [
        (Schedule::Unlimited, 100_000),
        (Schedule::rate(1_000_000_000), 100_000),
        (Schedule::rate(10_000), 10_000),
        (blocks(1, 100), 40_960),
        (blocks(1000, 1), 100_000),
    ] {
        let mut pacers = of(schedule);
        pacers.limit(Schedule::rate(300_000), 4096);
        pacers.limit(Schedule::rate(100_000), 4096);
        // A limit is only tightened.
        pacers.limit(Schedule::rate(200_000), 4096);
        pacers.limit(Schedule::Unlimited, 4096);
        assert!(pacers.is_limited());
        let mut now = Duration::ZERO;
        let second = Duration::from_secs(1);
        let taken = take_all(&mut pacers, &mut now, second, Duration::ZERO, |_, _| {});
        assert!(
            (bytes * 9 / 10..=bytes + 4096).contains(&taken),
            "{schedule:?}: {taken}"
        );
    }
    // An automatic schedule is no limit.
    let mut pacers = Pacers::default();
    for aim in [Aim::Throughput, Aim::Background, Aim::share(1).unwrap()] {
        pacers.limit(Schedule::Auto(aim), 4096);
    }
    assert!(!pacers.is_limited());
    // The blocks of a limit have their own length.
    let mut pacers = Pacers::default();
    pacers.limit(blocks(4, 16), 1000);
    pacers.limit(blocks(2, 10), 2000);
    let need = Need {
        block: 1 << 30,
        ..any()
    };
    assert_eq!(pacers.grant(Duration::ZERO, need), Ok(2000));
    assert_eq!(pacers.grant(Duration::ZERO, need), Err(16 * MS));
}

proptest! {
    /// Whatever the transfers take, return and overdraw, and however late they are: at no
    /// moment more than the rate permits, apart from what was overdrawn.
    #[test]
    fn no_more_than_the_rate_at_any_moment(
        rate in 1..2_000_000_000u64,
        turns in prop::collection::vec((0..50_000u64, 0..100_000u64, 0..3000u64), 1..200),
    ) {
        let mut pacers = of(Schedule::rate(rate));
        let (mut now, mut taken, mut overdrawn) = (Duration::ZERO, 0u128, 0u128);
        let _ = pacers.grant(now, any());
        for (micros, used, over) in turns {
            now += Duration::from_micros(micros);
            let Ok(granted) = pacers.grant(now, any()) else { continue };
            let used = used.min(granted);
            let over = if used == granted { over } else { 0 };
            give_back(&mut pacers, granted - used, over);
            taken += u128::from(used) + u128::from(over);
            overdrawn = overdrawn.max(u128::from(over));
            let allowed = u128::from(rate) * now.as_nanos() / 1_000_000_000;
            prop_assert!(taken <= allowed + overdrawn, "{taken} of {allowed} at {now:?}");
        }
    }
}
