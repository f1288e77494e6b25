//! Tests of the fixtures: the plain read/write loop moves the bytes that they describe.

use std::os::fd::AsFd;
use testkit::model::{self, Side};
use testkit::{Sink, SinkKind, Source, SourceKind, Spec, matrix, skip, watchdog};

/// Whether this result of the loop is right.
fn allowed(failed: Option<(Side, i32)>, sink: SinkKind, size: u64) -> bool {
    match sink {
        SinkKind::Full => failed == (size > 0).then_some((Side::Sink, libc::ENOSPC)),
        // A source may deliver pieces that are too short for these sinks.
        SinkKind::Direct | SinkKind::Eventfd => {
            failed.is_none() || failed == Some((Side::Sink, libc::EINVAL))
        }
        _ => failed.is_none(),
    }
}

fn row(kind: SourceKind) {
    for sink_kind in SinkKind::ALL.iter().copied() {
        for (size, nonblocking) in [(0, false), (4096, false), (65_536, true), (65_537, false)] {
            let name = format!("{} -> {}", kind.name(), sink_kind.name());
            if let Some(why) = matrix::unavailable(kind, sink_kind) {
                skip::report(&name, &why);
                continue;
            }
            let name = format!("{name}, {size} bytes, nonblocking {nonblocking}");
            let _watched = watchdog::watch(&name);
            let size = matrix::bounded(kind, sink_kind, size);
            let spec = Spec::verify(size).nonblocking(nonblocking);
            let source = Source::make(kind, &spec).unwrap();
            let sink = Sink::make(sink_kind, &spec).unwrap();
            let run = model::run(
                source.as_fd(),
                sink.as_fd(),
                source.ask.size(),
                sink_kind.piece(),
            );
            let size = source.expect.len();
            assert!(allowed(run.failed, sink_kind, size), "{name}: {run:?}");
            if run.failed.is_none() {
                assert_eq!(run.written, source.expect.len(), "{name}");
            }
            let found = sink.finish(run.written).unwrap();
            if let Err(wrong) = found.check(&source.expect, run.written) {
                panic!("{name}: {wrong}");
            }
        }
    }
}

macro_rules! rows {
    ($($test:ident $kind:ident)*) => { $(#[test] fn $test() { row(SourceKind::$kind); })* };
}

testkit::each_source!(rows);
