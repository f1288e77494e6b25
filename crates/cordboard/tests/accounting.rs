//! The report is exact in every ending, and what was read and not written is
//! rewound or handed back: sinks that die after n bytes, for every path and
//! for n at every boundary of pages, pipes and buffers.

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{From, Source, audit, content, file_with, only, pattern, run, watchdog};
use cordboard::PathName::{CopyFileRange, ReadWrite, Sendfile, Splice};
use cordboard::{
    Control, Ended, Errno, Observer, PathName, Progress, Request, Side, Sparse, Transfer,
};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const MIB: usize = 1 << 20;
const BOUNDARIES: [usize; 11] = [
    0,
    1,
    4095,
    4096,
    4097,
    65_535,
    65_536,
    65_537,
    MIB - 1,
    MIB,
    MIB + 1,
];

/// Every path from this kind of source to a sink of the given kind.
fn paths(from: From, to_file: bool, to_pipe: bool) -> &'static [PathName] {
    match (from, to_file, to_pipe) {
        (From::File, true, _) => &[CopyFileRange, Sendfile, Splice, ReadWrite],
        (From::File, false, false) => &[Sendfile, Splice, ReadWrite],
        _ => &[Splice, ReadWrite],
    }
}

const SOURCES: [From; 4] = [From::File, From::Pipe, From::Unix, From::Tcp];

#[test]
fn a_file_that_may_not_grow_any_more() {
    let _dog = watchdog("a_file_that_may_not_grow_any_more");
    if !common::alone("a_file_that_may_not_grow_any_more") {
        return;
    }
    let data = pattern(2 * MIB);
    let before = getrlimit(Resource::Fsize);
    for n in BOUNDARIES {
        for from in SOURCES {
            for path in paths(from, true, false) {
                let what = format!("{from:?} by {path}, {n}");
                let source = Source::new(from, &data);
                let sink = tempfile::tempfile().unwrap();
                setrlimit(
                    Resource::Fsize,
                    Rlimit {
                        current: Some(n as u64),
                        ..before
                    },
                )
                .unwrap();
                let outcome = run(&source.fd, &sink, only(&[*path]));
                setrlimit(Resource::Fsize, before).unwrap();
                let report = &outcome.report;
                assert_eq!(report.ended, Ended::Error, "{what}: {report:?}");
                let failure = (report.failed, report.errno, report.written);
                let expected = (Some(Side::Sink), Some(Errno::EFBIG), n as u64);
                assert_eq!(failure, expected, "{what}: {report:?}");
                assert!(content(&sink) == data[..n], "{what}: the sink's bytes");
                audit(&what, outcome, source, from, &data);
            }
        }
    }
}

/// A hole that the sink may not have is not counted as written.
#[test]
fn a_hole_that_goes_past_the_limit() {
    let _dog = watchdog("a_hole_that_goes_past_the_limit");
    if !common::alone("a_hole_that_goes_past_the_limit") {
        return;
    }
    let before = getrlimit(Resource::Fsize);
    let mut data = pattern(MIB);
    data[8192..600_000].fill(0);
    for (zeros_at_end, always) in [(false, false), (true, false), (false, true), (true, true)] {
        if zeros_at_end {
            data[600_000..].fill(0);
        }
        for from in [From::File, From::Pipe] {
            let what = format!("{from:?}, at the end: {zeros_at_end}, always: {always}");
            let source = Source::new(from, &data);
            if from == From::File {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&source.fd, flags, 8192, 512_000).unwrap();
            }
            let sink = tempfile::tempfile().unwrap();
            let limit = Rlimit {
                current: Some(100_000),
                ..before
            };
            setrlimit(Resource::Fsize, limit).unwrap();
            let sparse = if always { Sparse::Always } else { Sparse::Auto };
            let request = Request {
                sparse,
                ..only(&PathName::ALL)
            };
            let outcome = run(&source.fd, &sink, request);
            setrlimit(Resource::Fsize, before).unwrap();
            let report = &outcome.report;
            assert_eq!(report.errno, Some(Errno::EFBIG), "{what}: {report:?}");
            let got = content(&sink);
            assert_eq!(got.len() as u64, report.written, "{what}: {report:?}");
            assert!(got == data[..got.len()], "{what}");
            audit(&what, outcome, source, from, &data);
        }
    }
}

/// The sink's peer takes exactly `n` bytes and closes.
fn dies_after(n: usize, peer: OwnedFd) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut got = vec![0; n];
        File::from(peer).read_exact(&mut got).unwrap();
        got
    })
}

