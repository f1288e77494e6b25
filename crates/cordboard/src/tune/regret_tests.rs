//! The time that a simulated transfer loses to measuring, and to settings that are not the best one.

use super::Goal;
use super::simulation::{
    ARMS, GIB, Peer, Seeded, bursts, changing, noisy, rates, run, shared_for_a_while,
    slow_for_a_while, steady,
};

type Kind = fn(&mut Seeded) -> Peer;

/// Runs each seed; returns the mean regret, and the greatest number of moves.
fn many(peer: Kind, range: (u64, u64), runs: u64) -> (f64, u32) {
    let (mut regret, mut moves) = (0.0, 0);
    for number in 0..runs {
        let mut seed = Seeded(number);
        let peer = peer(&mut seed);
        let ran = run(&ARMS, &peer, &mut seed, Goal::Rate, range);
        regret += ran.regret();
        moves = moves.max(ran.moves);
    }
    (regret / runs as f64, moves)
}

/// Runs each kind in 8 GiB, and asserts its bound, in percent. Returns the mean of all.
fn mean_of<const KINDS: usize>(kinds: [(&str, Kind, f64); KINDS], runs: u64) -> f64 {
    let found = std::thread::scope(|scope| {
        kinds
            .map(|(_, kind, _)| scope.spawn(move || many(kind, (0, 8 * GIB), runs)))
            .map(|running| running.join().unwrap())
    });
    for ((name, _, bound), (regret, moves)) in kinds.into_iter().zip(found) {
        let percent = 100.0 * regret;
        assert!(percent < bound, "{name}: {percent:.2}: {found:?}");
        // Three searches, if everything changes twice.
        assert!(moves <= 20, "{name}: {moves}");
    }
    found.iter().map(|(regret, _)| 100.0 * regret).sum::<f64>() / KINDS as f64
}

/// 10,000 transfers of 8 GiB in which the conditions change. Of those whose best setting changes for
/// good, each needs two searches: their own mean is above 5 %.
#[test]
fn the_regret_is_small_if_the_best_setting_changes() {
    let mean = mean_of(
        [
            ("another best setting", changing, 7.0),
            ("bursts", |seed| bursts(changing(seed), seed), 6.0),
            ("a slow peer for a while", slow_for_a_while, 3.0),
            ("a second transfer for a while", shared_for_a_while, 6.0),
        ],
        2500,
    );
    assert!(mean < 5.0, "{mean:.2}");
}

#[test]
fn the_regret_is_small_if_nothing_changes() {
    mean_of(
        [
            ("steady rates", |seed| steady(rates(seed)), 3.0),
            ("rates that vary", noisy, 4.5),
            ("bursts", |seed| bursts(steady(rates(seed)), seed), 3.5),
        ],
        500,
    );
}

/// After the first 512 MiB less time is lost.
#[test]
fn the_regret_is_smaller_later() {
    let (regret, _) = many(|seed| steady(rates(seed)), (GIB / 2, 8 * GIB), 500);
    assert!(regret < 0.02, "{regret:.4}");
}
