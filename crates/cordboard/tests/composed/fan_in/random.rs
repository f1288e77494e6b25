//! Random sizes, turns, feeders and readers, from a seed.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use cordboard::fan_in::Turn;
use cordboard::{Control, Ended};

use super::sources::{audit, fan, marked, of, pipe_with};
use crate::common::{content_of, file_with, watchdog};

/// Writes in pieces of random sizes.
fn feed(mut into: File, data: Vec<u8>, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut rest = &data[..];
    while !rest.is_empty() {
        let most = if random.bool() { 10 } else { 100_000 };
        let at = random.usize(1..most).min(rest.len());
        // The fan-in may have ended.
        if into.write_all(&rest[..at]).is_err() {
            return;
        }
        rest = &rest[at..];
    }
}

fn round(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let count = random.usize(1..6);
    let data: Vec<Vec<u8>> = (0..count)
        .map(|n| marked(n, random.usize(..300_000)))
        .collect();
    let (mut sources, mut feeds) = (Vec::<OwnedFd>::new(), Vec::new());
    for data in &data {
        match random.u8(..3) {
            0 => sources.push(file_with(data).into()),
            1 => {
                let (reader, writer) = pipe_with(b"");
                sources.push(reader);
                feeds.push((writer, data.clone(), random.u64(..)));
            }
            _ => {
                let (a, b) = UnixStream::pair().unwrap();
                sources.push(a.into());
                feeds.push((File::from(OwnedFd::from(b)), data.clone(), random.u64(..)));
            }
        }
    }
    let turn = match random.bool() {
        true => Turn::ByTurn {
            bytes: random.u64(..100_000),
        },
        false => Turn::ByRecord { delimiter: 7 },
    };
    let (reader, writer): (OwnedFd, OwnedFd) = match random.bool() {
        true => {
            let (reader, writer) = std::io::pipe().unwrap();
            (reader.into(), writer.into())
        }
        false => {
            let (a, b) = UnixStream::pair().unwrap();
            (a.into(), b.into())
        }
    };
    let control = Control::new().unwrap();
    let (cancels, pauses) = (random.u8(..3) == 0, random.bool());
    let what = format!("seed {seed}, {count} sources, {turn:?}");
    let (outcome, got) = std::thread::scope(|scope| {
        for (into, data, seed) in feeds {
            scope.spawn(move || feed(into, data, seed));
        }
        let reader = scope.spawn(move || content_of(reader));
        let steers = scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(seed + 1);
            for _ in 0..random.u32(..3000) {
                std::thread::yield_now();
            }
            if pauses {
                control.pause();
                (0..random.u32(..3000)).for_each(|_| std::thread::yield_now());
                control.resume();
            }
            if cancels {
                control.cancel();
            }
        });
        let running = fan(&sources, &writer).turn(turn).unwrap();
        let outcome = running.control(&control).run().unwrap();
        steers.join().unwrap();
        drop((sources, writer));
        (outcome, reader.join().unwrap())
    });
    let (ended, written) = (outcome.ended, outcome.written);
    assert!(cancels || ended == Ended::Eof, "{what}: {outcome:?}");
    assert_eq!(got.len() as u64, written, "{what}");
    for (n, (source, back)) in audit(outcome).into_iter().enumerate() {
        let its = of(n, &got);
        assert_eq!(its.len() as u64, source.written, "{what}");
        assert!(
            [its, back].concat() == data[n][..source.read as usize],
            "{what}, source {n}"
        );
        if ended == Ended::Eof {
            assert_eq!(source.written, data[n].len() as u64, "{what}");
        }
    }
}

#[test]
fn random_sources_turns_and_readers() {
    let _dog = watchdog("random_sources_turns_and_readers");
    let seed = std::env::var("CORDBOARD_RANDOM_SEED").ok();
    match seed.and_then(|seed| seed.parse().ok()) {
        Some(seed) => round(seed),
        None => (0..30).for_each(round),
    }
}
