//! The controller against simulated transfers.

use std::time::Duration;

use super::arms::Arms;
use super::simulation::{
    ARMS, GIB, MIB, Paths, Peer, Ran, Seeded, noisy, rates, run, run_with, steady,
};
use super::{Controller, Goal};

fn from(number: u64, peer: &Peer) -> Ran {
    run(&ARMS, peer, &mut Seeded(number), Goal::Rate, (0, 8 * GIB))
}

/// If the peer limits the rate, all settings have the same rate, and the best one rarely
/// changes.
#[test]
fn a_slow_peer_moves_nothing() {
    let mut all = 0;
    for number in 0..200 {
        let mut seed = Seeded(number);
        let mut peer = steady(rates(&mut seed));
        (peer.noise, peer.spans[0].most) = (5, 30 * MIB);
        let ran = from(number, &peer);
        all += ran.moves;
        assert!(ran.regret() < 0.02, "{number}: {:.4}", ran.regret());
    }
    assert!(all < 100, "{all}");
}

/// At the same rate, the setting that takes less processor time is used.
#[test]
fn processor_time_decides_at_equal_rates() {
    let cheapest = 7;
    let mut peer = steady(vec![900 * MIB; 15]);
    peer.noise = 2;
    peer.spans[0].costs = (0..15)
        .map(|arm: u64| 100_000 + 40_000 * arm.abs_diff(cheapest))
        .collect();
    let is_cheapest = |number: &u64| from(*number, &peer).controller.best() == cheapest as usize;
    let found = (0..40).filter(is_cheapest).count();
    assert!(found >= 36, "{found} of 40");
}

/// A setting that is little faster at much more processor time is not used. One that is much
/// faster is.
#[test]
fn a_faster_setting_justifies_its_processor_time() {
    let best_of = |gain: u64, cost: u64| {
        let mut peer = steady(vec![900 * MIB; 15]);
        peer.noise = 2;
        peer.spans[0].costs = vec![100_000; 15];
        let other = 5 + 2;
        peer.spans[0].rates[other] = (900 + 9 * gain) * MIB;
        peer.spans[0].costs[other] = 1000 * cost;
        from(1, &peer).controller.best() == other
    };
    assert!(best_of(8, 110), "a gain of 8 % at the same processor time");
    assert!(
        !best_of(8, 160),
        "a gain of 8 % at 1.6 times the processor time"
    );
    assert!(
        best_of(25, 160),
        "a gain of 25 % at 1.6 times the processor time"
    );
    assert!(
        best_of(100, 250),
        "twice the rate at 2.5 times the processor time"
    );
}

/// Between two TCP connections on one machine the rates vary by a quarter from window to
/// window, all settings are about equally fast, and one path copies.
#[test]
fn measuring_uses_little_processor_time() {
    let arms = Paths {
        paths: 2,
        blocks: 5,
        in_flight: 10 * MIB,
        start: 2,
    };
    let (mut spent, mut regret) = (0, 0.0);
    const RUNS: u64 = 200;
    for number in 0..RUNS {
        let mut seed = Seeded(number);
        let mut peer = steady((0..10).map(|_| seed.from(2900, 3100) * MIB).collect());
        peer.spans[0].costs = [[100_000; 5], [200_000; 5]].concat();
        peer.noise = 25;
        let ran = run(&arms, &peer, &mut seed, Goal::Rate, (0, 4 * GIB));
        spent += ran.spent / 4096;
        regret += ran.regret();
    }
    let cost = spent as f64 / (RUNS * 100_000) as f64;
    let regret = regret / RUNS as f64;
    assert!(cost < 1.05 && regret < 0.05, "{cost:.3} {regret:.3}");
}

