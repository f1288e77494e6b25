//! Sources and sinks of every kind.

use std::num::NonZeroUsize;
use std::os::fd::AsFd;

use cordboard::{Buffered, Ended, Errno, Request, Size};
use testkit::{Expect, Sink, SinkKind, Spec};

use super::runs::{audit, buffered, request};
use crate::common::datagrams::{Sort, pair, put};
use crate::common::{
    BOUNDARIES, MIB, SOURCES, Source, content, content_of, file_with, pattern, position, watchdog,
};

#[test]
fn streams_of_all_kinds_are_sources() {
    let _dog = watchdog("streams_of_all_kinds_are_sources");
    for kind in SOURCES {
        let data = pattern(3 * MIB + 3);
        let source = Source::new(kind, &data);
        let (reader, sink) = std::io::pipe().unwrap();
        let got = std::thread::spawn(move || content_of(reader));
        let mut outcome = buffered(&source.fd, &sink, 1 << 20).run().unwrap();
        drop(sink);
        assert_eq!(outcome.ended, Ended::Eof, "{kind:?}: {outcome:?}");
        assert!(got.join().unwrap() == data, "{kind:?}");
        audit(&mut outcome);
    }
}

#[test]
fn sizes_at_the_ends_of_pages_and_pipes() {
    let _dog = watchdog("sizes_at_the_ends_of_pages_and_pipes");
    for length in BOUNDARIES {
        for size in [1000, 4096, 65_537, 3 * MIB as u64] {
            let data = pattern(length);
            let (source, sink) = (file_with(&data), file_with(b""));
            let mut outcome = buffered(&source, &sink, size).run().unwrap();
            assert_eq!(outcome.ended, Ended::Eof);
            assert!(content(&sink) == data, "{length} bytes, buffer of {size}");
            assert_eq!(position(&source), length as u64);
            audit(&mut outcome);
        }
    }
}

#[test]
fn every_kind_of_sink_gets_the_bytes() {
    let _dog = watchdog("every_kind_of_sink_gets_the_bytes");
    let length = 60_000;
    for kind in SinkKind::ALL {
        let name = format!("buffer before {}", kind.name());
        if let Some(why) = kind.unavailable() {
            testkit::skip::report(&name, &why);
            continue;
        }
        if matches!(kind, SinkKind::Full | SinkKind::Eventfd) {
            continue;
        }
        let spec = Spec::verify(length as u64);
        let sink = Sink::make(*kind, &spec).unwrap();
        let source = file_with(&testkit::pattern::bytes(0, length));
        let block = Request {
            block: NonZeroUsize::new(1000).filter(|_| kind.keeps_messages()),
            ..Request::default()
        };
        let mut outcome = Buffered::new(source.as_fd(), sink.as_fd(), 10_000, block)
            .unwrap()
            .run()
            .unwrap();
        assert_eq!(outcome.ended, Ended::Eof, "{name}: {outcome:?}");
        audit(&mut outcome);
        let got = sink.finish(length as u64).unwrap();
        got.check(&Expect::Pattern(length as u64), length as u64)
            .unwrap_or_else(|why| panic!("{name}: {why}"));
    }
}

/// The transfer to the sink collects a datagram or a block before it writes, for which the
/// buffer must have room.
#[test]
fn a_buffer_holds_what_the_sink_takes_at_once() {
    let _dog = watchdog("a_buffer_holds_what_the_sink_takes_at_once");
    const LENGTH: u64 = 20_000;
    let kinds = [
        SinkKind::Direct,
        SinkKind::Udp,
        SinkKind::UnixDatagram,
        SinkKind::UnixSeqpacket,
    ];
    for kind in kinds {
        let name = format!("small buffer before {}", kind.name());
        if let Some(why) = kind.unavailable() {
            testkit::skip::report(&name, &why);
            continue;
        }
        for size in [1, 7, 999, 5000] {
            let sink = Sink::make(kind, &Spec::verify(LENGTH)).unwrap();
            let source = file_with(&testkit::pattern::bytes(0, LENGTH as usize));
            let block = Request {
                block: NonZeroUsize::new(1400).filter(|_| kind.keeps_messages()),
                ..Request::default()
            };
            let running = request(&source, &sink, size, block);
            let unit = if kind.keeps_messages() { 1400 } else { 4096 };
            assert!(running.size() >= size.max(unit), "{name}");
            let mut outcome = running.run().unwrap();
            assert_eq!(outcome.ended, Ended::Eof, "{name}: {outcome:?}");
            assert_eq!(outcome.written, LENGTH, "{name}: {outcome:?}");
            audit(&mut outcome);
            let got = sink.finish(LENGTH).unwrap();
            got.check(&Expect::Pattern(LENGTH), LENGTH)
                .unwrap_or_else(|why| panic!("{name}: {why}"));
        }
    }
}

#[test]
fn a_buffer_holds_a_number_for_an_eventfd() {
    let _dog = watchdog("a_buffer_holds_a_number_for_an_eventfd");
    for size in [1, 7, 8, 9] {
        let source = file_with(&[5u64, 7].map(u64::to_ne_bytes).concat());
        let sink = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let mut outcome = buffered(&source, &sink, size).run().unwrap();
        assert_eq!((outcome.ended, outcome.written), (Ended::Eof, 16));
        assert_eq!(outcome.size, size.max(8));
        audit(&mut outcome);
        let mut sum = [0; 8];
        rustix::io::read(&sink, &mut sum).unwrap();
        assert_eq!(u64::from_ne_bytes(sum), 12);
    }
}

#[test]
fn datagrams_become_a_stream_or_are_refused() {
    let _dog = watchdog("datagrams_become_a_stream_or_are_refused");
    let (source, feed) = pair(Sort::Seqpacket);
    for n in 1..9u8 {
        put(&feed, &vec![n; 100 * usize::from(n)]);
    }
    drop(feed);
    let sink = file_with(b"");
    let mut outcome = buffered(&source, &sink, 1 << 20).run().unwrap();
    assert_eq!((outcome.ended, outcome.written), (Ended::Eof, 3600));
    assert_eq!(content(&sink).len(), 3600);
    audit(&mut outcome);
    let (sink, _end) = pair(Sort::Udp);
    let (_packets, pipe) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::DIRECT).unwrap();
    for sink in [sink, pipe] {
        let refused = Buffered::new(source.as_fd(), sink.as_fd(), 10, Request::default());
        let refused = refused.err().unwrap();
        assert_eq!(refused.0.errno(), Errno::EINVAL);
        assert!(refused.to_string().contains("messages"), "{refused}");
    }
    // The same file.
    let file = file_with(b"abc");
    let refused = Buffered::new(file.as_fd(), file.as_fd(), 10, Request::default());
    assert_eq!(refused.err().map(|its| its.0.errno()), Some(Errno::EINVAL));
}

#[test]
fn a_size_and_offsets_are_kept() {
    let _dog = watchdog("a_size_and_offsets_are_kept");
    let data = pattern(3 * MIB);
    let (source, sink) = (file_with(&data), file_with(b"before"));
    let part = Request {
        size: Size::Bytes(2 * MIB as u64),
        source_offset: Some(1000),
        sink_offset: Some(6),
        ..Request::default()
    };
    let mut outcome = request(&source, &sink, 100_000, part).run().unwrap();
    assert_eq!(
        (outcome.ended, outcome.written),
        (Ended::Size, 2 * MIB as u64)
    );
    assert_eq!(position(&source), 0);
    let got = content(&sink);
    assert!(got[..6] == *b"before" && got[6..] == data[1000..1000 + 2 * MIB]);
    audit(&mut outcome);
}