fn sink_that_dies(make: fn() -> (OwnedFd, OwnedFd), to_pipe: bool, errnos: &[Errno]) {
    // More than any sink here can hold behind its peer's back: a pipe of 256
    // slots takes up to 32 KiB from a socket in each.
    let data = pattern(12 * MIB);
    for n in BOUNDARIES {
        for from in SOURCES {
            for path in paths(from, false, to_pipe) {
                for polled in [false, true] {
                    let what = format!("{from:?} by {path}, {n}, polled: {polled}");
                    let source = Source::new(from, &data);
                    let (sink, peer) = make();
                    let peer = dies_after(n, peer);
                    let control = Control::new().unwrap();
                    let mut transfer =
                        Transfer::new(source.fd.as_fd(), sink.as_fd(), only(&[*path])).unwrap();
                    if polled {
                        transfer = transfer.control(&control);
                    }
                    let outcome = transfer.run();
                    let report = &outcome.report;
                    assert_eq!(report.ended, Ended::Error, "{what}: {report:?}");
                    assert_eq!(report.failed, Some(Side::Sink), "{what}: {report:?}");
                    assert!(
                        report.errno.is_some_and(|e| errnos.contains(&e)),
                        "{what}: {report:?}"
                    );
                    let got = peer.join().unwrap();
                    assert!(got == data[..n] && report.written >= n as u64, "{what}");
                    audit(&what, outcome, source, from, &data);
                }
            }
        }
    }
}

#[test]
fn a_pipe_whose_reader_leaves() {
    let _dog = watchdog("a_pipe_whose_reader_leaves");
    let make = || {
        let (reader, writer) = std::io::pipe().unwrap();
        (writer.into(), reader.into())
    };
    sink_that_dies(make, true, &[Errno::EPIPE]);
}

#[test]
fn a_socket_whose_peer_leaves() {
    let _dog = watchdog("a_socket_whose_peer_leaves");
    let make = || {
        let (a, b) = UnixStream::pair().unwrap();
        (a.into(), b.into())
    };
    sink_that_dies(make, false, &[Errno::EPIPE, Errno::ECONNRESET]);
}

#[test]
fn a_connection_that_is_reset() {
    let _dog = watchdog("a_connection_that_is_reset");
    let make = || {
        let (a, b) = common::tcp_pair();
        rustix::net::sockopt::set_socket_recv_buffer_size(&b, 32 << 10).unwrap();
        rustix::net::sockopt::set_socket_send_buffer_size(&a, 32 << 10).unwrap();
        (a.into(), b.into())
    };
    sink_that_dies(make, false, &[Errno::EPIPE, Errno::ECONNRESET]);
}

#[test]
fn a_source_that_is_reset() {
    let _dog = watchdog("a_source_that_is_reset");
    for path in [Splice, ReadWrite] {
        let (source, peer) = common::tcp_pair();
        let sink = tempfile::tempfile().unwrap();
        (&peer).write_all(b"hello").unwrap();
        rustix::net::sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).unwrap();
        drop(peer);
        let report = run(&source, &sink, only(&[path])).report;
        assert_eq!(report.failed, Some(Side::Source), "{report:?}");
        assert_eq!(report.errno, Some(Errno::ECONNRESET), "{report:?}");
        assert_eq!((report.written, report.stranded), (report.read, 0));
        assert_eq!(content(&sink).len() as u64, report.written);
    }
}

#[test]
fn the_size_is_reached_exactly_and_the_rest_stays() {
    let _dog = watchdog("the_size_is_reached_exactly_and_the_rest_stays");
    let data = pattern(2 * MIB);
    for n in BOUNDARIES {
        for from in SOURCES {
            for path in paths(from, true, false) {
                let what = format!("{from:?} by {path}, {n}");
                let source = Source::new(from, &data);
                let sink = tempfile::tempfile().unwrap();
                let request = Request {
                    size: (n as u64).into(),
                    ..only(&[*path])
                };
                let outcome = run(&source.fd, &sink, request);
                let report = &outcome.report;
                assert_eq!((report.ended, report.written), (Ended::Size, n as u64));
                assert_eq!(report.stranded, 0, "{what}: {report:?}");
                assert!(content(&sink) == data[..n], "{what}");
                audit(&what, outcome, source, from, &data);
            }
        }
    }
}

/// Cancels once nothing has moved between three looks.
struct WhenStuck<'a> {
    control: &'a Control,
    last: u64,
    same: u32,
}

impl Observer for WhenStuck<'_> {
    fn progress(&mut self, progress: &Progress) {
        self.same = if progress.written == self.last {
            self.same + 1
        } else {
            0
        };
        self.last = progress.written;
        if self.same > 3 {
            self.control.cancel();
        }
    }

    fn interval(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }
}

