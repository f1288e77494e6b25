//! Closed sinks and cancelled transfers: the bytes that the sink accepted and those
//! handed back add up to the stages' complete output for the bytes read.

use std::io::{Read, Write};
use std::os::fd::AsFd;

use super::*;
use crate::common::{
    BOUNDARIES, From, MIB, SOURCES, Source, any, audit, content, file_with, handed_back, meanwhile,
    watchdog,
};
use cordboard::{Control, Ended, Errno, Side};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Checks the counts, and returns the written and the returned bytes, joined.
fn made(what: &str, outcome: Outcome, got: &[u8]) -> (Report, Vec<u8>) {
    let report = outcome.report;
    let stranded = handed_back(outcome.stranded);
    assert_eq!(report.stranded, stranded.len() as u64, "{what}: {report:?}");
    assert_eq!(report.written, got.len() as u64, "{what}: {report:?}");
    let last = report.stages.iter().rfind(|s| s.stage.contains("zstd"));
    let out = last.unwrap().bytes_out;
    assert_eq!(out, report.written + report.stranded, "{what}: {report:?}");
    (report, [got, &stranded].concat())
}

/// A sink that takes exactly `n` bytes.
fn limited(n: usize) -> (OwnedFd, JoinHandle<Vec<u8>>) {
    let (a, b) = UnixStream::pair().unwrap();
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; n];
        File::from(OwnedFd::from(b)).read_exact(&mut got).unwrap();
        got
    });
    (a.into(), reader)
}

#[test]
fn a_hash_is_that_of_what_the_sink_accepted() {
    let _dog = watchdog("a_hash_is_that_of_what_the_sink_accepted");
    let data = data(3 * MIB);
    for n in BOUNDARIES {
        for from in SOURCES {
            let what = format!("{from:?}, {n}");
            let source = Source::new(from, &data);
            let (sink, peer) = limited(n);
            let outcome = run(&source.fd, &sink, any(), &["blake3", "crc32"]);
            let report = &outcome.report;
            assert_eq!(report.failed, Some(Side::Sink), "{what}: {report:?}");
            let accepted = &data[..report.written as usize];
            for stage in &report.stages {
                assert_eq!(stage.bytes_in, report.written, "{what}");
                assert_eq!(stage.digest, digest(stage.stage, accepted), "{what}");
            }
            assert!(peer.join().unwrap() == data[..n], "{what}");
            audit(&what, outcome, source, from, &data);
        }
    }
}

/// Runs a function with `RLIMIT_FSIZE` at `n` bytes.
fn limited_to<T>(n: usize, run: impl FnOnce() -> T) -> T {
    let before = getrlimit(Resource::Fsize);
    let current = Some(n as u64);
    setrlimit(Resource::Fsize, Rlimit { current, ..before }).unwrap();
    let done = run();
    setrlimit(Resource::Fsize, before).unwrap();
    done
}

#[test]
fn a_sink_that_takes_no_more_zstd_data() {
    let _dog = watchdog("a_sink_that_takes_no_more_zstd_data");
    if !common::alone!() {
        return;
    }
    let data = data(MIB);
    let whole = packed(&data).len();
    for n in BOUNDARIES.into_iter().filter(|n| *n < whole) {
        for from in SOURCES {
            let what = format!("{from:?}, {n}");
            let source = Source::new(from, &data);
            let sink = tempfile::tempfile().unwrap();
            let stages = ["xxh3", "zstd", "xxh3"];
            let outcome = limited_to(n, || run(&source.fd, &sink, any(), &stages));
            let got = content(&sink);
            assert_eq!(got.len(), n, "{what}");
            let (report, all) = made(&what, outcome, &got);
            let failure = (report.ended, report.failed, report.errno);
            let expected = (Ended::Error, Some(Side::Sink), Some(Errno::EFBIG));
            assert_eq!(failure, expected, "{what}: {report:?}");
            let read = report.read as usize;
            assert!(unpacked(&all) == data[..read], "{what}: {report:?}");
            assert_eq!(report.stages[0].digest, digest("xxh3", &data[..read]));
            assert_eq!(report.stages[2].digest, digest("xxh3", &got), "{what}");
            assert!(source.rest() == data[read..], "{what}: the rest");
        }
    }
}

#[test]
fn a_sink_that_takes_no_more_of_what_is_unpacked() {
    let _dog = watchdog("a_sink_that_takes_no_more_of_what_is_unpacked");
    if !common::alone!() {
        return;
    }
    let data = data(2 * MIB);
    let frame = packed(&data);
    for n in BOUNDARIES {
        for from in SOURCES {
            let what = format!("{from:?}, {n}");
            let source = Source::new(from, &frame);
            let sink = tempfile::tempfile().unwrap();
            let outcome = limited_to(n, || run(&source.fd, &sink, any(), &["unzstd"]));
            let (report, all) = made(&what, outcome, &content(&sink));
            assert_eq!(report.errno, Some(Errno::EFBIG), "{what}: {report:?}");
            assert_eq!(report.written, n as u64, "{what}");
            // An incomplete frame is not an error of the bytes.
            assert_eq!(report.stages[0].fault, None, "{what}");
            let read = report.read as usize;
            assert!(all == decoded(&frame[..read]), "{what}: {report:?}");
            assert!(source.rest() == frame[read..], "{what}: the rest");
        }
    }
}

