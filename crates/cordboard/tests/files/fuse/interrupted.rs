//! A FUSE server that fails each call with `EINTR`, as if for a signal: a cancel and
//! the idle limit end the transfer.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cordboard::{Buffered, Control, FanIn, FanOut, Outcome};

use super::*;

/// The number of failed calls that the test waits for.
const OFTEN: u32 = 100;

/// What ends the transfer.
#[derive(Debug, Clone, Copy, PartialEq)]
enum EndedBy {
    Cancel,
    Idle,
}

/// Runs the transfer until many calls have failed, and ends it.
fn ended(
    mut transfer: Transfer<'static>,
    engine: bool,
    by: EndedBy,
    failed: &AtomicU32,
) -> Outcome {
    let before = failed.load(Ordering::Relaxed);
    let often = || {
        while failed.load(Ordering::Relaxed).wrapping_sub(before) < OFTEN {
            std::thread::yield_now();
        }
    };
    if by == EndedBy::Idle {
        return match engine {
            true => transfer.start().unwrap().wait(),
            false => transfer.run(),
        };
    }
    if engine {
        let running = transfer.start().unwrap();
        often();
        running.cancel();
        return running.wait();
    }
    let control = Control::new().unwrap();
    transfer = transfer.control(&control);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| transfer.run());
        often();
        control.cancel();
        running.join().unwrap()
    })
}

fn transfer(
    source: OwnedFd,
    sink: OwnedFd,
    request: Request,
    by: EndedBy,
    staged: bool,
) -> Transfer<'static> {
    let request = Request {
        idle: (by == EndedBy::Idle).then_some(Duration::from_millis(10)),
        ..request
    };
    let transfer = Transfer::owning(source, sink, request).unwrap();
    match staged {
        true => transfer
            .stage(Stage::transforming(crate::common::Same))
            .unwrap(),
        false => transfer,
    }
}

fn check(report: &Report, by: EndedBy, staged: bool, good: u64, what: &str) {
    let what = format!("{by:?}, good up to {good}, {what}: {report:?}");
    let ended = match by {
        EndedBy::Cancel => Ended::Cancelled,
        EndedBy::Idle => Ended::Idle,
    };
    assert_eq!(report.ended, ended, "{what}");
    assert_eq!(report.errno, None, "{what}");
    assert!(report.written <= good, "{what}");
    if !staged {
        assert_eq!(report.read, report.written + report.stranded, "{what}");
    }
}

#[test]
fn a_file_that_is_interrupted_each_time_is_given_up() {
    let _dog = watchdog("a_file_that_is_interrupted_each_time_is_given_up");
    if !common::is_root() {
        testkit::skip::here("mounting needs root");
        return;
    }
    let data = pattern(1 << 20);
    let failed = AtomicU32::new(0);
    for (good, direct) in [(0, false), (0, true), (1 << 18, true)] {
        let gets = Mutex::default();
        let served = Served {
            holds: &data,
            claims: data.len() as u64,
            direct,
            fails: (good, Errno::EINTR.raw()),
            failed: Some(&failed),
            gets: Some(&gets),
            ..Served::default()
        };
        let mounted = with_file(served, |at| {
            let mut all = ways(&[CopyFileRange, Sendfile, Splice, ReadWrite]);
            for engine in [false, true] {
                let direct = Request {
                    direct: cordboard::Direct::Always,
                    ..only(&[Direct, ReadWrite])
                };
                all.push((direct, engine, false));
            }
            for by in [EndedBy::Cancel, EndedBy::Idle] {
                // Only past the page cache, which replaces a read's errno by
                // another.
                for kind in SOURCES.into_iter().filter(|_| direct) {
                    for (request, engine, staged) in all.clone() {
                        let what = format!("to {kind:?}, {request:?}, engine {engine}");
                        let (sink, reader) = sink(kind);
                        let source = File::open(at).unwrap().into();
                        let transfer = transfer(source, sink, request, by, staged);
                        let report = ended(transfer, engine, by, &failed).report;
                        check(&report, by, staged, good, &what);
                        assert!(reader.all() == data[..report.written as usize], "{what}");
                    }
                }
                for kind in SOURCES {
                    for (request, engine, staged) in all.clone() {
                        gets.lock().unwrap().clear();
                        let what = format!("from {kind:?}, {request:?}, engine {engine}");
                        let source = common::Source::new(kind, &data);
                        let sink = File::options().write(true).open(at).unwrap().into();
                        let transfer = transfer(source.fd, sink, request, by, staged);
                        let report = ended(transfer, engine, by, &failed).report;
                        check(&report, by, staged, good, &what);
                        let gets = gets.lock().unwrap();
                        assert!(gets.starts_with(&data[..report.written as usize]), "{what}");
                    }
                }
            }
        });
        if !mounted {
            testkit::skip::here("no FUSE here");
            return;
        }
    }
}

