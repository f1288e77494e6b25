//! The cost of a rate on each path, with an injected clock: at most about 100 waits a second, and
//! few system calls in addition to those without a rate.

use std::cell::Cell;
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::schedule_tests::{paced, run};
use crate::errno::Errno;
use crate::report::Ended;
use crate::request::{DataPath, Request, Schedule, Size};
use crate::transfer::Transfer;
use crate::transfer::test_files::{file_with, is_missing, paths_between_files};
use crate::transfer::turn::{Wait, WaitFor};
use crate::transfer::wait::{Clock, Interest, Waiter, Wakeup};
use testkit::pattern::noise;

/// Bytes a second. Its piece, the bytes of 10 ms, is longer than a step of most paths.
const RATE: u64 = 100_000_000;
const PIECE: u64 = RATE / 100;
const BYTES: u64 = 8 * PIECE;

/// Moves these bytes by one path. Returns the number of waits for the schedule, and the time.
fn moved(
    (source, sink): (impl AsFd, impl AsFd),
    (path, bytes): (DataPath, u64),
    schedule: Schedule,
) -> (u64, Duration) {
    let rests = Rc::new(Cell::new(0));
    let counter = Rc::clone(&rests);
    let count = Box::new(move |_| counter.set(counter.get() + 1));
    let what = (path, Size::Bytes(bytes));
    let (report, _, took) = run(source, sink, what, &paced(schedule), count);
    assert_eq!(
        (report.ended, report.written),
        (Ended::Size, bytes),
        "{report:?}"
    );
    assert_eq!(report.path, [path], "{report:?}");
    (rests.get(), took)
}

/// Asserts that a transfer waits once for each piece, and for no longer than the rate requires.
fn waits_once_for_each_piece(source: impl AsFd, sink: impl AsFd, path: DataPath) {
    let (waits, took) = moved((source, sink), (path, BYTES), Schedule::rate(RATE));
    // A wait lasts at least 15/16 of a piece.
    let most = BYTES.div_ceil(PIECE - PIECE / 16) + 1;
    assert!(waits <= most, "{path}: {waits} of {most}");
    let exact = Duration::from_millis(BYTES * 1000 / RATE);
    assert!(
        took >= exact && took <= exact + exact / 100,
        "{path}: {took:?}"
    );
}

#[test]
fn a_rate_costs_a_wait_for_each_piece_between_files() {
    let data = noise(BYTES as usize);
    for path in paths_between_files("waits for a rate") {
        waits_once_for_each_piece(file_with(&data), file_with(b""), path);
    }
}

/// The end to read or to write, and the thread at the other end.
type Fed = (OwnedFd, JoinHandle<()>);

/// Feeds this much into the writer.
fn feeder(mut to: impl Write + Send + 'static) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let data = noise(64 << 10);
        // The transfer takes no more than its size.
        while to.write_all(&data).is_ok() {}
    })
}

fn reader(mut from: impl Read + Send + 'static) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while from.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
    })
}

fn fed_pipe() -> Fed {
    let (source, feed): (PipeReader, PipeWriter) = std::io::pipe().unwrap();
    (source.into(), feeder(feed))
}

fn fed_socket() -> Fed {
    let (source, feed) = UnixStream::pair().unwrap();
    (source.into(), feeder(feed))
}

fn file() -> Fed {
    let file = file_with(&noise(BYTES as usize));
    (file.into(), std::thread::spawn(|| {}))
}

fn read_pipe() -> Fed {
    let (end, sink) = std::io::pipe().unwrap();
    (sink.into(), reader(end))
}

/// Not blocking: `sendfile(2)` and `splice(2)` could otherwise wait for it.
fn read_socket() -> Fed {
    let (sink, end) = UnixStream::pair().unwrap();
    sink.set_nonblocking(true).unwrap();
    (sink.into(), reader(end))
}

fn null() -> Fed {
    let null = File::options().write(true).open("/dev/null").unwrap();
    (null.into(), std::thread::spawn(|| {}))
}