/// Unpacks the start of a frame as far as possible.
fn decoded(part: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    let mut decoder = zstd::Decoder::new(part).unwrap();
    // The read ends with an error if the frame is incomplete.
    let _ = decoder.read_to_end(&mut all);
    all
}

/// Few bytes that expand to many: the transfer reads ahead only as many bytes as it
/// could hand back unpacked.
#[test]
fn what_expands_is_read_ahead_with_care() {
    let _dog = watchdog("what_expands_is_read_ahead_with_care");
    let frames: Vec<u8> = (0..500).flat_map(|_| packed(&[0; 100_000])).collect();
    assert!(frames.len() > 2 * 4096 && frames.len() < 60_000);
    let source = Source::new(From::Pipe, &frames);
    let (sink, peer) = limited(10);
    let outcome = run(&source.fd, &sink, any(), &["unzstd"]);
    peer.join().unwrap();
    let report = outcome.report;
    assert_eq!(report.failed, Some(Side::Sink), "{report:?}");
    assert!(report.read % 4096 == 0, "{report:?}");
    let bytes = handed_back(outcome.stranded);
    assert_eq!(bytes.len() as u64, report.stranded);
    let unpacked = decoded(&frames[..report.read as usize]).len() as u64;
    assert_eq!(report.written + report.stranded, unpacked);
}

/// Cancels after the first bytes are written, with a source that goes on.
fn cancelled(source: &impl AsFd, sink: &impl AsFd, stages: &[&str]) -> Outcome {
    let control = Control::new().unwrap();
    let watch = meanwhile(|| control.cancel());
    let transfer = transfer(source, sink, any(), stages);
    let outcome = transfer.control(&control).observe(watch).run();
    let report = &outcome.report;
    assert_eq!(report.ended, Ended::Cancelled, "{report:?}");
    assert_eq!((report.failed, report.errno), (None, None));
    assert!(report.stages.iter().all(|stage| stage.fault.is_none()));
    outcome
}

#[test]
fn cancelled_into_a_file_it_leaves_a_complete_frame() {
    let _dog = watchdog("cancelled_into_a_file_it_leaves_a_complete_frame");
    let data = data(5 * MIB);
    for from in SOURCES {
        let source = Source::new(from, &data);
        let sink = tempfile::tempfile().unwrap();
        let outcome = cancelled(&source.fd, &sink, &["blake3", "zstd"]);
        let got = content(&sink);
        let (report, all) = made("cancelled", outcome, &got);
        assert_eq!(report.stranded, 0);
        let read = report.read as usize;
        assert!(0 < read && read < data.len(), "{report:?}");
        assert!(unpacked(&all) == data[..read]);
        assert_eq!(report.stages[0].digest, digest("blake3", &data[..read]));
        assert!(source.rest() == data[read..]);
    }
}

#[test]
fn cancelled_before_a_full_pipe_the_rest_of_the_frame_is_handed_back() {
    let _dog = watchdog("cancelled_before_a_full_pipe_the_rest_of_the_frame_is_handed_back");
    let data = noise(5 * MIB);
    for from in SOURCES {
        let source = Source::new(from, &data);
        let (reader, writer) = std::io::pipe().unwrap();
        rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
        let outcome = cancelled(&source.fd, &writer, &["zstd"]);
        drop(writer);
        let mut got = Vec::new();
        File::from(OwnedFd::from(reader))
            .read_to_end(&mut got)
            .unwrap();
        let (report, all) = made("cancelled", outcome, &got);
        assert!(report.stranded > 0, "{report:?}");
        let read = report.read as usize;
        assert!(unpacked(&all) == data[..read]);
        assert!(source.rest() == data[read..]);
    }
}

#[test]
fn cancelled_before_its_first_step_an_empty_frame_is_handed_back() {
    let _dog = watchdog("cancelled_before_its_first_step_an_empty_frame_is_handed_back");
    for full in [false, true] {
        let source = file_with(b"not read");
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let room = rustix::pipe::fcntl_getpipe_size(&writer).unwrap();
        let before = vec![0; if full { room } else { 0 }];
        writer.write_all(&before).unwrap();
        let control = Control::new().unwrap();
        control.cancel();
        let transfer = transfer(&source, &writer, any(), &["zstd"]);
        let outcome = transfer.control(&control).run();
        drop(writer);
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        let (report, all) = made("cancelled", outcome, &got[before.len()..]);
        assert_eq!((report.ended, report.read), (Ended::Cancelled, 0));
        assert_eq!(report.stranded > 0, full, "{report:?}");
        assert!(!all.is_empty() && unpacked(&all).is_empty());
        assert_eq!(common::position(&source), 0);
    }
}