/// Only the sync at the end is interrupted: all bytes are written, but not synced.
#[test]
fn a_sync_that_is_interrupted_each_time_is_given_up() {
    let _dog = watchdog("a_sync_that_is_interrupted_each_time_is_given_up");
    if !common::is_root() {
        testkit::skip::here("mounting needs root");
        return;
    }
    let data = pattern(100_000);
    let failed = AtomicU32::new(0);
    let served = Served {
        sync: Errno::EINTR.raw(),
        never_syncs: true,
        failed: Some(&failed),
        ..Served::default()
    };
    let mounted = with_file(served, |at| {
        for engine in [false, true] {
            for by in [EndedBy::Cancel, EndedBy::Idle] {
                let request = Request {
                    sync: true,
                    ..common::any()
                };
                let source = common::Source::new(From::File, &data);
                let sink = File::options().write(true).open(at).unwrap().into();
                let transfer = transfer(source.fd, sink, request, by, false);
                let report = ended(transfer, engine, by, &failed).report;
                let what = format!("engine {engine}, {by:?}: {report:?}");
                assert_eq!(report.written, data.len() as u64, "{what}");
                let right = match by {
                    EndedBy::Cancel => (Ended::Cancelled, None, None),
                    // The request asks for a sync.
                    EndedBy::Idle => (Ended::Error, Some(Side::Sink), Some(Errno::EINTR)),
                };
                assert_eq!((report.ended, report.failed, report.errno), right, "{what}");
            }
        }
    });
    if !mounted {
        testkit::skip::here("no FUSE here");
    }
}

/// Takes the steps of a composition whose source has this name. Returns its end.
type Composed = fn(&Path, &Control, Request) -> Ended;

/// The source of a composition takes its steps between those of others.
#[test]
fn a_composition_whose_source_is_interrupted_each_time_is_given_up() {
    let _dog = watchdog("a_composition_whose_source_is_interrupted_each_time_is_given_up");
    if !common::is_root() {
        testkit::skip::here("mounting needs root");
        return;
    }
    let all: [Composed; 3] = [
        |at, control, request| {
            let (source, sinks) = (
                File::open(at).unwrap(),
                [(); 2].map(|()| common::file_with(b"")),
            );
            let fds = [sinks[0].as_fd(), sinks[1].as_fd()];
            let fan = FanOut::new(source.as_fd(), &fds, request).unwrap();
            fan.control(control).run().unwrap().ended
        },
        |at, control, request| {
            let (other, mut feed) = std::io::pipe().unwrap();
            feed.write_all(b"of another source").unwrap();
            let (source, sink) = (File::open(at).unwrap(), common::file_with(b""));
            let fds = [source.as_fd(), other.as_fd()];
            let fan = FanIn::new(&fds, sink.as_fd(), request).unwrap();
            let outcome = fan.control(control).run().unwrap();
            assert_eq!(outcome.sources[1].read, 17);
            outcome.ended
        },
        |at, control, request| {
            let (source, sink) = (File::open(at).unwrap(), common::file_with(b""));
            let size = 1 << 20;
            let buffered = Buffered::new(source.as_fd(), sink.as_fd(), size, request).unwrap();
            buffered.control(control).run().unwrap().ended
        },
    ];
    let data = pattern(1 << 20);
    let failed = AtomicU32::new(0);
    let served = Served {
        holds: &data,
        claims: data.len() as u64,
        direct: true,
        fails: (0, Errno::EINTR.raw()),
        failed: Some(&failed),
        ..Served::default()
    };
    let mounted = with_file(served, |at| {
        for (n, composed) in all.into_iter().enumerate() {
            for by in [EndedBy::Cancel, EndedBy::Idle] {
                let idle = (by == EndedBy::Idle).then_some(Duration::from_millis(100));
                let request = Request {
                    idle,
                    ..Request::default()
                };
                let control = Control::new().unwrap();
                let before = failed.load(Ordering::Relaxed);
                let ended = std::thread::scope(|scope| {
                    let running = scope.spawn(|| composed(at, &control, request));
                    if by == EndedBy::Cancel {
                        while failed.load(Ordering::Relaxed).wrapping_sub(before) < OFTEN {
                            std::thread::yield_now();
                        }
                        control.cancel();
                    }
                    running.join().unwrap()
                });
                let expected = match by {
                    EndedBy::Cancel => Ended::Cancelled,
                    EndedBy::Idle => Ended::Idle,
                };
                assert_eq!(ended, expected, "composition {n}");
            }
        }
    });
    if !mounted {
        testkit::skip::here("no FUSE here");
    }
}
