//! Shares of simulated transfers, with an injected clock.

use std::num::NonZeroU32;
use std::sync::PoisonError;
use std::time::Duration;

use proptest::prelude::*;
use testkit::child;

use super::SHARES_OF_TESTS;
use super::share::{Sharer, Shares, shares};

const MS: Duration = Duration::from_millis(1);

/// A transfer that takes all granted bytes, in steps of a fixed length. If its source or
/// sink is slower, it waits after each step.
struct Member {
    name: u64,
    weight: u32,
    step: u64,
    /// The time between two steps, if its source or sink is slow.
    every: Option<Duration>,
    next: Duration,
    taken: u64,
}

fn member(shares: &mut Shares, weight: u32, step: u64, every: Option<Duration>) -> Member {
    Member {
        name: shares.join(NonZeroU32::new(weight).unwrap()),
        weight,
        step,
        every,
        next: Duration::ZERO,
        taken: 0,
    }
}

/// All members compete for a resource that moves `speed` bytes a second.
fn compete(shares: &mut Shares, members: &mut [Member], speed: u64, from: Duration, to: Duration) {
    let mut now = from;
    for one in members.iter_mut() {
        one.next = one.next.max(from);
    }
    while now < to {
        let one = members.iter_mut().min_by_key(|one| one.next).unwrap();
        now = now.max(one.next);
        match shares.grant(one.name, now, u64::MAX, 1) {
            Ok(granted) => {
                let bytes = granted.min(one.step);
                shares.give_back(one.name, granted - bytes, 0);
                one.taken += bytes;
                now += Duration::from_nanos(bytes * 1_000_000_000 / speed);
                shares.stepped(one.name, now, Duration::ZERO, one.every.is_some());
                one.next = now + one.every.unwrap_or_default();
            }
            Err(wait) => {
                assert!(wait > Duration::ZERO);
                one.next = now + wait;
            }
        }
    }
}

#[test]
fn the_rate_is_divided_by_the_weights() {
    let mut shares = Shares::default();
    let mut members: Vec<Member> = [(1, 128 << 10), (2, 64 << 10), (5, 1 << 20)]
        .into_iter()
        .map(|(weight, step)| member(&mut shares, weight, step, None))
        .collect();
    compete(
        &mut shares,
        &mut members,
        1 << 30,
        Duration::ZERO,
        2000 * MS,
    );
    let all: u64 = members.iter().map(|one| one.taken).sum();
    assert!(all > (2 << 30) * 9 / 10, "{all} bytes in 2 s");
    for one in &members {
        let share = one.taken as f64 / all as f64;
        let expected = f64::from(one.weight) / 8.0;
        assert!(
            (share / expected - 1.0).abs() < 0.02,
            "{share} of {expected}"
        );
    }
}

/// Returns the shares after a second in which one transfer was alone.
fn alone_for_a_second() -> (Shares, Vec<Member>) {
    let mut shares = Shares::default();
    let mut members = vec![member(&mut shares, 1, 128 << 10, None)];
    compete(
        &mut shares,
        &mut members,
        1 << 30,
        Duration::ZERO,
        1000 * MS,
    );
    (shares, members)
}

/// The first step of a new transfer falls into a wait of the one that has moved bytes before.
#[test]
fn a_transfer_that_waits_meanwhile_keeps_its_share_beside_a_new_one() {
    let (mut shares, mut members) = alone_for_a_second();
    shares.stepped(members[0].name, 1000 * MS, Duration::ZERO, true);
    members.insert(0, member(&mut shares, 1, 128 << 10, None));
    let before = members[1].taken;
    compete(&mut shares, &mut members, 1 << 30, 1000 * MS, 2000 * MS);
    let (new, old) = (members[0].taken, members[1].taken - before);
    let ratio = new as f64 / old as f64;
    assert!((0.95..1.05).contains(&ratio), "{new} and {old}");
}

/// Runs a transfer beside this one for a second. It takes almost the whole rate, whatever the
/// other one does. Returns the bytes of the other one.
fn taken_beside_a_fast_one(weight: u32, most: u64, waits: Duration) -> u64 {
    let mut shares = Shares::default();
    let mut members = vec![
        member(&mut shares, weight, most, Some(waits)),
        member(&mut shares, 1, 128 << 10, None),
    ];
    compete(
        &mut shares,
        &mut members,
        1 << 30,
        Duration::ZERO,
        1000 * MS,
    );
    assert!(
        members[1].taken > (1 << 30) * 9 / 10,
        "{}",
        members[1].taken
    );
    members[0].taken
}

#[test]
fn a_transfer_with_a_slow_end_delays_no_other() {
    taken_beside_a_fast_one(100, 4096, 7 * MS);
}

/// It is woken again and again, and finds its source empty.
#[test]
fn a_transfer_that_returns_each_grant_delays_no_other() {
    assert_eq!(taken_beside_a_fast_one(1, 0, 5 * MS), 0);
}

/// Returns the bytes of a transfer in a second, in which another one takes steps of this length.
/// `spent`: the processor time of each step, by its number. Then both run for a second without such
/// steps, and get the same.
fn taken_beside_long_steps(
    may_sleep: bool,
    length: Duration,
    spent: impl Fn(u32) -> Duration,
) -> u64 {
    let mut shares = Shares::default();
    let long = member(&mut shares, 1, 128 << 10, None);
    shares.set_may_sleep(long.name, may_sleep);
    let mut members = vec![member(&mut shares, 1, 128 << 10, None)];
    let mut now = Duration::ZERO;
    let mut taken = 0;
    for step in 0.. {
        if now >= 1000 * MS {
            break;
        }
        let granted = shares.grant(long.name, now, 4096, 1).unwrap();
        compete(&mut shares, &mut members, 1 << 30, now, now + length);
        now += length;
        shares.give_back(long.name, granted - 1, 0);
        shares.stepped(long.name, now, spent(step), false);
        taken = members[0].taken;
    }
    members.push(long);
    compete(&mut shares, &mut members, 1 << 30, now, now + 1000 * MS);
    let (one, other) = (members[0].taken - taken, members[1].taken);
    let ratio = one as f64 / other as f64;
    assert!((0.95..1.05).contains(&ratio), "{one} and {other}");
    taken
}

