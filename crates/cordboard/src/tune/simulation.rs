//! A simulated transfer: a rate for each setting, which varies and may change.

use std::time::Duration;

use super::{Arm, Arms, Controller, Goal};

pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;

/// A fixed sequence of pseudo-random numbers (SplitMix64).
#[derive(Debug, Clone)]
pub(super) struct Seeded(pub(super) u64);

impl Seeded {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from `low` to `high`.
    pub(super) fn from(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }
}

/// Paths, each with several block sizes.
#[derive(Debug)]
pub(super) struct Paths {
    pub(super) paths: usize,
    pub(super) blocks: usize,
    pub(super) in_flight: u64,
    pub(super) start: Arm,
}

impl Arms for Paths {
    fn len(&self) -> usize {
        self.paths * self.blocks
    }

    fn is_neighbour(&self, from: Arm, to: Arm) -> bool {
        let same_path = from / self.blocks == to / self.blocks;
        let off = (from % self.blocks).abs_diff(to % self.blocks);
        let is_largest = to % self.blocks == self.blocks - 1;
        if same_path {
            off == 1
        } else {
            off == 0 || is_largest
        }
    }

    fn path_index(&self, arm: Arm) -> usize {
        arm / self.blocks
    }

    fn in_flight(&self, _: Arm) -> u64 {
        self.in_flight
    }

    fn least(&self, _: Arm) -> u64 {
        0
    }
}

/// Bytes per second and processor time of each setting, in a span of a transfer.
#[derive(Debug, Clone)]
pub(super) struct Span {
    pub(super) until: u64,
    pub(super) rates: Vec<u64>,
    /// Nanoseconds per mebibyte.
    pub(super) costs: Vec<u64>,
    /// The peer's own rate.
    pub(super) most: u64,
    fastest: Arm,
}

impl Span {
    /// Returns a span with these rates up to byte `until`.
    pub(super) fn new(until: u64, rates: Vec<u64>) -> Span {
        let fastest = (0..rates.len()).max_by_key(|arm| rates[*arm]).unwrap_or(0);
        Span {
            until,
            costs: vec![0; rates.len()],
            rates,
            most: u64::MAX,
            fastest,
        }
    }
}

/// A peer that moves bytes at the rates of its span.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) spans: Vec<Span>,
    /// The greatest deviation of a rate, in percent.
    pub(super) noise: u64,
    /// The greatest deviation, in percent, of the rates of all settings alike, and of the
    /// processor times. It stays for up to half a gibibyte.
    pub(super) drift: u64,
    /// Bytes after which the peer is idle for a while.
    pub(super) burst: Option<u64>,
    /// The greatest number of bytes after a change of the setting in which all rates are a third.
    pub(super) disturbance: u64,
}

/// The result of a run.
#[derive(Debug)]
pub(super) struct Ran {
    /// The time that it took, and the time with the best setting of each moment.
    pub(super) took: f64,
    pub(super) ideal: f64,
    /// The processor time in nanoseconds.
    pub(super) spent: u128,
    /// The number of times that the best setting has changed.
    pub(super) moves: u32,
    pub(super) controller: Controller,
}

impl Ran {
    /// Returns the time lost, divided by the ideal time.
    pub(super) fn regret(&self) -> f64 {
        self.took / self.ideal - 1.0
    }
}

/// The bytes of one step; of one that is to take little time of the test, once all
/// settings were tried.
const CHUNKS: [u64; 2] = [2 * MIB, 8 * MIB];

/// Moves `bytes`; the regret counts from byte `from`.
pub(super) fn run(
    arms: &Paths,
    peer: &Peer,
    seed: &mut Seeded,
    goal: Goal,
    range: (u64, u64),
) -> Ran {
    run_with(
        Controller::new(arms, arms.start, goal),
        arms,
        peer,
        seed,
        range,
    )
}

