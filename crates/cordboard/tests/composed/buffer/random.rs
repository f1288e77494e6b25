//! Random sizes, feeders, readers, pauses and cancellations, from a seed.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

use cordboard::buffer::Place;
use cordboard::{Control, Ended};

use super::runs::{audit, buffered};
use crate::common::{MIB, SOURCES, Source, content_of, pattern, watchdog};

/// Reads in pieces of random sizes, and perhaps stops. Returns the bytes, and whether
/// it has stopped.
fn reader(fd: OwnedFd, seed: u64) -> (Vec<u8>, bool) {
    let mut random = fastrand::Rng::with_seed(seed);
    let stops = random.u8(..5) == 0;
    let (mut got, mut piece) = (Vec::new(), vec![0; 300_000]);
    loop {
        let most = if random.bool() { 100 } else { piece.len() };
        let length = random.usize(1..most);
        match rustix::io::read(&fd, &mut piece[..length]).unwrap() {
            0 => return (got, false),
            n => got.extend_from_slice(&piece[..n]),
        }
        if random.u8(..4) == 0 {
            std::thread::yield_now();
        }
        if stops && random.u8(..50) == 0 {
            return (got, true);
        }
    }
}

fn round(seed: u64, directory: &std::path::Path) {
    let mut random = fastrand::Rng::with_seed(seed);
    let data = pattern(random.usize(0..4 * MIB));
    let kind = SOURCES[random.usize(..SOURCES.len())];
    let source = Source::new(kind, &data);
    let (end, sink): (OwnedFd, OwnedFd) = match random.bool() {
        true => {
            let (reader, writer) = std::io::pipe().unwrap();
            (reader.into(), writer.into())
        }
        false => {
            let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
            (a.into(), b.into())
        }
    };
    let most = if random.bool() { 50_000 } else { 6 << 20 };
    let size = random.u64(4000..most);
    let place = match random.bool() {
        true => Place::Memory,
        false => Place::Directory(directory.to_path_buf()),
    };
    let control = Control::new().unwrap();
    let cancels = random.u8(..3) == 0;
    let what = format!(
        "seed {seed}: {} bytes of {kind:?}, {size}, {place:?}",
        data.len()
    );
    let (mut outcome, (got, stopped)) = std::thread::scope(|scope| {
        let reader = scope.spawn(move || reader(end, seed + 2));
        let steers = scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(seed + 1);
            for _ in 0..random.u8(..4) {
                (0..random.u32(..2000)).for_each(|_| std::thread::yield_now());
                control.pause();
                (0..random.u32(..2000)).for_each(|_| std::thread::yield_now());
                control.resume();
            }
            if cancels {
                control.cancel();
            }
        });
        let running = buffered(&source.fd, &sink, size).control(&control);
        let outcome = running.place(place).run().unwrap();
        steers.join().unwrap();
        drop(sink);
        (outcome, reader.join().unwrap())
    });
    let back = audit(&mut outcome);
    let (written, read) = (outcome.written as usize, outcome.read as usize);
    assert!(stopped || got.len() == written, "{what}: {outcome:?}");
    assert!(got == data[..got.len()], "{what}");
    assert!(back == data[written..read], "{what}");
    match outcome.ended {
        Ended::Eof => assert_eq!(read, data.len(), "{what}"),
        Ended::Cancelled => assert!(cancels, "{what}"),
        _ => assert!(stopped, "{what}: {outcome:?}"),
    }
    assert!(source.rest() == data[read..], "{what}");
}

#[test]
fn random_readers_and_sizes() {
    let _dog = watchdog("random_readers_and_sizes");
    let directory = tempfile::tempdir().unwrap();
    let seed = std::env::var("CORDBOARD_RANDOM_SEED").ok();
    match seed.and_then(|seed| seed.parse().ok()) {
        Some(seed) => round(seed, directory.path()),
        None => (0..20).for_each(|seed| round(seed, directory.path())),
    }
}

#[test]
fn a_source_that_gives_single_bytes_and_a_sink_that_takes_them() {
    let _dog = watchdog("a_source_that_gives_single_bytes_and_a_sink_that_takes_them");
    let data = pattern(5000);
    let (source, feed) = std::io::pipe().unwrap();
    let (reader, sink) = std::io::pipe().unwrap();
    let got = std::thread::spawn(move || content_of(reader));
    let mut outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut feed = File::from(OwnedFd::from(feed));
            data.iter()
                .for_each(|byte| feed.write_all(&[*byte]).unwrap());
        });
        buffered(&source, &sink, 1 << 20).run().unwrap()
    });
    drop(sink);
    assert_eq!(outcome.ended, Ended::Eof);
    assert!(got.join().unwrap() == data);
    audit(&mut outcome);
}
