//! Sources and sinks of every kind.

use std::os::fd::{AsFd, OwnedFd};

use cordboard::{FanIn, Request, Size};
use rustix::fs::{CWD, Mode, OFlags};
use testkit::{Sink, SinkKind, Spec};

use super::sources::{audit, fan, marked, of, request as request_fan};
use crate::common::{BOUNDARIES, MIB, SOURCES, Source, content, file_with, watchdog};

#[test]
fn streams_of_all_kinds_are_sources() {
    let _dog = watchdog("streams_of_all_kinds_are_sources");
    let length = MIB + 3;
    let data: Vec<_> = (0..SOURCES.len()).map(|n| marked(n, length)).collect();
    let sources: Vec<Source> = (SOURCES.iter().zip(&data))
        .map(|(kind, data)| Source::new(*kind, data))
        .collect();
    let sink = file_with(b"");
    let outcome = {
        let fds: Vec<_> = sources.iter().map(|source| source.fd.as_fd()).collect();
        let fan = FanIn::new(&fds, sink.as_fd(), Request::default()).unwrap();
        fan.run().unwrap()
    };
    assert!(outcome.is_complete(), "{outcome:?}");
    let got = content(&sink);
    assert_eq!(got.len(), SOURCES.len() * length);
    for (n, data) in data.iter().enumerate() {
        assert!(of(n, &got) == *data, "{:?}", SOURCES[n]);
    }
    audit(outcome);
}

/// A FIFO without a writer has ended if it is non-blocking, as `read(2)` reports. A blocking
/// one is silent, but no byte of it is wanted here.
#[test]
fn a_fifo_without_a_writer_ends_if_nothing_can_come() {
    let _dog = watchdog("a_fifo_without_a_writer_ends_if_nothing_can_come");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fifo");
    rustix::fs::mkfifoat(CWD, &path, Mode::RWXU).unwrap();
    for (nonblocking, size) in [(true, Size::Eof), (false, Size::Bytes(0))] {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let fifo = rustix::fs::open(&path, flags, Mode::empty()).unwrap();
        rustix::io::ioctl_fionbio(&fifo, nonblocking).unwrap();
        let sources = [fifo, file_with(b"abc").into()];
        let sink = file_with(b"");
        let request = Request {
            size,
            ..Request::default()
        };
        let outcome = request_fan(&sources, &sink, request).run().unwrap();
        assert!(outcome.is_complete(), "{outcome:?}");
        let expected: &[u8] = if nonblocking { b"abc" } else { b"" };
        assert_eq!(content(&sink), expected);
    }
}

#[test]
fn sizes_at_the_ends_of_pages_and_pipes() {
    let _dog = watchdog("sizes_at_the_ends_of_pages_and_pipes");
    for size in BOUNDARIES {
        let sources: Vec<OwnedFd> = [size, 1, size]
            .into_iter()
            .enumerate()
            .map(|(n, size)| file_with(&marked(n, size)).into())
            .collect();
        let sink = file_with(b"");
        let outcome = fan(&sources, &sink).run().unwrap();
        assert!(outcome.is_complete(), "{size}: {outcome:?}");
        let got = content(&sink);
        for (n, size) in [size, 1, size].into_iter().enumerate() {
            assert!(of(n, &got) == marked(n, size), "{size}");
        }
        audit(outcome);
    }
}

#[test]
fn every_kind_of_sink_gets_the_bytes() {
    let _dog = watchdog("every_kind_of_sink_gets_the_bytes");
    let length = 30_000;
    for kind in SinkKind::ALL {
        let name = format!("fan-in to {}", kind.name());
        if let Some(why) = kind.unavailable() {
            testkit::skip::report(&name, &why);
            continue;
        }
        if matches!(kind, SinkKind::Full | SinkKind::Eventfd) {
            continue;
        }
        let spec = Spec::verify(2 * length as u64);
        let sink = Sink::make(*kind, &spec).unwrap();
        let sources: Vec<OwnedFd> = (0..2)
            .map(|n| file_with(&testkit::pattern::bytes(n * length as u64, length)).into())
            .collect();
        let outcome = {
            let fds: Vec<_> = sources.iter().map(AsFd::as_fd).collect();
            let block = Request {
                block: std::num::NonZeroUsize::new(1000).filter(|_| kind.keeps_messages()),
                ..Request::default()
            };
            let fan = FanIn::new(&fds, sink.as_fd(), block).unwrap();
            fan.run().unwrap()
        };
        assert!(outcome.is_complete(), "{name}: {outcome:?}");
        audit(outcome);
        // One turn takes all of a source.
        let got = sink.finish(2 * length as u64).unwrap();
        let expected = testkit::Expect::Pattern(2 * length as u64);
        got.check(&expected, 2 * length as u64)
            .unwrap_or_else(|why| panic!("{name}: {why}"));
    }
}