#[test]
fn cancelled_or_idle_with_a_sink_that_is_full() {
    let _dog = watchdog("cancelled_or_idle_with_a_sink_that_is_full");
    let data = pattern(12 * MIB);
    for from in SOURCES {
        for path in [Splice, ReadWrite] {
            for idle in [false, true] {
                let what = format!("{from:?} by {path}, idle: {idle}");
                let source = Source::new(from, &data);
                let (sink, mut peer) = UnixStream::pair().unwrap();
                let control = Control::new().unwrap();
                let mut stuck = WhenStuck {
                    control: &control,
                    last: 0,
                    same: 0,
                };
                let request = Request {
                    idle: idle.then_some(Duration::from_millis(5)),
                    ..only(&[path])
                };
                let mut transfer = Transfer::new(source.fd.as_fd(), sink.as_fd(), request).unwrap();
                if !idle {
                    transfer = transfer.control(&control).observe(&mut stuck);
                }
                let outcome = transfer.run();
                let expected = if idle { Ended::Idle } else { Ended::Cancelled };
                assert_eq!(outcome.report.ended, expected, "{what}");
                drop(sink);
                let mut got = Vec::new();
                peer.read_to_end(&mut got).unwrap();
                assert_eq!(got.len() as u64, outcome.report.written, "{what}");
                assert!(got == data[..got.len()], "{what}");
                audit(&what, outcome, source, from, &data);
            }
        }
    }
}

#[test]
fn cancelled_before_it_began_and_while_it_waited() {
    let _dog = watchdog("cancelled_before_it_began_and_while_it_waited");
    for path in [Splice, ReadWrite] {
        let control = Control::new().unwrap();
        control.cancel();
        let source = file_with(b"never asked for");
        let sink = tempfile::tempfile().unwrap();
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), only(&[path])).unwrap();
        let report = transfer.control(&control).run().report;
        assert_eq!((report.ended, report.read), (Ended::Cancelled, 0));

        let control = Control::new().unwrap();
        let (reader, mut feed) = std::io::pipe().unwrap();
        let (mut out, writer) = std::io::pipe().unwrap();
        feed.write_all(b"hello").unwrap();
        let report = std::thread::scope(|scope| {
            scope.spawn(|| {
                out.read_exact(&mut [0; 5]).unwrap();
                control.cancel();
            });
            let transfer = Transfer::new(reader.as_fd(), writer.as_fd(), only(&[path])).unwrap();
            transfer.control(&control).run().report
        });
        assert_eq!((report.ended, report.written), (Ended::Cancelled, 5));
        assert_eq!((report.read, report.stranded), (5, 0));
    }
}

extern "C" fn nothing(_: libc::c_int) {}

/// A handler without `SA_RESTART`, so that calls give `EINTR`.
fn interruptible() {
    // SAFETY: an all-zero sigaction is valid; the handler does nothing.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as *const () as usize;
    // SAFETY: installs it for a signal that nothing else here uses.
    unsafe { libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()) };
}

#[test]
fn signals_without_end_change_nothing() {
    let _dog = watchdog("signals_without_end_change_nothing");
    interruptible();
    let data = pattern(6 * MIB);
    for from in SOURCES {
        for path in paths(from, true, false) {
            for polled in [false, true] {
                let what = format!("{from:?} by {path}, polled: {polled}");
                let source = Source::new(from, &data);
                let sink = tempfile::tempfile().unwrap();
                let control = Control::new().unwrap();
                let done = AtomicBool::new(false);
                // SAFETY: takes nothing and returns this thread's handle.
                let me = unsafe { libc::pthread_self() };
                let outcome = std::thread::scope(|scope| {
                    scope.spawn(|| {
                        while !done.load(Ordering::Relaxed) {
                            // SAFETY: the thread outlives this scope.
                            unsafe { libc::pthread_kill(me, libc::SIGUSR1) };
                            std::thread::yield_now();
                        }
                    });
                    let mut transfer =
                        Transfer::new(source.fd.as_fd(), sink.as_fd(), only(&[*path])).unwrap();
                    if polled {
                        transfer = transfer.control(&control);
                    }
                    let outcome = transfer.run();
                    done.store(true, Ordering::Relaxed);
                    outcome
                });
                let report = &outcome.report;
                assert_eq!(report.ended, Ended::Eof, "{what}: {report:?}");
                assert_eq!(report.written, data.len() as u64, "{what}");
                assert!(content(&sink) == data, "{what}");
                audit(&what, outcome, source, from, &data);
            }
        }
    }
}
