//! Random sizes, policies and readers, from a seed.

use std::os::fd::OwnedFd;
use std::thread::JoinHandle;
use std::time::Duration;

use cordboard::fan_out::SinkEnded;
use cordboard::{Ended, OnSlow};

use super::readers::{audit, fan, pipes};
use crate::common::{From, MIB, SOURCES, Source, pattern, watchdog};

/// Reads in pieces of random sizes. Returns the bytes, and whether it has stopped
/// before the end.
fn reader(fd: OwnedFd, seed: u64) -> JoinHandle<(Vec<u8>, bool)> {
    std::thread::spawn(move || {
        let mut random = fastrand::Rng::with_seed(seed);
        let stops = random.u8(..5) == 0;
        let (mut got, mut piece) = (Vec::new(), vec![0; 300_000]);
        loop {
            let length = random.usize(1..piece.len());
            match rustix::io::read(&fd, &mut piece[..length]).unwrap() {
                0 => return (got, false),
                n => got.extend_from_slice(&piece[..n]),
            }
            if random.u8(..4) == 0 {
                std::thread::yield_now();
            }
            if stops && random.u8(..10) == 0 {
                return (got, true);
            }
        }
    })
}

fn round(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let data = pattern(random.usize(0..6 * MIB));
    let kind: From = SOURCES[random.usize(..SOURCES.len())];
    let source = Source::new(kind, &data);
    let count = random.usize(2..6);
    let (readers, mut writers) = pipes(count);
    let mut ends = Vec::new();
    for (index, fd) in readers.into_iter().enumerate() {
        let fd = match random.bool() {
            true => fd,
            // A socket, which has a private pipe in front of it.
            false => {
                let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
                writers[index] = OwnedFd::from(a);
                OwnedFd::from(b)
            }
        };
        ends.push(reader(fd, random.u64(..)));
    }
    let mut running = fan(&source.fd, &writers).patience(Duration::from_millis(1));
    let policies: Vec<OnSlow> = (0..count)
        .map(|_| OnSlow::ALL[random.usize(..OnSlow::ALL.len())])
        .collect();
    for (index, policy) in policies.iter().enumerate() {
        running = running.sink_on_slow(index, *policy);
    }
    let outcome = running.run().unwrap();
    drop(writers);
    let (read, ended) = (outcome.read, outcome.ended);
    let failed = outcome.failed_sink;
    let sinks = audit(outcome);
    for (index, ((sink, back), end)) in sinks.into_iter().zip(ends).enumerate() {
        let what = format!("seed {seed}, sink {index}, {:?}: {sink:?}", policies[index]);
        let (got, stopped) = end.join().unwrap();
        assert!(
            stopped || got.len() as u64 == sink.written,
            "{what}: {}",
            got.len()
        );
        assert!(got.len() as u64 <= sink.written, "{what}");
        if sink.dropped == 0 {
            assert!(got == data[..got.len()], "{what}");
            let written = sink.written as usize;
            assert!(back == data[written..sink.read as usize], "{what}");
        }
        if sink.ended == SinkEnded::Complete {
            assert_eq!(sink.read, read, "{what}");
        }
        assert!(
            sink.dropped == 0 || policies[index] == OnSlow::Drop,
            "{what}"
        );
        assert!(
            sink.ended != SinkEnded::Detached || policies[index] == OnSlow::Detach,
            "{what}"
        );
    }
    match ended {
        Ended::Eof => assert_eq!(read, data.len() as u64, "seed {seed}"),
        _ => assert!(failed.is_some(), "seed {seed}: {ended:?}"),
    }
}

#[test]
fn random_readers_and_policies() {
    let _dog = watchdog("random_readers_and_policies");
    let seed = std::env::var("CORDBOARD_RANDOM_SEED").ok();
    match seed.and_then(|seed| seed.parse().ok()) {
        Some(seed) => round(seed),
        None => (0..30).for_each(round),
    }
}
