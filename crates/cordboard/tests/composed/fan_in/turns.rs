//! Sources take turns, and none delays another.

use std::io::Write;
use std::os::fd::OwnedFd;

use cordboard::fan_in::{SourceEnded, Turn};
use cordboard::{DataPath, Ended, Request, Size};

use super::sources::{audit, fan, marked, of, pipe_with, request};
use crate::common::{MIB, content_of, file_with, position, watchdog};

#[test]
fn turns_have_their_size_and_alternate() {
    let _dog = watchdog("turns_have_their_size_and_alternate");
    for bytes in [1u64, 1000, 4096, 65_536] {
        let length = 20 * bytes as usize;
        let sources: Vec<OwnedFd> = (0..3)
            .map(|n| file_with(&marked(n, length)).into())
            .collect();
        let (reader, writer) = std::io::pipe().unwrap();
        let got = std::thread::spawn(move || content_of(reader));
        let outcome = fan(&sources, &writer).turn(Turn::ByTurn { bytes }).unwrap();
        let outcome = outcome.run().unwrap();
        drop(writer);
        assert_eq!(outcome.ended, Ended::Eof);
        assert!(outcome.is_complete(), "{outcome:?}");
        let got = got.join().unwrap();
        for (index, turn) in got.chunks(bytes as usize).enumerate() {
            let source = index % 3;
            assert!(
                turn.iter().all(|byte| usize::from(byte >> 5) == source),
                "turn {index} of {bytes} bytes"
            );
        }
        for (n, (source, _)) in audit(outcome).iter().enumerate() {
            assert!(of(n, &got) == marked(n, length));
            assert_eq!((source.turns, source.ended), (20, SourceEnded::Eof));
        }
    }
}

#[test]
fn the_path_of_a_pair_stays_in_the_kernel() {
    if testkit::needs::missing(
        "the_path_of_a_pair_stays_in_the_kernel",
        &[testkit::needs::Need::Splice],
    ) {
        return;
    }
    let _dog = watchdog("the_path_of_a_pair_stays_in_the_kernel");
    let sources = [
        OwnedFd::from(file_with(&marked(0, MIB))),
        pipe_with(&marked(1, 60_000)).0,
    ];
    let (reader, writer) = std::io::pipe().unwrap();
    let got = std::thread::spawn(move || content_of(reader));
    let outcome = fan(&sources, &writer).run().unwrap();
    drop(writer);
    assert!(of(0, &got.join().unwrap()) == marked(0, MIB));
    assert_eq!(outcome.sink.path, [DataPath::Splice]);
    for (source, _) in audit(outcome) {
        assert_eq!(source.transfer.path, [DataPath::Splice]);
    }
}

#[test]
fn a_silent_source_delays_no_other() {
    let _dog = watchdog("a_silent_source_delays_no_other");
    let (silent, mut quiet) = pipe_with(b"");
    let sources = [
        silent,
        file_with(&marked(1, 3 * MIB)).into(),
        file_with(&marked(2, 2 * MIB)).into(),
    ];
    let (reader, writer) = std::io::pipe().unwrap();
    std::thread::scope(|scope| {
        let outcome = scope.spawn(|| fan(&sources, &writer).run().unwrap());
        let mut got = vec![0; 5 * MIB];
        let mut done = 0;
        while done < got.len() {
            done += rustix::io::read(&reader, &mut got[done..]).unwrap();
        }
        assert!(of(1, &got) == marked(1, 3 * MIB));
        assert!(of(2, &got) == marked(2, 2 * MIB));
        // Only now the first source provides bytes.
        quiet.write_all(b"at last").unwrap();
        let mut last = [0; 7];
        assert_eq!(rustix::io::read(&reader, &mut last).unwrap(), 7);
        assert_eq!(&last, b"at last");
        drop(quiet);
        let outcome = outcome.join().unwrap();
        assert!(outcome.is_complete(), "{outcome:?}");
        assert_eq!(outcome.sources[0].written, 7);
        audit(outcome);
    });
}

#[test]
fn a_busy_source_starves_no_other() {
    let _dog = watchdog("a_busy_source_starves_no_other");
    // This source never ends and is never silent.
    let busy = std::fs::File::open("/dev/zero").unwrap();
    let (slow, mut feed) = pipe_with(b"");
    let sources = [OwnedFd::from(busy), slow];
    let (reader, writer) = std::io::pipe().unwrap();
    let control = cordboard::Control::new().unwrap();
    let outcome = std::thread::scope(|scope| {
        let outcome = scope.spawn(|| fan(&sources, &writer).control(&control).run().unwrap());
        let mut piece = vec![0; 1 << 16];
        for n in 1..100u8 {
            feed.write_all(&[n]).unwrap();
            while let count = rustix::io::read(&reader, &mut piece).unwrap()
                && !piece[..count].contains(&n)
            {}
        }
        control.cancel();
        outcome.join().unwrap()
    });
    assert_eq!(outcome.ended, Ended::Cancelled);
    let sources = audit(outcome);
    assert_eq!(sources[1].0.written, 99);
    assert_eq!(sources[1].0.ended, SourceEnded::Stopped);
}

#[test]
fn a_source_that_gives_single_bytes_loses_none() {
    let _dog = watchdog("a_source_that_gives_single_bytes_loses_none");
    let ((a, mut feed), (b, other)) = (pipe_with(b""), pipe_with(b"and another"));
    drop(other);
    let sources = [a, b];
    let (reader, writer) = std::io::pipe().unwrap();
    let got = std::thread::spawn(move || content_of(reader));
    let outcome = std::thread::scope(|scope| {
        let outcome = scope.spawn(|| fan(&sources, &writer).run().unwrap());
        (0..3000u32).for_each(|n| feed.write_all(&[0x80 | n as u8]).unwrap());
        drop(feed);
        outcome.join().unwrap()
    });
    drop(writer);
    let mut its = got.join().unwrap();
    its.retain(|byte| *byte >= 0x80);
    assert!(
        its.iter()
            .zip(0u32..)
            .all(|(byte, n)| *byte == 0x80 | n as u8)
    );
    assert_eq!(its.len(), 3000);
    assert!(outcome.is_complete());
    assert_eq!(outcome.written, 3011);
    audit(outcome);
}

#[test]
fn a_size_is_that_of_each_source() {
    let _dog = watchdog("a_size_is_that_of_each_source");
    let files = [
        file_with(&marked(0, 100_000)),
        file_with(&marked(1, 100_000)),
    ];
    let sources = files
        .each_ref()
        .map(|file| OwnedFd::from(file.try_clone().unwrap()));
    let sink = file_with(b"");
    let limited = Request {
        size: Size::Bytes(70_000),
        ..Request::default()
    };
    let outcome = request(&sources, &sink, limited).run().unwrap();
    assert_eq!((outcome.ended, outcome.written), (Ended::Size, 140_000));
    for file in &files {
        assert_eq!(position(file), 70_000);
    }
    for (source, _) in audit(outcome) {
        assert_eq!(source.ended, SourceEnded::Size);
    }
}
