//! The number of waits for a rate, with an injected clock: at most about 100 a second, however
//! few bytes each step moves.

use std::time::Duration;

use super::credit::PIECE;
use super::pacer::Pacers;
use super::pacer_tests::{MS, any, give_back};
use crate::request::Schedule;

/// The time of a test, in seconds.
const SECONDS: u32 = 3;
/// A wait lasts at least 15/16 of a piece.
const MOST_WAITS: u32 = 107 * SECONDS;

/// A transfer whose steps use at most `each` bytes, and return the rest of their grants.
struct Stepping {
    each: u64,
    /// The time of a step.
    takes: Duration,
    next: Duration,
    /// What the present step returns at its end.
    unused: u64,
    moved: u64,
    waits: u32,
}

impl Stepping {
    fn new(each: u64, takes: Duration) -> Stepping {
        Stepping {
            each,
            takes,
            next: Duration::ZERO,
            unused: 0,
            moved: 0,
            waits: 0,
        }
    }
}

/// Takes steps of all transfers, which share the rate. Each wakeup is `late`. At no moment they
/// have more than the rate permits, and at the end 99 % of it.
fn run(rate: u64, all: &mut [Stepping], late: Duration) {
    let mut pacers = Pacers::default();
    pacers.set(Schedule::rate(rate));
    loop {
        let moved: u64 = all.iter().map(|one| one.moved).sum();
        let one = all.iter_mut().min_by_key(|one| one.next).unwrap();
        let now = one.next;
        if now > Duration::from_secs(SECONDS.into()) {
            let least = rate * u64::from(SECONDS) * 99 / 100;
            return assert!(moved >= least, "{moved} of {least}");
        }
        give_back(&mut pacers, std::mem::take(&mut one.unused), 0);
        match pacers.grant(now, any()) {
            Ok(granted) => {
                let used = granted.min(one.each);
                let permitted = u128::from(rate) * now.as_nanos() / 1_000_000_000;
                assert!(u128::from(moved + used) <= permitted, "at {now:?}");
                one.moved += used;
                one.unused = granted - used;
                one.next = now + one.takes;
            }
            Err(wait) => {
                assert!(wait > Duration::ZERO, "it would not sleep");
                one.waits += 1;
                one.next = now + wait + late;
            }
        }
    }
}

#[test]
fn a_rate_costs_a_hundred_waits_a_second_however_short_the_steps() {
    for rate in [64 << 10, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000] {
        for each in [100, 4096, 64 << 10, 128 << 10, 256 << 10, 1 << 20, 2 << 20] {
            // A step of few bytes takes a microsecond, others run at 5 GB/s.
            let takes = Duration::from_nanos(each / 5).max(Duration::from_micros(1));
            // These are slower than the rate.
            if u128::from(rate) * takes.as_nanos() >= u128::from(each) * 1_000_000_000 {
                continue;
            }
            for late in [Duration::ZERO, Duration::from_micros(60), MS] {
                let mut one = Stepping::new(each, takes);
                run(rate, std::slice::from_mut(&mut one), late);
                let waits = one.waits;
                assert!(
                    waits <= MOST_WAITS,
                    "{rate} B/s by {each}, {late:?} late: {waits}"
                );
            }
        }
    }
}

/// Bytes that a step returns are granted at once, and a rest of a piece is not lost.
#[test]
fn a_step_that_returns_bytes_waits_for_no_other_piece() {
    let mut pacers = Pacers::default();
    pacers.set(Schedule::rate(100_000_000));
    assert_eq!(pacers.grant(Duration::ZERO, any()), Err(PIECE));
    for left in [1_000_000, 700_000, 400_000, 100_000] {
        assert_eq!(pacers.grant(PIECE, any()), Ok(left));
        give_back(&mut pacers, left.saturating_sub(300_000), 0);
    }
    assert_eq!(pacers.grant(PIECE, any()), Err(PIECE));
    assert_eq!(pacers.grant(2 * PIECE, any()), Ok(1_000_000));
    // Less than a sixteenth counts towards the next piece.
    give_back(&mut pacers, 60_000, 0);
    let wait = Duration::from_micros(9_400);
    assert_eq!(pacers.grant(2 * PIECE, any()), Err(wait));
    assert_eq!(pacers.grant(2 * PIECE + wait, any()), Ok(1_000_000));
}

/// A refusal of one transfer does not let the other one wait that returns bytes of its grant.
#[test]
fn transfers_that_share_a_rate_wait_no_more_often() {
    for rate in [1_000_000, 100_000_000, 1_000_000_000] {
        for each in [4096, 128 << 10] {
            let takes = Duration::from_nanos(each / 4).max(Duration::from_micros(1));
            let mut all = [(); 3].map(|()| Stepping::new(each, takes));
            run(rate, &mut all, Duration::from_micros(60));
            for one in &all {
                assert!(
                    one.waits <= 2 * MOST_WAITS,
                    "{rate} by {each}: {}",
                    one.waits
                );
            }
        }
    }
}
