//! A reader that closes the sink while the source is silent.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::Duration;

use cordboard::DataPath::{ReadWrite, Splice};
use cordboard::{Control, Engine, Errno, Report, Request, Side, Stage, Transfer};
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use testkit::needs::{Need, missing};

use crate::common::{Same, any, carried_by, pty, raw, tcp_pair, watchdog};

/// A message as long as a read of an event counter.
const MESSAGE: [u8; 8] = *b"message.";

fn packets() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC;
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}

fn terminal() -> (OwnedFd, OwnedFd) {
    let (master, tty) = pty();
    raw(&tty);
    (master, tty)
}

const SOURCES: &[&str] = &[
    "pipe",
    "tcp",
    "unix",
    "packets",
    "datagrams",
    "udp",
    "terminal",
    "master",
    "counter",
];

/// Returns the end that feeds the source, and the source.
fn source(kind: &str) -> (OwnedFd, OwnedFd) {
    match kind {
        "pipe" => {
            let (reader, writer) = std::io::pipe().unwrap();
            (writer.into(), reader.into())
        }
        "tcp" => {
            let (near, far) = tcp_pair();
            (near.into(), far.into())
        }
        "unix" => {
            let (near, far) = UnixStream::pair().unwrap();
            (near.into(), far.into())
        }
        "packets" => packets(),
        "datagrams" => {
            let (near, far) = UnixDatagram::pair().unwrap();
            (near.into(), far.into())
        }
        "udp" => {
            let [near, far] = [(); 2].map(|()| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
            near.connect(far.local_addr().unwrap()).unwrap();
            (near.into(), far.into())
        }
        "terminal" => terminal(),
        "master" => {
            let (master, tty) = terminal();
            (tty, master)
        }
        _ => {
            let flags = rustix::event::EventfdFlags::CLOEXEC;
            let counter = rustix::event::eventfd(0, flags).unwrap();
            (counter.try_clone().unwrap(), counter)
        }
    }
}

/// Kinds of sinks, each with its errno after the reader is closed.
const SINKS: &[(&str, Errno)] = &[
    ("pipe", Errno::EPIPE),
    ("reset", Errno::EPIPE),
    ("unix", Errno::EPIPE),
    ("packets", Errno::EPIPE),
    ("terminal", Errno::EIO),
];

/// Returns the sink and its reader.
fn sink(kind: &str) -> (OwnedFd, OwnedFd) {
    match kind {
        "terminal" => {
            let (master, tty) = terminal();
            (tty, master)
        }
        "reset" => {
            let (near, far) = tcp_pair();
            set_socket_linger(&far, Some(Duration::ZERO)).unwrap();
            (near.into(), far.into())
        }
        kind => source(kind),
    }
}

const WAYS: &[&str] = &["sleeping", "staged", "stable", "idle", "control", "engine"];

fn by(way: &str, source: OwnedFd, sink: OwnedFd) -> Report {
    let control = Control::new().unwrap();
    let request = Request {
        idle: (way == "idle").then_some(Duration::from_secs(600)),
        stable: way == "stable",
        ..any()
    };
    let transfer = Transfer::owning(source, sink, request).unwrap();
    match way {
        "staged" => {
            let staged = transfer.stage(Stage::transforming(Same)).unwrap();
            staged.run().report
        }
        "control" => transfer.control(&control).run().report,
        "engine" => {
            let engine = Engine::new(Default::default()).unwrap();
            engine.start(transfer).unwrap().wait().report
        }
        _ => transfer.run().report,
    }
}

/// One message is moved, then the reader is closed while the source is silent.
#[test]
fn a_reader_that_goes_while_the_source_is_silent() {
    let _dog = watchdog("a_reader_that_goes_while_the_source_is_silent");
    let counters = !missing(
        "a_reader_that_goes_while_the_source_is_silent",
        &[Need::Eventfd],
    );
    for from in SOURCES {
        if *from == "counter" && !counters {
            continue;
        }
        for (to, errno) in SINKS {
            let messages = ["packets", "datagrams", "udp"].contains(from) || *to == "packets";
            for way in WAYS {
                if *way == "staged" && messages {
                    continue; // Their boundaries would be lost.
                }
                let what = format!("{from}, {to}, {way}");
                let (feed, source) = source(from);
                let (sink, reader) = sink(to);
                rustix::io::write(&feed, &MESSAGE).unwrap();
                let report = std::thread::scope(|scope| {
                    scope.spawn(move || {
                        let mut got = [0; MESSAGE.len()];
                        assert_eq!(rustix::io::read(&reader, &mut got), Ok(got.len()));
                        assert_eq!(got, MESSAGE);
                        drop(reader);
                    });
                    by(way, source, sink)
                });
                let end = (report.failed, report.errno);
                assert_eq!(end, (Some(Side::Sink), Some(*errno)), "{what}: {report:?}");
                let counts = (report.read, report.written, report.stranded);
                assert_eq!(counts, (8, 8, 0), "{what}: {report:?}");
                if (*from, *to, *way) == ("tcp", "reset", "sleeping") {
                    assert_eq!(report.path, carried_by(&[Splice, ReadWrite]));
                }
            }
        }
    }
}

/// A peer that has shut down its own direction still reads, and so does a process
/// that opens the slave of a pseudoterminal later.
#[test]
fn a_reader_that_only_writes_no_more_has_not_gone() {
    let _dog = watchdog("a_reader_that_only_writes_no_more_has_not_gone");
    for to in ["tcp", "unix", "packets", "master"] {
        for from in SOURCES {
            // Only with sources whose end is reported.
            if ["datagrams", "udp", "counter", "terminal"].contains(from) {
                continue;
            }
            for way in WAYS {
                if *way == "staged" && (*from == "packets" || to == "packets") {
                    continue;
                }
                let what = format!("{from}, {to}, {way}");
                let (feed, source) = source(from);
                let (sink, reader) = match to {
                    "master" => terminal(),
                    to => self::source(to),
                };
                let name = rustix::pty::ptsname(&sink, Vec::new()).ok();
                let reader = match &name {
                    Some(_) => None,
                    None => {
                        rustix::net::shutdown(&reader, rustix::net::Shutdown::Write).unwrap();
                        Some(reader)
                    }
                };
                let kept = sink.try_clone().unwrap();
                let report = std::thread::scope(|scope| {
                    scope.spawn(move || {
                        for _ in 0..2 {
                            rustix::io::write(&feed, &MESSAGE).unwrap();
                            std::thread::yield_now();
                        }
                    });
                    by(way, source, sink)
                });
                let end = (report.failed, report.errno, report.written);
                assert_eq!(end, (None, None, 16), "{what}: {report:?}");
                let reader = reader.unwrap_or_else(|| {
                    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NOCTTY;
                    let mode = rustix::fs::Mode::empty();
                    rustix::fs::open(name.unwrap(), flags, mode).unwrap()
                });
                let mut got = [0; 16];
                let n = rustix::io::read(reader.as_fd(), &mut got).unwrap();
                assert!(n > 0 && got[..8] == MESSAGE, "{what}");
                drop(kept);
            }
        }
    }
}
