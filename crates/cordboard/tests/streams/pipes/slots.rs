//! Small pieces into a pipe that is not read meanwhile. A write appends to the last
//! page, but a splice uses a slot for each piece.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use cordboard::DataPath::{ReadWrite, Splice};
use cordboard::{Ended, Report, Request, Size, splice, start};
use rustix::io::ioctl_fionread;
use rustix::pipe::{fcntl_getpipe_size, pipe};

use crate::common::{self, any, pattern, watchdog};

const PIECE: usize = 10;
const PIECES: usize = 3000;

/// A source with a feeder, and a pipe without a reader.
fn ends(by_socket: bool) -> (OwnedFd, File, OwnedFd, OwnedFd) {
    let (source, feed): (OwnedFd, OwnedFd) = match by_socket {
        true => UnixStream::pair()
            .map(|(a, b)| (a.into(), b.into()))
            .unwrap(),
        false => pipe().unwrap(),
    };
    let (out, sink) = pipe().unwrap();
    (source, feed.into(), out, sink)
}

/// Reads all of a pipe without writers.
fn drained(out: OwnedFd) -> Vec<u8> {
    let mut all = Vec::new();
    File::from(out).read_to_end(&mut all).unwrap();
    all
}

fn counts(report: &Report) -> (Ended, u64, u64, u64) {
    (report.ended, report.read, report.written, report.stranded)
}

/// Each piece is moved before the next one is written.
#[test]
fn a_pipe_that_is_not_read_takes_as_much_as_by_write() {
    let _dog = watchdog("a_pipe_that_is_not_read_takes_as_much_as_by_write");
    let data = pattern(PIECE * PIECES);
    for by_socket in [false, true] {
        let (source, mut feed, out, sink) = ends(by_socket);
        let (left, put) = (source.try_clone().unwrap(), sink.try_clone().unwrap());
        let before = fcntl_getpipe_size(&put).unwrap();
        let running = start(source, sink, any()).unwrap();
        for piece in data.chunks(PIECE) {
            feed.write_all(piece).unwrap();
            while ioctl_fionread(&left) != Ok(0) {
                std::thread::yield_now();
            }
        }
        drop((feed, left));
        let report = running.wait().report;
        let all = data.len() as u64;
        assert_eq!(counts(&report), (Ended::Eof, all, all, 0));
        if testkit::needs::Need::Splice.is_met() {
            assert_eq!(report.path, [Splice, ReadWrite], "{by_socket}");
        }
        // The pipe is as small as its content allows.
        let after = fcntl_getpipe_size(&put).unwrap();
        assert!(after <= 2 * before, "{after}");
        drop(put);
        assert!(drained(out) == data);
    }
}

/// One transfer for each piece.
#[test]
fn many_small_transfers_fill_a_pipe_as_writes_do() {
    let _dog = watchdog("many_small_transfers_fill_a_pipe_as_writes_do");
    let data = pattern(PIECE * PIECES);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&data).unwrap();
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).unwrap();
    for source in ["pipe", "socket", "file"] {
        let (fed, mut feed, out, sink) = ends(source == "socket");
        for (n, piece) in data.chunks(PIECE).enumerate() {
            let report = match source {
                "file" => splice(&file, &sink, Size::Bytes(PIECE as u64)),
                _ => {
                    feed.write_all(piece).unwrap();
                    splice(&fed, &sink, Size::Bytes(PIECE as u64))
                }
            };
            let report = report.unwrap();
            let counted = (Ended::Size, PIECE as u64, PIECE as u64, 0);
            assert_eq!(counts(&report), counted, "{source} {n}");
            if n > 0 {
                assert_eq!(report.path, [ReadWrite], "{source} {n}");
            }
        }
        drop(sink);
        assert!(drained(out) == data, "{source}");
    }
}

/// Small files, whose pages are not full.
#[test]
fn many_small_files_fill_a_pipe_as_writes_do() {
    let _dog = watchdog("many_small_files_fill_a_pipe_as_writes_do");
    let (out, sink) = pipe().unwrap();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[7; 100]).unwrap();
    for _ in 0..500 {
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).unwrap();
        let report = splice(&file, &sink, Size::Eof).unwrap();
        assert_eq!(counts(&report), (Ended::Eof, 100, 100, 0));
        assert_eq!(report.path, [ReadWrite]);
    }
    drop(sink);
    assert_eq!(drained(out), [7; 50_000]);
}

/// Pieces that fill pages only in part: the pipe gets more slots for them while it
/// holds fewer bytes than its capacity, and shrinks again.
#[test]
fn a_pipe_of_pages_in_part_gets_more_of_them() {
    let _dog = watchdog("a_pipe_of_pages_in_part_gets_more_of_them");
    if !testkit::needs::Need::Splice.is_met() {
        return testkit::skip::report("slots", "splice is turned off");
    }
    let data = pattern(60_000);
    for from_pipe in [false, true] {
        let (fed, feed) = pipe().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&data).unwrap();
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).unwrap();
        File::from(feed).write_all(&data).unwrap();
        let (out, sink) = pipe().unwrap();
        let before = fcntl_getpipe_size(&sink).unwrap();
        let request = Request {
            block: NonZeroUsize::new(1000),
            switches: Some(cordboard::Switches::only(&[Splice])),
            ..any()
        };
        let source = if from_pipe { fed.as_fd() } else { file.as_fd() };
        let report = common::run(source, sink.as_fd(), request).report;
        assert_eq!(counts(&report), (Ended::Eof, 60_000, 60_000, 0));
        assert_eq!(report.path, [Splice]);
        let now = fcntl_getpipe_size(&sink).unwrap();
        assert!(now > before, "it holds more than {before} bytes of pages");
        drop(sink);
        assert!(drained(out) == data);
    }
}
