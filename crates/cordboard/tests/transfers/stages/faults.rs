//! Input that is not zstd data, or incomplete.

use super::*;
use crate::common::{From, Source, any, position, watchdog};
use cordboard::{Ended, Errno, Side};

/// Runs `unzstd` over these bytes. Returns the report, the content of the sink, and
/// the rest of the source.
fn unzstd(from: From, bytes: &[u8]) -> (Report, Vec<u8>, Vec<u8>) {
    let source = Source::new(from, bytes);
    let sink = Sink::new(To::File, 0);
    let outcome = run(&source.fd, &sink.fd, any(), &["unzstd"]);
    by_user_space(&outcome.report, &["unzstd"]);
    assert!(outcome.stranded.is_none());
    (outcome.report, sink.got(), source.rest())
}

#[track_caller]
fn failed(report: &Report, says: &str) {
    assert_eq!(report.ended, Ended::Error, "{report:?}");
    assert_eq!(report.failed, Some(Side::Source), "{report:?}");
    assert_eq!(report.errno, Some(Errno::EBADMSG), "{report:?}");
    assert_eq!(report.stranded, 0);
    let fault = report.stages[0].fault.as_deref().unwrap();
    assert!(fault.contains(says), "{fault}");
}

#[test]
fn frames_one_behind_the_other() {
    let _dog = watchdog("frames_one_behind_the_other");
    let (a, b) = (data(200_000), data(777));
    // RFC 8878, 3.1.2: a frame of user data, which decoders skip.
    let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 5, 0, 0, 0][..], b"hello"].concat();
    let all = [packed(&a), skippable, packed(&[]), packed(&b)].concat();
    for from in crate::common::SOURCES {
        let (report, got, rest) = unzstd(from, &all);
        assert_eq!(report.ended, Ended::Eof, "{report:?}");
        assert_eq!((report.read, report.written), (all.len() as u64, 200_777));
        assert!(got == [&a[..], &b].concat() && rest.is_empty());
    }
}

#[test]
fn a_frame_that_is_cut_off() {
    let _dog = watchdog("a_frame_that_is_cut_off");
    let data = data(300_000);
    let whole = packed(&data);
    for length in [1, 3, 4, 9, whole.len() / 2, whole.len() - 1] {
        for from in crate::common::SOURCES {
            let (report, got, _) = unzstd(from, &whole[..length]);
            let s = if length == 1 { "" } else { "s" };
            failed(&report, &format!("truncated after {length} byte{s}"));
            assert_eq!(report.read, length as u64);
            assert_eq!(report.written, got.len() as u64);
            assert!(got == data[..got.len()], "what came before is delivered");
        }
    }
    let (report, got, _) = unzstd(From::Pipe, b"");
    failed(&report, "empty input");
    assert!(got.is_empty());
    // Only the checksum is missing.
    let (report, got, _) = unzstd(From::File, &whole[..whole.len() - 1]);
    assert_eq!(report.stages[0].bytes_out, report.written);
    assert!(got == data, "{report:?}");
}

/// If the size is 0, missing input is not a fault: no byte is read, and the stages'
/// output for empty input is written.
#[test]
fn a_size_of_none_ends_well() {
    let _dog = watchdog("a_size_of_none_ends_well");
    let stages: [&[&str]; 9] = [
        &["crc32", "xxh3", "blake3"],
        &["count"],
        &["zstd"],
        &["unzstd"],
        &["crc32", "unzstd", "count"],
        &["unzstd", "unzstd"],
        &["unzstd", "zstd"],
        &["zstd", "unzstd"],
        &["zstd", "zstd"],
    ];
    for bytes in [&packed(&data(1000))[..], b"plain text", b""] {
        for (from, names) in
            (crate::common::SOURCES.into_iter()).flat_map(|from| stages.map(|names| (from, names)))
        {
            let source = Source::new(from, bytes);
            let sink = Sink::new(To::File, 0);
            let request = Request {
                size: cordboard::Size::Bytes(0),
                ..any()
            };
            let outcome = run(&source.fd, &sink.fd, request, names);
            let what = format!("{from:?}, {names:?}: {outcome:?}");
            let report = &outcome.report;
            by_user_space(report, names);
            assert_eq!((report.ended, report.errno), (Ended::Size, None), "{what}");
            assert_eq!((report.read, report.stranded), (0, 0), "{what}");
            for stage in &report.stages {
                assert_eq!(stage.fault, None, "{what}");
            }
            assert!(source.rest() == bytes, "{what}");
            let got = sink.got();
            assert_eq!(report.written, got.len() as u64, "{what}");
            match names {
                // The output is an empty frame, or an empty frame within a frame.
                ["zstd"] | ["unzstd", "zstd"] | ["zstd", "zstd"] => {
                    let mut inner = got;
                    if names[0] == "zstd" && names.len() == 2 {
                        inner = unpacked(&inner);
                    }
                    assert!(!inner.is_empty(), "{what}");
                    assert_eq!(unpacked(&inner), b"", "{what}");
                }
                _ => assert_eq!(got, b"", "{what}"),
            }
        }
    }
}

#[test]
fn something_else_behind_the_frame_stays_in_a_file() {
    let _dog = watchdog("something_else_behind_the_frame_stays_in_a_file");
    let data = data(100_000);
    let frame = packed(&data);
    let all = [&frame[..], b"and now for something else"].concat();
    for from in crate::common::SOURCES {
        let (report, got, rest) = unzstd(from, &all);
        failed(&report, "trailing data at byte");
        assert!(got == data, "{from:?}");
        assert_eq!(report.stages[0].bytes_in, frame.len() as u64);
        if from == From::File {
            assert_eq!(report.read, frame.len() as u64);
            assert_eq!(rest, b"and now for something else");
        } else {
            assert_eq!(report.read + rest.len() as u64, all.len() as u64);
        }
    }
}

#[test]
fn damaged_and_never_zstd_data() {
    let _dog = watchdog("damaged_and_never_zstd_data");
    let data = data(400_000);
    let mut damaged = packed(&data);
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    let (report, got, _) = unzstd(From::Pipe, &damaged);
    failed(&report, "checksum");
    assert!(got == data[..got.len()]);
    let source = crate::common::file_with(b"plain text, and no more");
    let sink = Sink::new(To::File, 0);
    let failure = run(&source, &sink.fd, any(), &["unzstd"]).into_result();
    let failure = failure.unwrap_err();
    assert!(failure.to_string().contains("not zstd data"), "{failure}");
    assert_eq!((failure.report.read, position(&source)), (0, 0), "put back");
}