/// Between two TCP connections on one machine all rates drift together, by half within tenths of
/// a second, and so do the processor times. The first setting is the best one.
#[test]
fn a_drift_of_all_rates_is_not_a_difference() {
    let arms = Paths {
        paths: 2,
        blocks: 5,
        in_flight: 10 * MIB,
        start: 4,
    };
    let rates = [2300, 2400, 2500, 2700, 3000, 1700, 1900, 2200, 2600, 2900];
    let costs = [290, 280, 260, 190, 130, 450, 400, 340, 280, 200];
    let (mut spent, mut regret, mut moves) = (0, 0.0, 0);
    const RUNS: u64 = 200;
    for number in 0..RUNS {
        let mut seed = Seeded(number);
        let mut peer = steady(rates.map(|rate| rate * MIB).to_vec());
        peer.spans[0].costs = costs.map(|cost| cost * 1000).to_vec();
        (peer.noise, peer.drift) = (12, 40);
        let ran = run(&arms, &peer, &mut seed, Goal::Rate, (0, 8 * GIB));
        spent += ran.spent / 8192;
        regret += ran.regret();
        moves += ran.moves;
    }
    let cost = spent as f64 / (RUNS * 130_000) as f64;
    let regret = regret / RUNS as f64;
    assert!(cost < 1.05 && regret < 0.03, "{cost:.3} {regret:.3}");
    assert!(moves < RUNS as u32 / 10, "{moves}");
}

/// A reader that no longer waits for bytes is three times as fast as one that is woken for each
/// block. A change of the setting lets it wait for a while. The first setting is the best one.
#[test]
fn a_disturbed_reader_is_left_alone() {
    const RUNS: u64 = 100;
    let rates = [
        5300, 5500, 5700, 7000, 7300, 5300, 6200, 6200, 5900, 5800, 2100, 3500, 3400, 4700, 3900,
    ];
    let (mut regret, mut moves) = (0.0, 0);
    for number in 0..RUNS {
        let mut seed = Seeded(number);
        let mut peer = steady(rates.map(|rate| rate * MIB).to_vec());
        (peer.noise, peer.drift, peer.disturbance) = (12, 20, 200 * MIB);
        let arms = Paths { start: 4, ..ARMS };
        let ran = run(&arms, &peer, &mut seed, Goal::Rate, (0, 8 * GIB));
        regret += ran.regret();
        moves += ran.moves;
    }
    let regret = regret / RUNS as f64;
    assert!(
        regret < 0.1 && moves < RUNS as u32 / 20,
        "{regret:.3} {moves}"
    );
}

/// A cached file of 8 GiB to a TCP connection, as measured on a machine with two processors: the
/// last block of the second path is the fastest, the others of this path are slower than the
/// first path, and the third path is half as fast.
#[test]
fn a_fast_block_of_another_path_is_found() {
    const FASTEST: usize = 9;
    let arms = Paths { start: 3, ..ARMS };
    let millis = [
        [1323, 1437, 1361, 1410, 1385],
        [1814, 1693, 1516, 1506, 1164],
        [3782, 2436, 2309, 1985, 2378],
    ];
    let costs = [
        [152, 165, 157, 162, 157],
        [208, 195, 174, 173, 134],
        [435, 280, 265, 228, 271],
    ];
    let millis = millis.iter().flatten();
    let mut peer = steady(millis.map(|millis| 8 * GIB * 1000 / millis).collect());
    peer.spans[0].costs = costs.iter().flatten().map(|cost| cost * 1000).collect();
    for (noise, limit) in [(0, 0.03), (12, 0.05)] {
        peer.noise = noise;
        let (mut regret, mut found) = (0.0, 0);
        for number in 0..50 {
            let ran = run(&arms, &peer, &mut Seeded(number), Goal::Rate, (0, 8 * GIB));
            regret += ran.regret() / 50.0;
            found += u32::from(ran.controller.best() == FASTEST);
        }
        assert!(regret < limit, "{noise}: {regret:.3}");
        assert!(found >= 45, "{noise}: {found}");
    }
}

/// A schedule may limit the rate, or a peer stop, while a slow setting is measured.
#[test]
fn no_slow_setting_stays_while_nothing_is_measured() {
    let mut controller = Controller::new(&ARMS, 2, Goal::Rate);
    let mut now = Duration::ZERO;
    for _ in 0..100 {
        if controller.current() != controller.best() {
            break;
        }
        now += Duration::from_millis(10);
        controller.learn(&ARMS, now, &mut || now, 8 * MIB, u64::MAX);
    }
    assert!(!controller.interrupt(&ARMS), "one interruption is a pause");
    assert!(controller.interrupt(&ARMS));
    assert_eq!(controller.current(), controller.best());
    assert!(!controller.interrupt(&ARMS));
}

