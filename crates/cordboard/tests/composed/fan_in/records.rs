//! Records stay whole.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::time::Duration;

use cordboard::fan_in::{OnFailure, SourceEnded, Turn};
use cordboard::{Ended, Request};

use super::sources::{abort, audit, fan, pipe_with, request};
use crate::common::{content, content_of, file_with, tcp_pair, watchdog};

const LINES: Turn = Turn::ByRecord { delimiter: b'\n' };

/// Lines of random lengths, each of which begins with the number of its source.
fn lines(source: usize, count: usize, longest: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(source as u64);
    let mut all = Vec::new();
    for n in 0..count {
        let filler = "x".repeat(random.usize(..longest));
        writeln!(all, "{source} {n} {filler} {source}").unwrap();
    }
    all
}

#[test]
fn lines_written_in_random_pieces_are_not_mixed() {
    let _dog = watchdog("lines_written_in_random_pieces_are_not_mixed");
    let texts: Vec<Vec<u8>> = (0..4).map(|n| lines(n, 1500, 600)).collect();
    let (mut sources, mut feeds) = (Vec::new(), Vec::new());
    for _ in &texts {
        let (reader, writer) = pipe_with(b"");
        sources.push(reader);
        feeds.push(writer);
    }
    let (reader, writer) = std::io::pipe().unwrap();
    let got = std::thread::spawn(move || content_of(reader));
    let outcome = std::thread::scope(|scope| {
        for (n, (mut feed, text)) in feeds.into_iter().zip(&texts).enumerate() {
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(100 + n as u64);
                let mut rest = &text[..];
                while !rest.is_empty() {
                    let at = random.usize(1..2000).min(rest.len());
                    feed.write_all(&rest[..at]).unwrap();
                    rest = &rest[at..];
                }
            });
        }
        fan(&sources, &writer).turn(LINES).unwrap().run().unwrap()
    });
    drop(writer);
    assert!(outcome.is_complete(), "{outcome:?}");
    audit(outcome);
    let got = got.join().unwrap();
    let mut by_source = vec![Vec::new(); texts.len()];
    for line in got.split_inclusive(|byte| *byte == b'\n') {
        by_source[usize::from(line[0] - b'0')].extend_from_slice(line);
    }
    assert!(by_source == texts);
}

#[test]
fn an_incomplete_record_waits_and_the_others_go_on() {
    let _dog = watchdog("an_incomplete_record_waits_and_the_others_go_on");
    let ((a, mut slow), (b, mut fast)) = (pipe_with(b"be"), pipe_with(b""));
    let sources = [a, b];
    let (mut reader, writer) = std::io::pipe().unwrap();
    std::thread::scope(|scope| {
        let outcome = scope.spawn(|| fan(&sources, &writer).turn(LINES).unwrap().run().unwrap());
        let mut expect = |bytes: &[u8]| {
            let mut got = vec![0; bytes.len()];
            std::io::Read::read_exact(&mut reader, &mut got).unwrap();
            assert_eq!(got, bytes);
        };
        for _ in 0..20 {
            fast.write_all(b"other\n").unwrap();
            expect(b"other\n");
        }
        slow.write_all(b"gun\nrest").unwrap();
        expect(b"begun\n");
        drop(slow);
        // The rest at the end is a record.
        expect(b"rest");
        drop(fast);
        let outcome = outcome.join().unwrap();
        assert!(outcome.is_complete());
        audit(outcome);
    });
}

#[test]
fn long_records_are_divided_and_counted() {
    let _dog = watchdog("long_records_are_divided_and_counted");
    let mut text = b"x".repeat(2500);
    text.extend_from_slice(b"\nshort\n");
    let sources = [
        OwnedFd::from(file_with(&text)),
        file_with(&lines(1, 50, 10)).into(),
    ];
    let sink = file_with(b"");
    let running = fan(&sources, &sink).turn(LINES).unwrap();
    let outcome = running.longest_record(1000).run().unwrap();
    assert!(outcome.is_complete());
    assert_eq!(content(&sink).len() as u64, outcome.written);
    let sources = audit(outcome);
    assert_eq!((sources[0].0.divided, sources[1].0.divided), (1, 0));
}

#[test]
fn incomplete_records_of_stopped_sources_are_handed_back() {
    let _dog = watchdog("incomplete_records_of_stopped_sources_are_handed_back");
    let (a, _feed) = pipe_with(b"whole\npart");
    let (b, peer) = tcp_pair();
    let sources = [a, b.into()];
    let (mut reader, writer) = std::io::pipe().unwrap();
    let outcome = std::thread::scope(|scope| {
        let fan = fan(&sources, &writer).turn(LINES).unwrap();
        let fan = fan.source_on_failure(0, OnFailure::Detach);
        let outcome = scope.spawn(|| fan.run().unwrap());
        // The first source has had its turn when the other one fails.
        let mut got = [0; 6];
        std::io::Read::read_exact(&mut reader, &mut got).unwrap();
        assert_eq!(&got, b"whole\n");
        abort(peer);
        outcome.join().unwrap()
    });
    drop(writer);
    assert_eq!(content_of(reader), b"");
    assert_eq!(outcome.failed_source, Some(1));
    let sources = audit(outcome);
    assert_eq!(sources[0].0.ended, SourceEnded::Stopped);
    assert_eq!(sources[0].1, b"part");
    assert_eq!(sources[1].0.ended, SourceEnded::Failed);
    assert!(sources[1].0.errno.is_some());
}

#[test]
fn an_incomplete_record_of_a_silent_source_is_written_at_the_idle_limit() {
    let _dog = watchdog("an_incomplete_record_of_a_silent_source_is_written_at_the_idle_limit");
    let (source, _feed) = pipe_with(b"whole\npart");
    let sink = file_with(b"");
    let limited = Request {
        idle: Some(Duration::from_millis(20)),
        ..Request::default()
    };
    let sources = [source];
    let fan = request(&sources, &sink, limited).turn(LINES).unwrap();
    let outcome = fan.run().unwrap();
    assert_eq!(outcome.ended, Ended::Idle);
    assert_eq!(content(&sink), b"whole\npart");
    let sources = audit(outcome);
    assert_eq!(sources[0].0.ended, SourceEnded::Stopped);
}
