//! Any stages, descriptors and sizes, compared with hashes and compression of the
//! whole data at once.

use std::os::fd::AsFd;

use proptest::prelude::*;

use super::*;
use crate::common::{self, From, SOURCES, Source, any, watchdog};
use cordboard::{Ended, Size};

/// The bytes between two stages; `None` if unknown: the output of zstd depends on the
/// pieces of its input.
type Known = Option<Vec<u8>>;

/// Checks the account of each stage; `got` is what is in the sink.
fn check(report: &Report, stages: &[&str], input: &[u8], got: &[u8]) {
    by_user_space(report, stages);
    let last = stages.iter().rposition(|name| name.contains("zstd"));
    let mut bytes: Known = Some(input.to_vec());
    let mut packed_of: Vec<Vec<u8>> = Vec::new();
    let mut count = report.read;
    for (at, (name, of)) in stages.iter().zip(&report.stages).enumerate() {
        assert_eq!(of.bytes_in, count, "{name}: {report:?}");
        assert_eq!(of.fault, None);
        match *name {
            "zstd" => {
                packed_of.push(bytes.take().expect("the test packs only known bytes"));
                bytes = (Some(at) == last).then(|| got.to_vec());
            }
            "unzstd" => bytes = packed_of.pop(),
            name => {
                assert_eq!(of.bytes_in, of.bytes_out);
                if let Some(bytes) = &bytes {
                    assert_eq!(of.digest, digest(name, bytes), "{name}: {report:?}");
                }
            }
        }
        count = of.bytes_out;
    }
    assert_eq!(report.written, count);
    match packed_of.pop() {
        Some(original) => assert!(unpacked(got) == original),
        None => assert!(bytes.as_deref() == Some(got)),
    }
}

