//! Random rounds of an engine: transfers of every kind at once, beside others that
//! are blocked, connections that are reset, and children that close everything. The
//! program is on its own so that it can run for as long as `testkit::rounds` allows.

#[path = "../common/mod.rs"]
mod common;
mod forks;
mod moves;
mod obstacles;
mod relays;
mod steering;

use std::sync::Arc;

use cordboard::Engine;
use cordboard::engine::{Backend, Options};
use fastrand::Rng;
use moves::Move;
use obstacles::Obstacle;
use relays::Relay;

/// The number of new rounds of an ordinary run.
const FRESH: u32 = 40;

fn round(rng: &mut Rng) {
    let backends = [Backend::Auto, Backend::Auto, Backend::Epoll];
    let options = Options {
        backend: backends[rng.usize(..backends.len())],
        workers: rng.usize(1..6),
    };
    let engine = Arc::new(Engine::new(options).unwrap());
    let mut obstacles: Vec<Obstacle> = Vec::new();
    for _ in 0..rng.usize(0..5) {
        obstacles.push(Obstacle::start(&engine, rng));
    }
    let relay = rng.bool().then(|| Relay::start(&engine, rng));
    let moves: Vec<Move> = (0..rng.usize(1..10))
        .map(|_| Move::start(&engine, rng))
        .collect();
    for _ in 0..rng.usize(0..3) {
        forks::child(rng);
    }
    // All of these end while the obstacles are still blocked.
    for one in moves {
        one.check();
    }
    if let Some(relay) = relay {
        relay.check();
    }
    for obstacle in obstacles {
        obstacle.end(rng);
    }
    engine.shutdown();
}

#[test]
fn transfers_end_whatever_runs_beside_them() {
    if common::alone!() {
        // Initialised before any fork: a child could inherit a partial
        // initialisation.
        testkit::pattern::base();
        testkit::rounds::run(include_str!("seeds.txt"), FRESH, round);
    }
}
