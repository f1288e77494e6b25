//! Sinks of every kind get every byte.

use std::os::fd::{AsFd, OwnedFd};

use cordboard::fan_out::{Carry, SinkEnded};
use cordboard::{DataPath, Ended, FanOut, Request, Size};
use testkit::{Expect, Sink, SinkKind, Spec};

use super::readers::{audit, fan, joined, pipes, read_all, request};
use crate::common::{
    BOUNDARIES, MIB, SOURCES, Source, content, file_with, pattern, position, watchdog,
};

#[test]
fn two_pipes_get_a_file_by_tee_and_splice() {
    if testkit::needs::missing(
        "two_pipes_get_a_file_by_tee_and_splice",
        &[testkit::needs::Need::Splice],
    ) {
        return;
    }
    let _dog = watchdog("two_pipes_get_a_file_by_tee_and_splice");
    let data = pattern(5 * MIB + 17);
    let source = file_with(&data);
    let (readers, writers) = pipes(2);
    let readers = read_all(readers);
    let outcome = fan(&source, &writers).run().unwrap();
    drop(writers);
    assert_eq!(
        (outcome.ended, outcome.read),
        (Ended::Eof, data.len() as u64)
    );
    assert!(outcome.is_complete());
    assert_eq!(outcome.source.path, [DataPath::Splice]);
    assert_eq!(position(&source), data.len() as u64);
    for got in joined(readers) {
        assert!(got == data);
    }
    let sinks = audit(outcome);
    assert!(sinks[0].0.carried.contains(&Carry::Tee), "{sinks:?}");
    assert!(sinks[1].0.carried.contains(&Carry::Splice), "{sinks:?}");
    for (sink, _) in sinks {
        assert_eq!(
            (sink.ended, sink.written),
            (SinkEnded::Complete, data.len() as u64)
        );
        assert_eq!(sink.declined, None);
    }
}

#[test]
fn sizes_at_the_ends_of_pages_and_pipes() {
    let _dog = watchdog("sizes_at_the_ends_of_pages_and_pipes");
    for size in BOUNDARIES {
        let data = pattern(size);
        let source = file_with(&data);
        let (readers, mut sinks) = pipes(3);
        let file = file_with(b"");
        sinks.push(OwnedFd::from(file.try_clone().unwrap()));
        let readers = read_all(readers);
        let outcome = fan(&source, &sinks).run().unwrap();
        drop(sinks);
        assert!(outcome.is_complete(), "{size}: {outcome:?}");
        assert_eq!(outcome.read, size as u64);
        assert!(joined(readers).iter().all(|got| *got == data), "{size}");
        assert!(content(&file) == data, "{size}");
        audit(outcome);
    }
}

#[test]
fn a_size_is_not_exceeded() {
    let _dog = watchdog("a_size_is_not_exceeded");
    let data = pattern(3 * MIB);
    let source = file_with(&data);
    let (readers, writers) = pipes(2);
    let readers = read_all(readers);
    let size = 2 * MIB + 5;
    let limited = Request {
        size: Size::Bytes(size as u64),
        ..Request::default()
    };
    let outcome = request(&source, &writers, limited).run().unwrap();
    drop(writers);
    assert_eq!((outcome.ended, outcome.read), (Ended::Size, size as u64));
    assert_eq!(position(&source), size as u64);
    assert!(joined(readers).iter().all(|got| *got == data[..size]));
    audit(outcome);
}

/// All kinds of sinks of one stream at once, beside two pipes.
#[test]
fn every_kind_of_sink_gets_the_bytes_beside_two_pipes() {
    let _dog = watchdog("every_kind_of_sink_gets_the_bytes_beside_two_pipes");
    let length = 64 << 10;
    for kind in SinkKind::ALL {
        let name = format!("fan-out to {}", kind.name());
        if let Some(why) = kind.unavailable() {
            testkit::skip::report(&name, &why);
            continue;
        }
        if matches!(kind, SinkKind::Full | SinkKind::Eventfd) {
            continue;
        }
        let data = testkit::pattern::bytes(0, length);
        let spec = Spec::verify(length as u64);
        let sink = Sink::make(*kind, &spec).unwrap();
        let source = file_with(&data);
        let (readers, writers) = pipes(2);
        let readers = read_all(readers);
        let outcome = {
            let sinks = [writers[0].as_fd(), sink.as_fd(), writers[1].as_fd()];
            let block = Request {
                block: std::num::NonZeroUsize::new(1000).filter(|_| kind.keeps_messages()),
                ..Request::default()
            };
            FanOut::new(source.as_fd(), &sinks, block)
                .unwrap()
                .run()
                .unwrap()
        };
        drop(writers);
        assert!(outcome.is_complete(), "{name}: {outcome:?}");
        assert!(joined(readers).iter().all(|got| *got == data), "{name}");
        let sinks = audit(outcome);
        assert_eq!(sinks[1].0.written, length as u64, "{name}");
        let direct = matches!(kind, SinkKind::Pipe | SinkKind::Fifo);
        assert_eq!(sinks[1].0.transfer.is_none(), direct, "{name}");
        let got = sink.finish(length as u64).unwrap();
        let expected = Expect::Pattern(length as u64);
        got.check(&expected, length as u64)
            .unwrap_or_else(|why| panic!("{name}: {why}"));
    }
}

#[test]
fn streams_of_all_kinds_are_sources() {
    let _dog = watchdog("streams_of_all_kinds_are_sources");
    for from in SOURCES {
        let data = pattern(2 * MIB + 3);
        let source = Source::new(from, &data);
        let (readers, writers) = pipes(2);
        let readers = read_all(readers);
        let outcome = {
            let sinks = [writers[0].as_fd(), writers[1].as_fd()];
            FanOut::new(source.fd.as_fd(), &sinks, Request::default())
                .unwrap()
                .run()
                .unwrap()
        };
        drop(writers);
        assert!(outcome.is_complete(), "{from:?}: {outcome:?}");
        assert!(joined(readers).iter().all(|got| *got == data), "{from:?}");
        audit(outcome);
    }
}
