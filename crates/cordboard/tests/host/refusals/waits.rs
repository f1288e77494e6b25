//! Filters that refuse the calls that poll, or that read and write at an offset.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::common::SOURCES;

/// The calls that poll, in the order in which they are tried.
const LOOKS: [&[libc::c_long]; 3] = [
    testkit::refuse::PPOLL,
    testkit::refuse::POLL,
    testkit::refuse::SELECT,
];
/// The calls that show what `select(2)` does not.
const EPOLL: &[libc::c_long] = &[libc::SYS_epoll_create1];

/// Makes a sink that is full repeatedly, and a thread that reads it.
pub fn slow_sink(kind: From) -> (OwnedFd, JoinHandle<Vec<u8>>) {
    let (sink, end): (OwnedFd, OwnedFd) = match kind {
        From::Pipe | From::File => {
            let (end, sink) = std::io::pipe().unwrap();
            rustix::pipe::fcntl_setpipe_size(&sink, 4096).unwrap();
            (sink.into(), end.into())
        }
        From::Unix => {
            let (sink, end) = UnixStream::pair().unwrap();
            (sink.into(), end.into())
        }
        From::Tcp => {
            let (sink, end) = common::tcp_pair();
            (sink.into(), end.into())
        }
    };
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        File::from(end).read_to_end(&mut all).unwrap();
        all
    });
    (sink, reader)
}

fn nonblocking(fd: &OwnedFd) {
    let flags = rustix::fs::fcntl_getfl(fd).unwrap();
    rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
}

/// If `poll(2)` is refused, `select(2)` is called. If all calls that poll are
/// refused, calls that can wait do so, and others are repeated. The transfer fails
/// only if it has a time limit and a call would block the thread.
#[test]
fn what_is_ready_cannot_be_asked() {
    let _dog = watchdog("what_is_ready_cannot_be_asked");
    let data = pattern(SIZE);
    let all = [DataPath::Splice, DataPath::Sendfile, DataPath::ReadWrite];
    for errno in [Errno::ENOSYS, Errno::EPERM, Errno::EACCES, Errno::EINVAL] {
        for from in SOURCES {
            for to in [From::Pipe, From::Unix, From::Tcp] {
                for (refused, idle, waits) in [
                    (1, true, true),
                    (1, false, true),
                    (2, true, true),
                    (2, false, true),
                    (3, false, true),
                    (3, false, false),
                    (3, true, true),
                ] {
                    for paths in [&all[..], &all[2..]] {
                        let source = Source::new(from, &data);
                        let (sink, reader) = slow_sink(to);
                        if !waits {
                            [&source.fd, &sink].into_iter().for_each(nonblocking);
                        }
                        let request = Request {
                            idle: idle.then_some(Duration::from_secs(100)),
                            ..only(paths)
                        };
                        let report = apart(|| {
                            refuse(&LOOKS[..refused].concat(), errno);
                            run(&source.fd, &sink, request).report
                        });
                        drop(sink);
                        // The feeder may be blocked in the rest of its write.
                        drop(source);
                        let got = reader.join().unwrap();
                        let what = format!("{errno}: {from:?} to {to:?}, {refused} {idle} {waits}");
                        let what = format!("{what} by {paths:?}: {report:?}");
                        assert_eq!(report.written, got.len() as u64, "{what}");
                        if refused == 3 && idle && report.ended == Ended::Error {
                            assert_eq!(report.failed, None, "{what}");
                            assert_eq!(report.errno, Some(errno), "{what}");
                            let why = report.declined.last().map(|d| d.why.to_string());
                            assert!(why.is_some_and(|why| why.contains("poll(2)")), "{what}");
                            continue;
                        }
                        assert_eq!(report.ended, Ended::Eof, "{what}");
                        assert!(got == data, "{what}");
                    }
                }
            }
        }
    }
}