/// As [`run`], with this controller.
pub(super) fn run_with(
    mut controller: Controller,
    arms: &Paths,
    peer: &Peer,
    seed: &mut Seeded,
    (from, bytes): (u64, u64),
) -> Ran {
    let (mut now, mut spent) = (Duration::ZERO, Duration::ZERO);
    let (mut took, mut ideal, mut moves) = (0.0, 0.0, 0);
    let (mut factor, mut drift, mut price) = (100, 100, 100);
    let (mut at, mut varied, mut drifted, mut rested) = (0, 0, 0, 0);
    let (mut last, mut disturbed) = (controller.current(), 0);
    while at < bytes {
        let chunk = CHUNKS[usize::from(controller.is_settled())];
        let span = peer.spans.iter().find(|span| at < span.until);
        let span = span.expect("a span for each byte");
        if at >= varied {
            // The noise changes more slowly than once per chunk.
            factor = seed.from(100 - peer.noise, 100 + peer.noise);
            price = seed.from(100 - peer.drift, 100 + peer.drift);
            varied = at + 16 * MIB;
        }
        if at >= drifted && peer.drift > 0 {
            drift = seed.from(100 - peer.drift, 100 + peer.drift);
            drifted = at + seed.from(4, 64) * 8 * MIB;
        }
        let rate = |arm: Arm| (span.rates[arm] * factor / 100 * drift / 100).min(span.most);
        let arm = controller.current();
        if peer.disturbance > 0 && std::mem::replace(&mut last, arm) != arm {
            disturbed = at + seed.from(0, peer.disturbance);
        }
        let slowness = if at < disturbed { 3.0 } else { 1.0 };
        let seconds = |arm: Arm| chunk as f64 / rate(arm) as f64;
        let now_takes = seconds(arm) * slowness;
        if at >= from {
            took += now_takes;
            ideal += seconds(span.fastest);
        }
        now += Duration::from_secs_f64(now_takes);
        spent += Duration::from_nanos(span.costs[arm] * price / 100 * (chunk / MIB));
        if peer.burst.is_some_and(|burst| at >= rested + burst) {
            rested = at;
            now += Duration::from_millis(50);
            controller.interrupt(arms);
        }
        let before = controller.best();
        at += chunk;
        let left = bytes.saturating_sub(at);
        controller.learn(arms, now, &mut || spent, chunk, left);
        moves += u32::from(controller.best() != before);
    }
    Ran {
        took,
        ideal,
        spent: spent.as_nanos(),
        moves,
        controller,
    }
}

/// The buffers of a TCP connection are in flight.
pub(super) const ARMS: Paths = Paths {
    paths: 3,
    blocks: 5,
    in_flight: 10 * MIB,
    start: 2,
};

/// Rates with one best setting: a path is slower than the best one by a factor, and so is
/// each step away from the best block.
pub(super) fn rates(seed: &mut Seeded) -> Vec<u64> {
    let most = seed.from(200, 5000) * MIB;
    let mut rates = Vec::new();
    for _ in 0..ARMS.paths {
        let of_path = most * seed.from(40, 100) / 100;
        let best_block = seed.from(0, ARMS.blocks as u64 - 1);
        let step = seed.from(3, 30);
        for block in 0..ARMS.blocks as u64 {
            let steps = block.abs_diff(best_block);
            rates.push((0..steps).fold(of_path, |rate, _| rate * (100 - step) / 100));
        }
    }
    rates
}

pub(super) fn steady(rates: Vec<u64>) -> Peer {
    Peer {
        spans: vec![Span::new(u64::MAX, rates)],
        noise: 0,
        drift: 0,
        burst: None,
        disturbance: 0,
    }
}

pub(super) fn noisy(seed: &mut Seeded) -> Peer {
    Peer {
        noise: seed.from(1, 20),
        ..steady(rates(seed))
    }
}

/// Another setting becomes the best one.
pub(super) fn changing(seed: &mut Seeded) -> Peer {
    let at = seed.from(2 * 1024, 6 * 1024) * MIB;
    Peer {
        spans: vec![Span::new(at, rates(seed)), Span::new(u64::MAX, rates(seed))],
        ..noisy(seed)
    }
}

/// As `peer`, which is idle again and again.
pub(super) fn bursts(peer: Peer, seed: &mut Seeded) -> Peer {
    Peer {
        burst: Some(seed.from(10, 100) * 4 * MIB),
        noise: 5,
        ..peer
    }
}

/// The peer is slow for a while: several settings, or all, have its rate.
pub(super) fn slow_for_a_while(seed: &mut Seeded) -> Peer {
    let usual = rates(seed);
    let mut slow = Span::new(0, usual.clone());
    slow.most = usual[slow.fastest] * seed.from(5, 60) / 100;
    for_a_while(usual, slow, seed)
}

/// A second transfer takes a share of the rates for a while, of each path another one. So another
/// setting may be the best one.
pub(super) fn shared_for_a_while(seed: &mut Seeded) -> Peer {
    let usual = rates(seed);
    let mut shared = usual.clone();
    for of_path in shared.chunks_mut(ARMS.blocks) {
        let share = seed.from(30, 70);
        for rate in of_path {
            *rate = *rate * share / 100;
        }
    }
    for_a_while(usual, Span::new(0, shared), seed)
}

/// The rates are other ones for one to three gibibytes.
fn for_a_while(usual: Vec<u64>, other: Span, seed: &mut Seeded) -> Peer {
    let from = seed.from(1024, 4 * 1024) * MIB;
    let until = from + seed.from(1024, 3 * 1024) * MIB;
    Peer {
        spans: vec![
            Span::new(from, usual.clone()),
            Span { until, ..other },
            Span::new(u64::MAX, usual),
        ],
        ..noisy(seed)
    }
}
