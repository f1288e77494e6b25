//! A full UNIX socket that is shut down: each write fails afterwards, while `poll(2)`
//! still shows it as full.

use std::time::Duration;

use cordboard::DataPath::{Datagram, ReadWrite};
use cordboard::{Control, DataPath, Engine, Errno, Report, Request, Side, Transfer};
use rustix::net::{Shutdown, SocketType, shutdown};
use testkit::stalled::{Trouble, stalled};

use super::asleep::asleep;
use super::{engine, others_go_on};
use crate::common::{self, any, only, pattern, watchdog};

const LENGTH: usize = 3000;

/// The way to run the transfer, which sleeps in `poll(2)`, or in a call on the
/// socket, before the shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunMode {
    Direct,
    Idle,
    Controlled,
    Engine,
}

const RUN_MODES: [RunMode; 4] = [
    RunMode::Direct,
    RunMode::Idle,
    RunMode::Controlled,
    RunMode::Engine,
];

#[derive(Debug, Clone, Copy)]
struct Case {
    kind: SocketType,
    from: common::From,
    mode: RunMode,
    nonblocking: bool,
    by_peer: bool,
}

fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for kind in [SocketType::STREAM, SocketType::SEQPACKET, SocketType::DGRAM] {
        for from in [
            common::From::File,
            common::From::Pipe,
            common::From::Unix,
            common::From::Tcp,
        ] {
            for mode in RUN_MODES {
                for nonblocking in [false, true] {
                    for by_peer in [false, true] {
                        // No event reports room in a datagram socket.
                        if by_peer && kind == SocketType::DGRAM {
                            continue;
                        }
                        all.push(Case {
                            kind,
                            from,
                            mode,
                            nonblocking,
                            by_peer,
                        });
                    }
                }
            }
        }
    }
    all
}

fn run(case: &Case, request: Request) -> Report {
    let (sink, peer) = testkit::full::unix(case.kind, LENGTH, case.nonblocking);
    let end = sink.try_clone().unwrap();
    let (from, feed) = super::source(case.from, &pattern(LENGTH));
    let shut = || match case.by_peer {
        true => shutdown(&peer, Shutdown::Read).unwrap(),
        false => shutdown(&end, Shutdown::Write).unwrap(),
    };
    let request = Request {
        idle: (case.mode == RunMode::Idle).then_some(Duration::from_secs(600)),
        ..request
    };
    let transfer = Transfer::owning(from, sink, request).unwrap();
    let report = match case.mode {
        RunMode::Direct | RunMode::Idle => asleep(transfer, shut).report,
        RunMode::Controlled => {
            let control = Control::new().unwrap();
            asleep(transfer.control(&control), shut).report
        }
        RunMode::Engine => {
            let engine: Engine = engine();
            let running = engine.start(transfer).unwrap();
            // By then the transfer has found no room.
            others_go_on(&engine);
            others_go_on(&engine);
            shut();
            running.wait().report
        }
    };
    drop(feed);
    report
}

/// Returns a request for read/write, if another path would be taken.
fn copies(case: &Case) -> Option<Request> {
    (case.kind == SocketType::STREAM).then(|| only(&[ReadWrite]))
}

/// All in parallel: each waits for a second at most.
#[test]
fn a_full_socket_that_is_shut_down_fails() {
    let _dog = watchdog("a_full_socket_that_is_shut_down_fails");
    std::thread::scope(|scope| {
        for (number, case) in cases().into_iter().enumerate() {
            let requests = match case.kind {
                SocketType::STREAM => super::routes(case.from),
                _ => vec![any()],
            };
            let requests = requests.into_iter().chain(copies(&case));
            for request in requests {
                // The watchdog prints the names of threads.
                let named = std::thread::Builder::new().name(format!("case {number}"));
                let body = move || {
                    let report = run(&case, request.clone());
                    let what = format!("{case:?} {request:?}: {report:?}");
                    let end = (report.failed, report.errno);
                    assert_eq!(end, (Some(Side::Sink), Some(Errno::EPIPE)), "{what}");
                    assert_eq!(report.written, 0, "{what}");
                    assert_eq!(report.read, report.stranded, "{what}");
                    // The report names no path if no byte was moved.
                    let messages = case.kind != SocketType::STREAM;
                    let is_its = |path: &DataPath| messages == (*path == Datagram);
                    assert!(report.path.iter().all(is_its), "{what}");
                    assert!(report.path.len() <= 1, "{what}");
                };
                named.spawn_scoped(scope, body).unwrap();
            }
        }
    });
}

/// A connection that is shut down here polls writable.
#[test]
fn a_full_connection_that_is_shut_down_fails_at_once() {
    let _dog = watchdog("a_full_connection_that_is_shut_down_fails_at_once");
    for nonblocking in [false, true] {
        let (sink, _peer, _) = stalled(Trouble::Small);
        sink.set_nonblocking(nonblocking).unwrap();
        let end = sink.try_clone().unwrap();
        // More than the room, even if the kernel allows some more.
        let (source, _feed) = super::source(common::From::Pipe, &pattern(super::SENT));
        let control = Control::new().unwrap();
        let transfer = Transfer::owning(source, sink.into(), any()).unwrap();
        let shut = || end.shutdown(std::net::Shutdown::Write).unwrap();
        let report = asleep(transfer.control(&control), shut).report;
        let end = (report.failed, report.errno);
        assert_eq!(end, (Some(Side::Sink), Some(Errno::EPIPE)), "{report:?}");
        assert!(report.written < super::SENT as u64, "{report:?}");
    }
}