/// Runs a transfer with this many of the calls that poll refused. Without an engine,
/// `epoll(7)` is refused too.
fn without_looks(
    refused: usize,
    errno: Errno,
    by_engine: bool,
    transfer: Transfer<'static>,
) -> Report {
    apart(|| {
        refuse(&LOOKS[..refused].concat(), errno);
        if !by_engine {
            refuse(EPOLL, errno);
            return transfer.run().report;
        }
        let engine = cordboard::Engine::new(Default::default()).unwrap();
        engine.start(transfer).unwrap().wait().report
    })
}

/// If no call distinguishes a pipe's end from bytes, the call that moves bytes finds
/// the end. Into a file with a shared position too, without a claim.
#[test]
fn a_pipe_ends_in_a_file_whatever_tells_what_is_ready() {
    let _dog = watchdog("a_pipe_ends_in_a_file_whatever_tells_what_is_ready");
    let data = pattern(SIZE);
    let all = [DataPath::Splice, DataPath::ReadWrite];
    for errno in [Errno::ENOSYS, Errno::EPERM, Errno::EACCES, Errno::EINVAL] {
        for (refused, paths) in (1..=3).flat_map(|n| [(n, &all[..]), (n, &all[1..])]) {
            for (waits, by_engine) in [(true, false), (false, false), (true, true)] {
                let Source { fd, .. } = &Source::new(From::Pipe, &data);
                if !waits {
                    nonblocking(fd);
                }
                let sink = tempfile::tempfile().unwrap();
                let ends = [fd.try_clone().unwrap(), sink.try_clone().unwrap().into()];
                let [from, to] = ends;
                let transfer = Transfer::owning(from, to, only(paths)).unwrap();
                let report = without_looks(refused, errno, by_engine, transfer);
                let what = format!("{errno}, {refused}, {waits} {by_engine}: {report:?}");
                let length = data.len() as u64;
                assert_eq!(
                    (report.ended, report.written),
                    (Ended::Eof, length),
                    "{what}"
                );
                assert_eq!(report.path, common::carried_by(paths), "{what}");
                assert_eq!(common::position(&sink), length, "{what}");
                assert!(content(&sink) == data, "{what}");
            }
        }
    }
}

/// If the source has ended, the sink needs no reader, even if no other call reports
/// the end.
#[test]
fn a_pipe_that_has_ended_needs_no_reader_whatever_tells() {
    let _dog = watchdog("a_pipe_that_has_ended_needs_no_reader_whatever_tells");
    if testkit::needs::missing("a pipe that has ended", &[Need::Splice]) {
        return;
    }
    for (refused, bytes) in (1..=3).flat_map(|n| [(n, 0), (n, 1)]) {
        let (source, mut feed) = std::io::pipe().unwrap();
        let (_, sink) = std::io::pipe().unwrap();
        feed.write_all(&[7; 1][..bytes]).unwrap();
        drop(feed);
        let request = only(&[DataPath::Splice]);
        let transfer = Transfer::owning(source.into(), sink.into(), request).unwrap();
        let report = without_looks(refused, Errno::EPERM, false, transfer);
        let expected = match bytes {
            0 => (Ended::Eof, None),
            _ => (Ended::Error, Some(Errno::EPIPE)),
        };
        assert_eq!(
            (report.ended, report.errno),
            expected,
            "{refused}: {report:?}"
        );
    }
}

/// The end of the master of a pseudoterminal, which a hang-up distinguishes from an
/// error.
#[test]
fn a_pseudoterminal_ends_whatever_tells() {
    let _dog = watchdog("a_pseudoterminal_ends_whatever_tells");
    for refused in 1..=3 {
        let (master, slave) = common::pty();
        common::raw(&slave);
        rustix::io::write(&slave, b"typed").unwrap();
        drop(slave);
        let sink = tempfile::tempfile().unwrap();
        let to = sink.try_clone().unwrap().into();
        let transfer = Transfer::owning(master, to, any()).unwrap();
        let report = without_looks(refused, Errno::EPERM, false, transfer);
        assert_eq!(
            (report.ended, report.written),
            (Ended::Eof, 5),
            "{refused}: {report:?}"
        );
        assert_eq!(content(&sink), b"typed");
    }
}