/// Its source is a socket, and its calls sleep. A step on a file may use the same disk.
#[test]
fn a_transfer_that_sleeps_in_its_calls_delays_no_other() {
    for length in [30 * MS, 50 * MS, 900 * MS] {
        let beside_sleep = taken_beside_long_steps(true, length, |_| MS);
        assert!(beside_sleep > (1 << 30) * 9 / 10, "{beside_sleep}");
    }
    let beside_work = taken_beside_long_steps(false, 50 * MS, |_| MS);
    assert!(beside_work < 10 << 20, "{beside_work}");
}

/// Its stage needs 50 ms for each step. The first two of them could be sleep.
#[test]
fn a_transfer_that_works_in_long_steps_keeps_its_share() {
    let beside_work = taken_beside_long_steps(true, 50 * MS, |_| 50 * MS);
    assert!(beside_work < 128 << 20, "{beside_work}");
    // It works and sleeps in turn.
    let beside_both = taken_beside_long_steps(true, 50 * MS, |step| step % 2 * 50 * MS);
    assert!(beside_both > (1 << 30) * 7 / 10, "{beside_both}");
}

/// Not even after a step during which the others have stopped to wait for it.
#[test]
fn a_transfer_saves_no_credit_in_a_long_step() {
    taken_beside_long_steps(false, 5000 * MS, |_| MS);
}

#[test]
fn a_later_transfer_gets_its_share_and_no_more() {
    let (mut shares, mut members) = alone_for_a_second();
    members.push(member(&mut shares, 1, 128 << 10, None));
    let before = members[0].taken;
    compete(&mut shares, &mut members, 1 << 30, 1000 * MS, 2000 * MS);
    let (one, other) = (members[0].taken - before, members[1].taken);
    let ratio = one as f64 / other as f64;
    assert!((0.95..1.05).contains(&ratio), "{one} and {other}");
    // After one transfer has ended, the other one gets everything.
    let gone = members.remove(0);
    shares.leave(gone.name);
    let before = members[0].taken;
    compete(&mut shares, &mut members, 1 << 30, 2000 * MS, 3000 * MS);
    assert!(members[0].taken - before > (1 << 30) * 9 / 10);
}

proptest! {
    /// At each moment at least one active transfer is granted bytes, and the throughput is
    /// divided by the weights.
    #[test]
    fn nothing_is_stuck(weights in prop::collection::vec((1..1000u32, 1..2_000_000u64), 1..6)) {
        let mut shares = Shares::default();
        let mut members: Vec<Member> = weights
            .iter()
            .map(|(weight, step)| member(&mut shares, *weight, (*step).max(4096), None))
            .collect();
        compete(&mut shares, &mut members, 1 << 30, Duration::ZERO, 3000 * MS);
        let all: u64 = members.iter().map(|one| one.taken).sum();
        prop_assert!(all > 1 << 30, "{all} bytes");
        let weight: u32 = members.iter().map(|one| one.weight).sum();
        for one in &members {
            let expected = u128::from(all) * u128::from(one.weight) / u128::from(weight);
            // A quantum and a step.
            let slack = u128::from(one.weight) * (256 << 10) + u128::from(one.step);
            prop_assert!(u128::from(one.taken) <= expected + expected / 10 + slack);
        }
    }
}

/// A path that moves whole blocks could not use less, and would ask again at once.
#[test]
fn a_grant_is_no_shorter_than_a_unit() {
    const UNIT: u64 = 4096;
    let mut shares = Shares::default();
    let ahead = shares.join(NonZeroU32::new(1).unwrap());
    let slow = shares.join(NonZeroU32::new(1).unwrap());
    let mut now = MS;
    let first = shares.grant(slow, now, 1000, 1).unwrap();
    assert_eq!(first, 1000);
    while let Ok(granted) = shares.grant(ahead, now, 5000, UNIT) {
        assert!(granted >= UNIT, "{granted}");
        now += Duration::from_micros(1);
    }
    // Less than a unit is left of it.
    shares.stepped(ahead, now, Duration::ZERO, false);
    assert!(shares.grant(ahead, now, 5000, UNIT).is_err());
    // The rest of a file may be shorter, and a unit longer than all that is ever granted.
    assert_eq!(shares.grant(ahead, now, 10, UNIT), Ok(10));
    let other = shares.join(NonZeroU32::new(1).unwrap());
    assert!(shares.grant(other, now, u64::MAX, 1 << 40).is_ok());
}

/// Another thread holds the lock at the moment of the fork.
#[test]
fn a_child_has_shares_of_its_own() {
    let _shares = SHARES_OF_TESTS
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let _parents = Sharer::new(NonZeroU32::MIN);
    let take = || shares().lock();
    child::while_held(take, || {
        assert!(child::in_a_child(|| {
            child::ends_soon();
            let both = [(); 2].map(|()| Sharer::new(NonZeroU32::MIN));
            let members = || shares().lock().map(|shares| shares.members());
            let during = members();
            drop(both);
            (during, members()) == (Some(2), Some(0))
        }));
    });
}
