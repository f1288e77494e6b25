//! The controller when a better setting is found, and when the conditions change.

use std::collections::BTreeSet;
use std::time::Duration;

use super::simulation::{ARMS, MIB, Paths};
use super::{Controller, Goal};

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
