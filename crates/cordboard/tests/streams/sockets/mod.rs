//! Sockets that `poll(2)` reports ready although a call would block: no thread sleeps
//! in such a call, and none spins.

mod asleep;
mod deferred;
mod short_sends;
mod shut_down;
mod stepped;
mod unconnected;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use self::asleep::asleep;
use crate::common::{self, any, content_of, file_with, only, pattern, watchdog};
use cordboard::DataPath::{ReadWrite, Sendfile, Splice};
use cordboard::engine::Options;
use cordboard::{
    Control, Ended, Engine, Errno, Observer, Progress, Request, Running, Side, Transfer,
};
use testkit::stalled::{TROUBLES, Trouble, silent, stalled};

const SENT: usize = 60_000;
/// The limit of wake-ups and steps of an idle transfer. Polling every 5 ms would make
/// 200 per second.
const FEW: u32 = 24;

/// Makes a source with these bytes that does not end until the second is dropped.
fn source(kind: common::From, data: &[u8]) -> (OwnedFd, Option<OwnedFd>) {
    let (source, feed): (OwnedFd, OwnedFd) = match kind {
        common::From::File => return (file_with(data).into(), None),
        common::From::Pipe => {
            let (reader, writer) = std::io::pipe().unwrap();
            (reader.into(), writer.into())
        }
        common::From::Unix => {
            let (a, b) = UnixStream::pair().unwrap();
            (a.into(), b.into())
        }
        common::From::Tcp => {
            let (a, b) = common::tcp_pair();
            (a.into(), b.into())
        }
    };
    File::from(feed.try_clone().unwrap())
        .write_all(data)
        .unwrap();
    (source, Some(feed))
}

fn routes(kind: common::From) -> Vec<Request> {
    match kind {
        common::From::File => vec![any(), only(&[Sendfile, ReadWrite])],
        _ => common::any_and_each(&[Splice]),
    }
}

fn engine() -> Engine {
    let options = Options {
        workers: 1,
        ..Options::default()
    };
    Engine::new(options).unwrap()
}

/// Runs other transfers, on the reactor and on the only worker.
fn others_go_on(engine: &Engine) {
    let (source, feed) = std::io::pipe().unwrap();
    let (mut end, sink) = std::io::pipe().unwrap();
    let transfer = Transfer::owning(source.into(), sink.into(), any()).unwrap();
    let running = engine.start(transfer).unwrap();
    (&feed).write_all(b"hello").unwrap();
    end.read_exact(&mut [0; 5]).unwrap();
    drop(feed);
    assert_eq!(running.wait().report.ended, Ended::Eof);
    let (from, to) = (file_with(b"hello"), tempfile::tempfile().unwrap());
    let transfer = Transfer::owning(from.into(), to.into(), any()).unwrap();
    assert_eq!(engine.start(transfer).unwrap().wait().report.written, 5);
}

/// Counts the wake-ups.
struct Count(std::sync::Arc<std::sync::atomic::AtomicU32>);

impl Observer for Count {
    fn progress(&mut self, _: &Progress) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

struct Stalled {
    peer: std::net::TcpStream,
    filled: usize,
    feed: Option<OwnedFd>,
    running: Running,
    wakes: std::sync::Arc<std::sync::atomic::AtomicU32>,
    data: Vec<u8>,
    what: String,
}

impl Stalled {
    fn start(
        engine: &Engine,
        (trouble, kind): (Trouble, common::From),
        nonblocking: bool,
        request: Request,
    ) -> Stalled {
        let what = format!("{trouble:?} {kind:?} nonblocking: {nonblocking} {request:?}");
        let data = pattern(SENT);
        let (sink, peer, filled) = stalled(trouble);
        sink.set_nonblocking(nonblocking).unwrap();
        let (from, feed) = source(kind, &data);
        let wakes = std::sync::Arc::default();
        let transfer = Transfer::owning(from, sink.into(), request).unwrap();
        let transfer = transfer.observe(Count(std::sync::Arc::clone(&wakes)));
        Stalled {
            peer,
            filled,
            feed,
            running: engine.start(transfer).unwrap(),
            wakes,
            data,
            what,
        }
    }

    /// The peer reads and the source ends: all bytes arrive.
    fn arrives(self) {
        drop(self.feed);
        let reader = std::thread::spawn(move || content_of(self.peer));
        let report = self.running.wait().report;
        assert_eq!(
            (report.ended, report.written),
            (Ended::Eof, SENT as u64),
            "{}: {report:?}",
            self.what
        );
        let got = reader.join().unwrap();
        assert!(got[self.filled..] == self.data, "{}", self.what);
    }

