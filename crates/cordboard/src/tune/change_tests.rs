//! The controller when a better setting is found, and when the conditions change.

use std::collections::BTreeSet;
use std::time::Duration;

use super::simulation::{ARMS, GIB, MIB, Paths, Peer, Seeded, run, steady};
use super::{Controller, Goal, Sample};

const WITHOUT_BUFFERS: Paths = Paths {
    in_flight: 0,
    ..ARMS
};

/// A setting that is twice as fast is not left for another window of the former best one, unless
/// it also takes more processor time: one window could be lucky.
#[test]
fn a_clearly_better_setting_is_used_at_once() {
    const FAST: usize = 4;
    let is_left = |cost: u64| {
        let mut controller = Controller::new(&WITHOUT_BUFFERS, 2, Goal::Rate);
        let (mut now, mut spent) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..100 {
            let arm = controller.current();
            let is_fast = arm == FAST;
            now += Duration::from_millis(if is_fast { 5 } else { 10 });
            spent += Duration::from_millis(if is_fast { cost } else { 1 });
            controller.learn(&WITHOUT_BUFFERS, now, &mut || spent, 8 * MIB, u64::MAX);
            if is_fast && controller.current() != FAST {
                return controller.best() != FAST;
            }
        }
        panic!("it was not measured");
    };
    assert!(!is_left(1));
    assert!(is_left(2));
}

/// After another transfer has ended, or a peer is as fast as before, only one setting is measured
/// again.
#[test]
fn conditions_that_return_need_no_search() {
    // Returns the number of settings that are measured after the second change, if all times are
    // then multiplied by this.
    let measured_with = |factor: u64| {
        let mut controller = Controller::new(&WITHOUT_BUFFERS, 2, Goal::Rate);
        let (mut now, mut measured) = (Duration::ZERO, BTreeSet::new());
        for (calls, factor) in [(1000, 1), (1000, 3), (60, factor)] {
            measured.clear();
            for _ in 0..calls {
                let arm = controller.current();
                if arm != controller.best() {
                    measured.insert(arm);
                }
                now += Duration::from_millis((10 + arm.abs_diff(7) as u64) * factor);
                controller.learn(
                    &WITHOUT_BUFFERS,
                    now,
                    &mut || Duration::ZERO,
                    8 * MIB,
                    u64::MAX,
                );
            }
            assert_eq!(controller.best(), 7);
        }
        measured.len()
    };
    assert_eq!(measured_with(1), 1);
    let searched = measured_with(2);
    assert!(searched > 5, "{searched}");
}

/// Rates as they were measured between a cached file and a TCP connection, on a machine where
/// read/write is twice as fast as the first path, whose calls all have about the same rate. They vary
/// by more than its calls differ.
#[test]
fn a_faster_path_is_found_before_other_calls_of_the_same_path() {
    const RUNS: u64 = 60;
    let rates = [
        1280, 1140, 1370, 1320, 1550, 1230, 1460, 1370, 1470, 1330, 1580, 1530, 1950, 2860, 2240,
    ];
    let costs = [
        807, 891, 723, 765, 629, 828, 692, 734, 692, 744, 612, 680, 521, 362, 460,
    ];
    let mut regret = 0.0;
    for number in 0..RUNS {
        let mut peer = steady(rates.map(|rate| rate * MIB).to_vec());
        peer.spans[0].costs = costs.map(|cost| cost * 1000).to_vec();
        let peer = Peer {
            noise: 30,
            drift: 20,
            ..peer
        };
        let arms = Paths { start: 4, ..ARMS };
        let mut seed = Seeded(number);
        regret += run(&arms, &peer, &mut seed, Goal::Rate, (0, 8 * GIB)).regret();
    }
    let regret = regret / RUNS as f64;
    assert!(regret < 0.09, "{regret:.3}");
}

/// A setting that is suspected to be faster is measured at once, also by a transfer that is too short
/// to measure others. It stays if it is faster.
#[test]
fn a_suspected_setting_is_measured_first() {
    const SUSPECTED: usize = 4;
    // Returns whether the setting is used after each step of 4 MiB, if it takes these milliseconds.
    let uses = |millis: u64| {
        let mut controller = Controller::new(&WITHOUT_BUFFERS, 2, Goal::Rate);
        let (mut now, mut spent) = (Duration::from_millis(60), Duration::from_millis(60));
        let first = Sample::of(6 * MIB, Duration::from_millis(60), spent);
        controller.suspect(&WITHOUT_BUFFERS, SUSPECTED, first);
        let mut used = Vec::new();
        for step in 0..8 {
            used.push(controller.current() == SUSPECTED);
            let step_of_4 = match controller.current() {
                SUSPECTED => millis,
                _ => 40,
            };
            now += Duration::from_millis(step_of_4);
            spent += Duration::from_millis(step_of_4);
            let left = (8 - step) * 4 * MIB;
            controller.learn(&WITHOUT_BUFFERS, now, &mut || spent, 4 * MIB, left);
        }
        (used, controller.has_measured())
    };
    assert_eq!(uses(20), (vec![true; 8], true));
    // The first step begins the window, the second one ends it.
    let mut twice = vec![false; 8];
    twice[..2].fill(true);
    assert_eq!(uses(40), (twice.clone(), true));
    assert_eq!(uses(60), (twice, true));
}