/// After one disturbed window of another setting, only that setting is measured again. If it
/// stays slow, the conditions have changed, and all are.
#[test]
fn a_disturbed_window_is_measured_again() {
    let arms = Paths {
        in_flight: 0,
        ..ARMS
    };
    let measured_after = |is_once: bool| {
        let mut controller = Controller::new(&arms, 2, Goal::Rate);
        let (mut now, mut windows, mut others) = (Duration::ZERO, 0, Vec::new());
        let mut was_settled = false;
        for _ in 0..10_000 {
            let (current, best) = (controller.current(), controller.best());
            was_settled |= controller.is_settled();
            let is_other = current != best;
            if is_other && was_settled && !others.contains(&current) {
                others.push(current);
            }
            // The first setting that is measured again.
            let is_slow = others.first() == Some(&current) && (!is_once || windows == 0);
            windows += u32::from(is_slow);
            now += Duration::from_millis(match (is_other, is_slow) {
                (false, _) => 10,
                (true, false) => 12,
                (true, true) => 50,
            });
            controller.learn(&arms, now, &mut || Duration::ZERO, 8 * MIB, u64::MAX);
            if !others.is_empty() && controller.is_settled() {
                break;
            }
        }
        others.len()
    };
    assert_eq!(measured_after(true), 1);
    assert!(measured_after(false) > 1);
}

/// Later transfers begin with the best setting once each path was measured. On a busy machine, the
/// search may go on for long.
#[test]
fn a_search_that_goes_on_has_a_result() {
    let arms = Paths {
        in_flight: 0,
        ..ARMS
    };
    let mut controller = Controller::new(&arms, 2, Goal::Rate);
    let mut now = Duration::ZERO;
    let mut result = None;
    for window in 0.. {
        if controller.is_settled() {
            break;
        }
        if controller.has_result(&arms) {
            result.get_or_insert(window);
        }
        // The rates of the best one alternate. Others are slower than both.
        now += Duration::from_millis(match controller.current() == controller.best() {
            true => 10 + 10 * (window % 2),
            false => 25,
        });
        controller.learn(&arms, now, &mut || Duration::ZERO, 8 * MIB, u64::MAX);
    }
    assert!(result.is_some_and(|window| window > 2), "{result:?}");
    assert_eq!(controller.best(), 2);
}

/// If the rates of the best setting alternate, samples of others are discarded. What they cost
/// counts all the same.
#[test]
fn discarded_samples_are_limited() {
    let arms = Paths {
        in_flight: 0,
        ..ARMS
    };
    let mut controller = Controller::new(&arms, 2, Goal::Rate);
    let (mut now, mut others) = (Duration::ZERO, 0);
    for window in 0..4000 {
        let is_other = controller.current() != controller.best();
        others += u32::from(is_other && window >= 1000);
        // The first windows are steady, so that some settings have records.
        now += Duration::from_millis(match (is_other, window) {
            (true, ..1000) => 12,
            (true, _) => 100,
            (false, 1000..) if window % 2 == 0 => 14,
            (false, _) => 9,
        });
        controller.learn(&arms, now, &mut || Duration::ZERO, 8 * MIB, u64::MAX);
    }
    assert!(others < 20, "{others}");
}

/// With the goal of little processor time, a slower setting that takes less of it is used.
#[test]
fn processor_time_decides_first_if_it_is_the_goal() {
    let mut peer = steady((0..15).map(|arm| (900 - 20 * arm) * MIB).collect());
    peer.spans[0].costs = (0..15).map(|arm| 100_000 - 6_000 * arm).collect();
    let run = |goal| {
        let ran = run(&ARMS, &peer, &mut Seeded(1), goal, (0, 8 * GIB));
        ran.controller.best()
    };
    assert!(run(Goal::Time) >= 10);
    assert!(run(Goal::Rate) < 2);
}