/// Inspecting stages, and pairs of zstd and unzstd, or a zstd at the end.
fn stacks() -> impl Strategy<Value = Vec<&'static str>> {
    let look = || {
        prop::collection::vec(
            prop::sample::select(&["crc32", "xxh3", "blake3", "count"][..]),
            0..2,
        )
    };
    let round = prop::bool::ANY;
    (look(), round, look(), look(), prop::bool::ANY, look()).prop_map(
        |(a, round, b, c, packs, d)| {
            let mut all = a;
            if round {
                all.push("zstd");
                all.extend(b);
                all.push("unzstd");
            }
            all.extend(c);
            if packs {
                all.push("zstd");
            }
            all.extend(d);
            if all.is_empty() {
                all.push("count");
            }
            all
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn stages_do_to_pieces_what_they_do_to_the_whole(
        length in prop_oneof![0usize..20, 4000usize..4200, 0usize..400_000],
        from in prop::sample::select(&SOURCES[..]),
        to in prop::sample::select(&[To::File, To::Pipe, To::Unix][..]),
        stages in stacks(),
        size in prop::option::of(0u64..450_000),
        block in prop::option::of(1usize..100_000),
        polled in prop::bool::ANY,
    ) {
        let _dog = watchdog("stages_do_to_pieces_what_they_do_to_the_whole");
        let data = data(length);
        let source = Source::new(from, &data);
        let sink = Sink::new(to, usize::MAX);
        let request = Request {
            size: size.map_or(Size::Eof, Size::Bytes),
            // Only short data is moved byte by byte.
            block: block.map(|n| n.max(length / 300).max(1).try_into().unwrap()),
            ..any()
        };
        let control = cordboard::Control::new().unwrap();
        let mut transfer = transfer(&source.fd, &sink.fd, request, &stages);
        if polled {
            transfer = transfer.control(&control);
        }
        let outcome = transfer.run();
        let report = outcome.report;
        let expected = size.map_or(length, |n| length.min(n as usize));
        prop_assert_eq!(report.read, expected as u64);
        prop_assert_eq!(report.stranded, 0);
        prop_assert!(outcome.stranded.is_none());
        let ended = if size.is_some_and(|n| n <= length as u64) { Ended::Size } else { Ended::Eof };
        // Whether a source has ended at exactly the size is not known.
        prop_assert!(report.ended == ended || report.read == length as u64);
        check(&report, &stages, &data[..expected], &sink.got());
        prop_assert!(source.rest() == data[expected..], "the rest of the source");
    }
}

/// Both ends of a pipe work at the same time, each in a thread of its own.
#[test]
fn round_trip_through_a_pipe() {
    let _dog = watchdog("round_trip_through_a_pipe");
    let data = data(3_000_000);
    for level in [-5, 3, 10] {
        let (reader, writer) = std::io::pipe().unwrap();
        let source = common::file_with(&data);
        let back = std::thread::spawn(move || {
            let sink = tempfile::tempfile().unwrap();
            let report = run(&reader, &sink, any(), &["unzstd", "blake3"]).report;
            (report, common::content(&sink))
        });
        let there = Transfer::new(source.as_fd(), writer.as_fd(), any())
            .and_then(|t| t.stage(Stage::blake3()))
            .and_then(|t| t.stage(Stage::zstd(level).unwrap()))
            .unwrap()
            .run()
            .into_result()
            .unwrap();
        drop(writer);
        let (back, got) = back.join().unwrap();
        assert!(got == data);
        assert_eq!((there.read, back.written), (3_000_000, 3_000_000));
        assert_eq!(there.written, back.read);
        assert!(there.written < 3_000_000);
        assert_eq!(there.stages[0].digest, digest("blake3", &data));
        assert_eq!(back.stages[1].digest, there.stages[0].digest);
    }
}

/// Empty input is packed too, also with a size of 0.
#[test]
fn nothing_becomes_an_empty_frame() {
    let _dog = watchdog("nothing_becomes_an_empty_frame");
    for (size, content, ended) in [
        (Size::Eof, &b""[..], Ended::Eof),
        (Size::Bytes(0), b"some", Ended::Size),
    ] {
        let source = Source::new(From::Pipe, content);
        let sink = Sink::new(To::File, 0);
        let request = Request { size, ..any() };
        let report = run(&source.fd, &sink.fd, request, &["zstd"]).report;
        assert_eq!((report.ended, report.read), (ended, 0));
        let got = sink.got();
        assert_eq!(report.written, got.len() as u64);
        assert_eq!(&got[..4], &[0x28, 0xb5, 0x2f, 0xfd]);
        assert!(unpacked(&got).is_empty());
    }
}

/// The same on an engine.
#[test]
fn on_an_engine() {
    let _dog = watchdog("on_an_engine");
    let data = data(2_000_000);
    for from in SOURCES {
        let source = Source::new(from, &data);
        let sink = Sink::new(To::Pipe, usize::MAX);
        let [from, to] = [&source.fd, &sink.fd].map(|fd| fd.try_clone().unwrap());
        let running = Transfer::owning(from, to, any())
            .and_then(|t| t.stage(Stage::blake3()))
            .and_then(|t| t.stage(Stage::zstd(1).unwrap()))
            .and_then(Transfer::start)
            .unwrap();
        let report = running.wait().into_result().unwrap();
        by_user_space(&report, &["blake3", "zstd"]);
        assert_eq!(report.read, data.len() as u64);
        assert_eq!(report.stages[0].digest, digest("blake3", &data));
        let got = sink.got();
        assert_eq!(report.written, got.len() as u64);
        assert!(unpacked(&got) == data);
    }
}

/// A stage without output at its end does not change how the transfer ends.
#[test]
fn a_size_that_is_reached_is_the_end() {
    let _dog = watchdog("a_size_that_is_reached_is_the_end");
    // The output fills the sink's buffer exactly.
    for length in [200_000, 256 << 10, 512 << 10] {
        ends_at_its_size(&vec![7; length]);
    }
}

fn ends_at_its_size(data: &[u8]) {
    let frame = packed(data);
    let two = [&frame[..], &frame].concat();
    for stages in [&["zstd"][..], &["unzstd"], &["unzstd", "zstd"]] {
        for from in SOURCES {
            let source = Source::new(from, &two);
            let sink = Sink::new(To::File, 0);
            let request = Request {
                size: Size::Bytes(frame.len() as u64),
                ..any()
            };
            let report = run(&source.fd, &sink.fd, request, stages).report;
            let case = format!("{stages:?} {from:?}: {report:?}");
            assert_eq!(report.ended, Ended::Size, "{case}");
            let counts = (report.read, report.stranded, report.failed);
            assert_eq!(counts, (frame.len() as u64, 0, None), "{case}");
            let got = match stages[stages.len() - 1] {
                "zstd" => unpacked(&sink.got()),
                _ => sink.got(),
            };
            let whole = if stages == ["zstd"] { &frame } else { data };
            assert!(got == whole, "{case}");
            assert!(source.rest() == frame, "{case}");
        }
    }
}