/// With offsets in the request: positions and count are the same as with the refused
/// calls.
#[test]
fn no_call_takes_an_offset() {
    let _dog = watchdog("no_call_takes_an_offset");
    let data = pattern(SIZE);
    let calls = [libc::SYS_pread64, libc::SYS_pwrite64, libc::SYS_pwritev];
    for errno in [Errno::ENOSYS, Errno::EPERM, Errno::EACCES] {
        for paths in [
            &[DataPath::ReadWrite][..],
            &[DataPath::Splice, DataPath::ReadWrite],
        ] {
            for sparse in [cordboard::Sparse::Auto, cordboard::Sparse::Always] {
                let (source, sink) = (common::file_with(&data), common::file_with(b"here"));
                let request = Request {
                    source_offset: Some(1000),
                    sink_offset: Some(5000),
                    sparse,
                    ..only(paths)
                };
                let report = apart(|| {
                    refuse(&calls, errno);
                    run(&source, &sink, request).report
                });
                let what = format!("{errno} by {paths:?}, {sparse:?}: {report:?}");
                assert_eq!(report.ended, Ended::Eof, "{what}");
                assert_eq!(report.written, SIZE as u64 - 1000, "{what}");
                assert_eq!(common::position(&source), 0, "{what}");
                assert_eq!(common::position(&sink), 0, "{what}");
                let got = content(&sink);
                assert_eq!(&got[..4], b"here", "{what}");
                assert!(got[5000..] == data[1000..], "{what}");
            }
        }
        // A path that reaches the end reads one byte there.
        if !common::is_open(DataPath::Splice) {
            continue;
        }
        let source = common::file_with(&data);
        let (sink, reader) = slow_sink(From::Pipe);
        let report = apart(|| {
            refuse(&calls, errno);
            run(&source, &sink, only(&[DataPath::Splice])).report
        });
        drop(sink);
        assert_eq!(report.ended, Ended::Eof, "{errno}: {report:?}");
        assert!(reader.join().unwrap() == data, "{errno}");
    }
}

/// The sources have ended, the sink is full, and a filter refuses `FIONREAD`: `EAGAIN` of a
/// call between the fan-in's pipe and the sink is not the end.
#[test]
fn a_fan_in_whose_sink_is_full() {
    let _dog = watchdog("a_fan_in_whose_sink_is_full");
    let (source, mut feed) = std::io::pipe().unwrap();
    let (sink, mut end) = UnixStream::pair().unwrap();
    sink.set_nonblocking(true).unwrap();
    let data = pattern(1 << 20);
    let written = data.clone();
    let feeder = std::thread::spawn(move || feed.write_all(&written).unwrap());
    let fan = cordboard::FanIn::new(&[source.as_fd()], sink.as_fd(), any()).unwrap();
    let filled = sink.try_clone().unwrap();
    let reader = std::thread::spawn(move || {
        let is_full = || {
            let mut fds = [PollFd::new(&filled, PollFlags::OUT)];
            poll(&mut fds, Some(&Timespec::default())) == Ok(0)
        };
        while !is_full() {
            std::thread::yield_now();
        }
        drop(filled);
        let mut all = Vec::new();
        end.read_to_end(&mut all).unwrap();
        all
    });
    let outcome = apart(|| {
        testkit::refuse::refuse_where(libc::SYS_ioctl, 1, libc::FIONREAD as u32, libc::EPERM);
        fan.run().unwrap()
    });
    drop(sink);
    feeder.join().unwrap();
    assert!(outcome.is_complete(), "{outcome:?}");
    assert!(reader.join().unwrap() == data);
}