/// If one of two settings has the higher rate and the other one uses less processor time, the
/// controller does not alternate between them.
#[test]
fn it_never_oscillates() {
    let mut all = 0;
    for number in 0..200 {
        let mut seed = Seeded(number);
        let mut peer = steady((0..15).map(|_| seed.from(980, 1020) * MIB).collect());
        peer.spans[0].costs = (0..15).map(|_| seed.from(90_000, 110_000)).collect();
        peer.noise = 3;
        let ran = from(number, &peer);
        assert!(ran.moves <= 8, "{number}: {}", ran.moves);
        all += ran.moves;
    }
    assert!(all < 200, "{all}");
}

#[test]
fn a_setting_that_is_refused_is_left() {
    let mut controller = Controller::new(&ARMS, 2, Goal::Rate);
    let mut now = Duration::ZERO;
    let mut refused = None;
    for _ in 0..200 {
        now += Duration::from_millis(10);
        controller.learn(&ARMS, now, &mut || now, 8 * MIB, u64::MAX);
        if refused.is_none() && controller.current() != 2 {
            refused = Some(controller.current());
            controller.refuse_current(&ARMS);
            assert_eq!(controller.current(), 2);
        }
    }
    assert!(refused.is_some());
}

/// The first path can be refused.
struct Refusable {
    is_refused: bool,
}

impl Arms for Refusable {
    fn len(&self) -> usize {
        ARMS.len()
    }

    fn is_neighbour(&self, from: usize, to: usize) -> bool {
        ARMS.is_neighbour(from, to)
    }

    fn is_possible(&self, arm: usize) -> bool {
        !self.is_refused || arm >= ARMS.blocks
    }
}

/// The best path declines after some of its settings, or all, were measured.
#[test]
fn the_best_setting_is_found_after_a_path_was_refused() {
    for windows in [10, 30, 100] {
        let mut arms = Refusable { is_refused: false };
        let mut controller = Controller::new(&arms, 2, Goal::Rate);
        let mut now = Duration::ZERO;
        for window in 0..1500 {
            if window == windows {
                arms.is_refused = true;
                controller.refuse_current(&arms);
            }
            let arm = controller.current();
            assert!(arms.is_possible(arm), "{windows}");
            // Blocks of the first path are the fastest, and of each other path the last one.
            let block = (arm % ARMS.blocks) as u64;
            let millis = match arm / ARMS.blocks {
                0 => 5 + block,
                path => 8 + 4 * path as u64 + 2 * (4 - block),
            };
            now += Duration::from_millis(millis);
            controller.learn(&arms, now, &mut || now, 8 * MIB, u64::MAX);
        }
        assert_eq!(controller.best(), ARMS.blocks + 4, "{windows}");
    }
}

/// A transfer that ends before a measurement could pay stays with its first setting.
#[test]
fn a_short_transfer_measures_no_other_setting() {
    for number in 0..100 {
        let mut seed = Seeded(number);
        let peer = noisy(&mut seed);
        let ran = run(&ARMS, &peer, &mut seed, Goal::Rate, (0, 56 * MIB));
        let first = peer.spans[0].rates[ARMS.start];
        let fastest = *peer.spans[0].rates.iter().max().unwrap();
        let expected = fastest as f64 / first as f64;
        assert!(
            (ran.took / ran.ideal - expected).abs() < 0.01,
            "{number}: {ran:?}"
        );
    }
}

/// Transfers of 256 MiB find together what each alone has no time to find.
#[test]
fn the_next_transfer_continues_the_search() {
    let range = (0, 256 * MIB);
    let (mut continued, mut anew) = (0.0, 0.0);
    for number in 0..100 {
        let mut seed = Seeded(number);
        let peer = noisy(&mut seed);
        let first = Controller::new(&ARMS, ARMS.start, Goal::Rate);
        anew += run_with(first.clone(), &ARMS, &peer, &mut seed, range).regret();
        let mut controller = first;
        for _ in 0..25 {
            let ran = run_with(controller, &ARMS, &peer, &mut seed, range);
            controller = ran.controller.continued(&ARMS);
        }
        continued += run_with(controller, &ARMS, &peer, &mut seed, range).regret();
    }
    let (continued, anew) = (continued / 100.0, anew / 100.0);
    assert!(continued < 0.05, "{continued:.3} after 25 transfers");
    assert!(anew > 0.3, "{anew:.3} without");
}