    fn is_few(&self) {
        let wakes = self.wakes.load(std::sync::atomic::Ordering::Relaxed);
        assert!(wakes <= FEW, "{}: {wakes} wake-ups", self.what);
    }
}

fn every_stall(mut then: impl FnMut(Trouble, common::From, bool, &Request)) {
    for trouble in TROUBLES {
        for kind in common::SOURCES {
            for nonblocking in [false, true] {
                for request in routes(kind) {
                    then(trouble, kind, nonblocking, &request);
                }
            }
        }
    }
}

#[test]
fn a_stalled_connection_holds_up_nobody_else_on_its_engine() {
    let _dog = watchdog("a_stalled_connection_holds_up_nobody_else_on_its_engine");
    every_stall(|trouble, kind, nonblocking, request| {
        let engine = engine();
        let stalled = Stalled::start(&engine, (trouble, kind), nonblocking, request.clone());
        others_go_on(&engine);
        stalled.arrives();
        engine.shutdown();
    });
}

#[test]
fn a_stalled_connection_is_cancelled_at_once() {
    let _dog = watchdog("a_stalled_connection_is_cancelled_at_once");
    every_stall(|trouble, kind, nonblocking, request| {
        let engine = engine();
        let stalled = Stalled::start(&engine, (trouble, kind), nonblocking, request.clone());
        others_go_on(&engine);
        stalled.running.cancel();
        let outcome = stalled.running.wait();
        let report = outcome.report;
        assert_eq!(report.ended, Ended::Cancelled, "{}", stalled.what);
        assert_eq!(report.read, report.written + report.stranded);
        let back = common::handed_back(outcome.stranded);
        let (written, read) = (report.written as usize, report.read as usize);
        assert!(back == stalled.data[written..read], "{}", stalled.what);
        engine.shutdown();
    });
}

#[test]
fn a_stalled_connection_is_idle_and_keeps_no_processor_busy() {
    let _dog = watchdog("a_stalled_connection_is_idle_and_keeps_no_processor_busy");
    every_stall(|trouble, kind, nonblocking, request| {
        let engine = engine();
        let request = Request {
            idle: Some(Duration::from_millis(60)),
            ..request.clone()
        };
        let mut stalled = Stalled::start(&engine, (trouble, kind), nonblocking, request);
        let outcome = loop {
            if let Some(outcome) = stalled.running.try_wait() {
                break outcome;
            }
            std::thread::yield_now();
        };
        assert_eq!(outcome.report.ended, Ended::Idle, "{}", stalled.what);
        stalled.is_few();
        stalled.feed.take();
        engine.shutdown();
    });
}

/// On the caller's thread, where only a wake-up or a timeout ends the wait.
#[test]
fn a_stalled_connection_on_the_callers_thread() {
    let _dog = watchdog("a_stalled_connection_on_the_callers_thread");
    every_stall(|trouble, kind, nonblocking, request| {
        for idle in [false, true] {
            let what = format!("{trouble:?} {kind:?} {nonblocking} {request:?}, idle: {idle}");
            let data = pattern(SENT);
            let (sink, _peer, _) = stalled(trouble);
            sink.set_nonblocking(nonblocking).unwrap();
            let (from, _feed) = source(kind, &data);
            let request = Request {
                idle: idle.then_some(Duration::from_millis(60)),
                ..request.clone()
            };
            let control = Control::new().unwrap();
            let wakes = std::sync::Arc::default();
            let transfer = Transfer::owning(from, sink.into(), request).unwrap();
            let transfer = transfer.observe(Count(std::sync::Arc::clone(&wakes)));
            let outcome = match idle {
                true => transfer.run(),
                false => asleep(transfer.control(&control), || control.cancel()),
            };
            let report = outcome.report;
            let expected = if idle { Ended::Idle } else { Ended::Cancelled };
            assert_eq!(report.ended, expected, "{what}");
            let back = common::handed_back(outcome.stranded);
            let (written, read) = (report.written as usize, report.read as usize);
            assert!(back == data[written..read], "{what}");
            let wakes = wakes.load(std::sync::atomic::Ordering::Relaxed);
            assert!(wakes <= FEW, "{what}: {wakes} wake-ups");
        }
    });
}

/// The report names a path that was replaced. The transfer moves pages to a sink that
/// cannot block.
#[test]
fn a_blocking_connection_is_sent_to_and_one_that_is_not_gets_pages() {
    let _dog = watchdog("a_blocking_connection_is_sent_to_and_one_that_is_not_gets_pages");
    for kind in common::SOURCES {
        for nonblocking in [false, true] {
            let engine = engine();
            let (sink, peer) = common::tcp_pair();
            sink.set_nonblocking(nonblocking).unwrap();
            let data = pattern(SENT);
            let (from, feed) = source(kind, &data);
            drop(feed);
            rustix::io::ioctl_fionbio(&from, nonblocking).unwrap();
            let reader = std::thread::spawn(move || content_of(peer));
            let transfer = Transfer::owning(from, sink.into(), any()).unwrap();
            let report = engine.start(transfer).unwrap().wait().report;
            assert!(reader.join().unwrap() == data);
            // From socket to socket, read/write comes first in any case.
            let expected = match (nonblocking, kind) {
                (true, common::From::File) => common::carried_by(&[Sendfile, Splice, ReadWrite]),
                (true, common::From::Pipe | common::From::Tcp) => {
                    common::carried_by(&[Splice, ReadWrite])
                }
                _ => [ReadWrite],
            };
            assert_eq!(report.path, expected, "{kind:?} {report:?}");
            let declined = report.declined.iter().any(|d| d.path == Splice);
            let other = expected != [ReadWrite] || kind == common::From::Unix;
            assert_eq!(declined, !other, "{kind:?} {report:?}");
        }
    }
}

/// A source that is silent, and shows `POLLERR` all the time.
#[test]
fn a_silent_source_with_something_in_its_error_queue() {
    let _dog = watchdog("a_silent_source_with_something_in_its_error_queue");
    for trouble in [Trouble::Timestamps, Trouble::Zerocopy] {
        for path in common::forcible(&[Splice, ReadWrite]) {
            for (nonblocking, to_file) in [(false, false), (false, true), (true, false)] {
                for ending in 0..3 {
                    let what = format!("{trouble:?} {path} {nonblocking} {to_file} {ending}");
                    let engine = engine();
                    let (from, mut peer) = silent(trouble);
                    from.set_nonblocking(nonblocking).unwrap();
                    let (end, pipe) = std::io::pipe().unwrap();
                    let sink: OwnedFd = match to_file {
                        true => tempfile::tempfile().unwrap().into(),
                        false => pipe.into(),
                    };
                    let request = Request {
                        idle: (ending == 0).then_some(Duration::from_millis(60)),
                        ..only(&[path])
                    };
                    let wakes = std::sync::Arc::default();
                    let transfer = Transfer::owning(from.into(), sink, request).unwrap();
                    let transfer = transfer.observe(Count(std::sync::Arc::clone(&wakes)));
                    let running = engine.start(transfer).unwrap();
                    others_go_on(&engine);
                    let mut written = 0;
                    let ended = match ending {
                        0 => Ended::Idle,
                        1 => {
                            running.cancel();
                            Ended::Cancelled
                        }
                        // The bytes that follow wake it.
                        _ => {
                            for _ in 0..10 {
                                peer.write_all(b"hello").unwrap();
                                written += 5;
                                while running.status().written < written {
                                    std::thread::yield_now();
                                }
                            }
                            peer.shutdown(std::net::Shutdown::Write).unwrap();
                            Ended::Eof
                        }
                    };
                    let report = running.wait().report;
                    assert_eq!((report.ended, report.written), (ended, written), "{what}");
                    if ending == 0 {
                        let wakes = wakes.load(std::sync::atomic::Ordering::Relaxed);
                        assert!(wakes <= FEW, "{what}: {wakes} wake-ups");
                    }
                    drop(end);
                    engine.shutdown();
                }
            }
        }
    }
}

/// While a source is silent, the transfer polls its sink. An entry in the sink's
/// error queue is not the sink's end, and does not hide that end.
#[test]
fn a_sink_with_something_in_its_error_queue_is_watched() {
    let _dog = watchdog("a_sink_with_something_in_its_error_queue_is_watched");
    for trouble in [Trouble::Timestamps, Trouble::Zerocopy] {
        for dies in [false, true] {
            for on_engine in [false, true] {
                let (sink, peer) = silent(trouble);
                let (from, _feed) = std::io::pipe().unwrap();
                let request = Request {
                    idle: (!dies).then_some(Duration::from_millis(60)),
                    ..any()
                };
                let wakes = std::sync::Arc::default();
                let control = Control::new().unwrap();
                let transfer = Transfer::owning(from.into(), sink.into(), request).unwrap();
                let transfer = transfer.observe(Count(std::sync::Arc::clone(&wakes)));
                if dies {
                    let at_once = Some(Duration::ZERO);
                    rustix::net::sockopt::set_socket_linger(&peer, at_once).unwrap();
                }
                let kept = (!dies).then(|| peer.try_clone().unwrap());
                let report = if on_engine {
                    let engine = engine();
                    let running = engine.start(transfer).unwrap();
                    others_go_on(&engine);
                    drop(peer);
                    running.wait().report
                } else {
                    std::thread::scope(|scope| {
                        scope.spawn(move || drop(peer));
                        transfer.control(&control).run().report
                    })
                };
                if dies {
                    assert_eq!(report.failed, Some(Side::Sink), "{report:?}");
                    assert_eq!(report.errno, Some(Errno::EPIPE), "{report:?}");
                } else {
                    assert_eq!(report.ended, Ended::Idle, "{report:?}");
                    let wakes = wakes.load(std::sync::atomic::Ordering::Relaxed);
                    assert!(wakes <= FEW, "{trouble:?} {on_engine}: {wakes} wake-ups");
                }
                drop(kept);
            }
        }
    }
}

/// Datagrams, whose sockets have error queues too.
#[test]
fn a_silent_datagram_socket_with_something_in_its_error_queue() {
    use std::net::UdpSocket;
    let _dog = watchdog("a_silent_datagram_socket_with_something_in_its_error_queue");
    for (nonblocking, on_engine) in [(false, false), (false, true), (true, false), (true, true)] {
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        from.connect(peer.local_addr().unwrap()).unwrap();
        peer.connect(from.local_addr().unwrap()).unwrap();
        from.set_nonblocking(nonblocking).unwrap();
        let times = libc::SOF_TIMESTAMPING_TX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
        let name = libc::SO_TIMESTAMPING;
        testkit::stalled::set(&from, libc::SOL_SOCKET, name, times as i32);
        from.send(b"hello").unwrap();
        peer.recv(&mut [0; 5]).unwrap();
        while !testkit::stalled::shows(&from).contains(rustix::event::PollFlags::ERR) {
            std::thread::yield_now();
        }
        let (mut out, sink) = std::io::pipe().unwrap();
        let request = Request {
            idle: Some(Duration::from_millis(60)),
            ..any()
        };
        let wakes = std::sync::Arc::default();
        let transfer = Transfer::owning(from.into(), sink.into(), request).unwrap();
        let transfer = transfer.observe(Count(std::sync::Arc::clone(&wakes)));
        peer.send(b"before").unwrap();
        let running = std::thread::spawn(move || match on_engine {
            true => {
                let engine = engine();
                let running = engine.start(transfer).unwrap();
                running.wait().report
            }
            false => transfer.run().report,
        });
        out.read_exact(&mut [0; 6]).unwrap();
        // The transfer may or may not be asleep by now.
        peer.send(b"world").unwrap();
        out.read_exact(&mut [0; 5]).unwrap();
        let report = running.join().unwrap();
        assert_eq!((report.ended, report.written), (Ended::Idle, 11));
        let wakes = wakes.load(std::sync::atomic::Ordering::Relaxed);
        assert!(wakes <= FEW, "{nonblocking} {on_engine}: {wakes} wake-ups");
    }
}

/// If two transfers wait for one connection, both are woken, and the first takes the
/// bytes.
#[test]
fn two_transfers_that_read_one_connection() {
    let _dog = watchdog("two_transfers_that_read_one_connection");
    let engine = engine();
    let (from, mut peer) = common::tcp_pair();
    let (mut out, sink) = std::io::pipe().unwrap();
    let start = || {
        let (from, to) = (from.try_clone().unwrap(), sink.try_clone().unwrap());
        let transfer = Transfer::owning(from.into(), to.into(), any()).unwrap();
        engine.start(transfer).unwrap()
    };
    let both = [start(), start()];
    for _ in 0..20 {
        others_go_on(&engine);
        peer.write_all(b"hello").unwrap();
        out.read_exact(&mut [0; 5]).unwrap();
    }
    both.iter().for_each(Running::cancel);
    let written = both.map(|running| {
        let report = running.wait().report;
        assert_eq!(report.ended, Ended::Cancelled, "{report:?}");
        report.written
    });
    assert_eq!(written.iter().sum::<u64>(), 100);
    engine.shutdown();
}