#[test]
fn cancelled_in_the_midst_of_a_frame() {
    let _dog = watchdog("cancelled_in_the_midst_of_a_frame");
    let data = data(5 * MIB);
    let frame = packed(&data);
    for from in SOURCES {
        let source = Source::new(from, &frame);
        let sink = tempfile::tempfile().unwrap();
        let outcome = cancelled(&source.fd, &sink, &["unzstd", "crc32"]);
        let got = content(&sink);
        let (report, all) = made("cancelled", outcome, &got);
        assert!(all == data[..all.len()] && all.len() < data.len());
        assert_eq!(report.stages[1].digest, digest("crc32", &got));
        assert!(source.rest() == frame[report.read as usize..]);
    }
}

/// Zeros as zstd packs them at its best: 128 KiB in four bytes (RFC 8878,
/// 3.1.1.2, `RLE_Block`).
fn bomb(blocks: usize) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 7 << 3];
    for block in 1..=blocks {
        let last = u8::from(block == blocks);
        frame.extend([2 | last, 0, 0x10, 0]);
    }
    frame
}

/// Bytes that the first stage has not consumed go back to the source, however far
/// they would expand, also after the end of the source was found.
#[test]
fn cancelled_in_the_midst_of_very_much_it_writes_no_more_of_it() {
    let _dog = watchdog("cancelled_in_the_midst_of_very_much_it_writes_no_more_of_it");
    const BLOCK: usize = 128 << 10;
    let frame = bomb(2000);
    assert_eq!(unpacked(&frame).len(), 2000 * BLOCK);
    let nowhere = File::options().write(true).open("/dev/null").unwrap();
    for sink in [tempfile::tempfile().unwrap(), nowhere] {
        let source = Source::new(From::File, &frame);
        let outcome = cancelled(&source.fd, &sink, &["unzstd"]);
        let got = match sink.metadata().unwrap().is_file() {
            true => content(&sink),
            false => vec![0; outcome.report.written as usize],
        };
        let (report, all) = made("cancelled", outcome, &got);
        // At the cancel one buffer has been written, and one may follow.
        assert!(report.written <= 1 << 20, "{report:?}");
        assert_eq!(report.stages[0].bytes_in, report.read, "{report:?}");
        assert!(all == vec![0; (report.read as usize - 6) / 4 * BLOCK]);
        assert!(source.rest() == frame[report.read as usize..]);
    }
}

/// The output for what was read before the source failed is complete.
#[test]
fn a_source_that_fails() {
    let _dog = watchdog("a_source_that_fails");
    let (source, peer) = common::tcp_pair();
    let sink = tempfile::tempfile().unwrap();
    (&peer).write_all(b"hello").unwrap();
    rustix::net::sockopt::set_socket_linger(&peer, Some(std::time::Duration::ZERO)).unwrap();
    drop(peer);
    let outcome = run(&source, &sink, any(), &["zstd"]);
    let (report, all) = made("reset", outcome, &content(&sink));
    assert_eq!(report.failed, Some(Side::Source), "{report:?}");
    assert_eq!(report.errno, Some(Errno::ECONNRESET), "{report:?}");
    assert_eq!(unpacked(&all), &b"hello"[..report.read as usize]);
}

/// At the idle limit the output for what was read is complete.
#[test]
fn an_idle_source_leaves_a_complete_frame() {
    let _dog = watchdog("an_idle_source_leaves_a_complete_frame");
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"hello").unwrap();
    let sink = tempfile::tempfile().unwrap();
    let request = Request {
        idle: Some(std::time::Duration::from_millis(5)),
        ..any()
    };
    let outcome = run(&reader, &sink, request, &["zstd"]);
    let (report, all) = made("idle", outcome, &content(&sink));
    assert_eq!((report.ended, report.read), (Ended::Idle, 5), "{report:?}");
    assert_eq!(unpacked(&all), b"hello");
}

/// The frame's end is longer than the room in the sink. The sink's reader is open,
/// and starts to read once the sink is full.
#[test]
fn an_idle_source_leaves_a_complete_frame_to_a_slow_reader_on_an_engine() {
    let _dog = watchdog("an_idle_source_leaves_a_complete_frame_to_a_slow_reader_on_an_engine");
    let data = noise(120_000);
    let (source, mut feed) = UnixStream::pair().unwrap();
    feed.write_all(&data).unwrap();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let full = rustix::pipe::fcntl_getpipe_size(&writer).unwrap() as u64;
    let request = Request {
        idle: Some(std::time::Duration::from_secs(2)),
        ..any()
    };
    let copies = (source.try_clone().unwrap().into(), writer.into());
    let transfer = Transfer::owning(copies.0, copies.1, request).unwrap();
    let running = transfer.stage(stage("zstd")).unwrap().start().unwrap();
    while rustix::io::ioctl_fionread(&reader).unwrap() < full {
        std::thread::yield_now();
    }
    let mut got = Vec::new();
    reader.read_to_end(&mut got).unwrap();
    let (report, all) = made("idle", running.wait(), &got);
    let ended = (report.ended, report.read, report.stranded);
    assert_eq!(ended, (Ended::Idle, 120_000, 0), "{report:?}");
    by_user_space(&report, &["zstd"]);
    assert!(unpacked(&all) == data);
}