#[test]
fn a_rate_costs_a_wait_for_each_piece_of_a_stream() {
    use DataPath::{ReadWrite, Sendfile, Splice};
    type End = fn() -> Fed;
    let pairs: [(End, End, &[DataPath]); 7] = [
        (file, read_pipe, &[Splice, ReadWrite]),
        (file, read_socket, &[Sendfile, Splice, ReadWrite]),
        (file, null, &[Sendfile, Splice, ReadWrite]),
        (fed_pipe, read_pipe, &[Splice, ReadWrite]),
        (fed_pipe, read_socket, &[Splice, ReadWrite]),
        (fed_socket, read_pipe, &[Splice, ReadWrite]),
        (fed_socket, read_socket, &[Splice, ReadWrite]),
    ];
    for (source, sink, paths) in pairs {
        for path in paths {
            if is_missing("waits for a rate", *path) {
                continue;
            }
            let ((source, feeder), (sink, reader)) = (source(), sink());
            waits_once_for_each_piece(&source, &sink, *path);
            drop((source, sink));
            feeder.join().unwrap();
            reader.join().unwrap();
        }
    }
}

#[test]
fn a_rate_costs_a_wait_for_each_piece_of_datagrams() {
    let (feed, source) = UnixDatagram::pair().unwrap();
    let (sink, end) = UnixDatagram::pair().unwrap();
    let feeder = std::thread::spawn(move || while feed.send(&[1; 8000]).is_ok() {});
    let reader = std::thread::spawn(move || {
        let mut datagram = [0; 8000];
        while end.recv(&mut datagram).is_ok_and(|bytes| bytes > 0) {}
    });
    waits_once_for_each_piece(&source, &sink, DataPath::Datagram);
    // Ends the reader.
    sink.send(&[]).unwrap();
    drop((source, sink));
    feeder.join().unwrap();
    reader.join().unwrap();
}

/// A wait for each piece, and calls for a step that the end of the grant makes shorter.
const CALLS: u64 = 6;

#[test]
fn a_rate_costs_few_calls_between_files() {
    let _hangs = testkit::watchdog::watch("a_rate_costs_few_calls_between_files");
    let (rate, pieces) = (1_000_000_000, 3);
    let bytes = pieces * rate / 100;
    let data = noise(bytes as usize);
    for path in paths_between_files("calls for a rate") {
        // Other threads make its calls.
        if path == DataPath::Direct {
            continue;
        }
        let calls = [Schedule::Unlimited, Schedule::rate(rate)].map(|schedule| {
            let (source, sink) = (file_with(&data), file_with(b""));
            let moves = |size| moved((&source, &sink), (path, size), schedule);
            // The child uses what its parent has found once for all transfers.
            moves(1);
            testkit::calls::count(|| {
                moves(bytes - 1);
                true
            })
        });
        let [Ok(free), Ok(paced)] = calls else {
            return testkit::skip::here(format!("{calls:?}"));
        };
        let more = paced.saturating_sub(free) as u64;
        assert!(more <= pieces * CALLS, "{path}: {paced} instead of {free}");
    }
}

/// Stores whether the sink is polled, and for how long. Nothing happens meanwhile.
#[derive(Default)]
struct Waits(Vec<(bool, Duration)>);

impl Clock for Waits {
    fn now(&mut self) -> Duration {
        Duration::ZERO
    }
}

impl Waiter for Waits {
    fn wait(
        &mut self,
        interest: &Interest<'_>,
        timeout: Option<Duration>,
    ) -> Result<Wakeup, Errno> {
        self.0.push((interest.watch.is_some(), timeout.unwrap()));
        Ok(Wakeup::default())
    }
}

/// A reader that splices would interrupt each wait of a transfer that polls its pipe.
#[test]
fn a_pipe_is_polled_at_the_end_of_a_short_wait_for_a_grant() {
    let source = file_with(b"abc");
    let (_reader, pipe) = std::io::pipe().unwrap();
    let (socket, _peer) = UnixStream::pair().unwrap();
    let waits = |sink: &dyn AsFd, target, time| {
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), Request::default()).unwrap();
        let timeout = Some(time);
        let mut waits = Waits::default();
        let wakeup = Wait { target, timeout }.take(&transfer, &mut waits);
        assert_eq!(wakeup, Ok(Wakeup::default()));
        waits.0
    };
    let (short, long) = (Duration::from_millis(10), Duration::from_secs(1));
    let (grant, at_once) = (WaitFor::Grant, Duration::ZERO);
    assert_eq!(
        waits(&pipe, grant, short),
        [(false, short), (true, at_once)]
    );
    assert_eq!(waits(&pipe, grant, long), [(true, long)]);
    assert_eq!(waits(&pipe, WaitFor::Resume, short), [(true, short)]);
    assert_eq!(waits(&socket, grant, short), [(true, short)]);
}
