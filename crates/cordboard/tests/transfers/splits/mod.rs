//! Any split of the work into transfers has the result of a plain loop: random
//! sizes, offsets, blocks and paths, one transfer after the other between the
//! same two descriptors.

mod early_end;
mod model;

use cordboard::{DataPath, Ended, Request, Size, Sparse, Switches, Transfer};
use model::Model;
use proptest::prelude::*;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use testkit::{Collected, Sink, SinkKind, Source, SourceKind, Spec, watchdog};

const SOURCES: [SourceKind; 10] = [
    SourceKind::File,
    SourceKind::Tmpfs,
    SourceKind::Memfd,
    SourceKind::Sparse,
    SourceKind::Direct,
    SourceKind::Pipe,
    SourceKind::Fifo,
    SourceKind::Tcp,
    SourceKind::UnixStream,
    SourceKind::UnixSeqpacket,
];

const SINKS: [SinkKind; 10] = [
    SinkKind::File,
    SinkKind::Tmpfs,
    SinkKind::Memfd,
    SinkKind::Append,
    SinkKind::Direct,
    SinkKind::Pipe,
    SinkKind::Fifo,
    SinkKind::Tcp,
    SinkKind::UnixStream,
    SinkKind::UnixSeqpacket,
];

/// The most bytes of one source.
const LARGEST: u64 = 300_000;

/// One transfer.
#[derive(Debug, Clone)]
struct Piece {
    size: Option<u64>,
    source_offset: Option<u64>,
    sink_offset: Option<u64>,
    block: Option<usize>,
    switches: Switches,
    sparse: Sparse,
    stable: bool,
}

impl Piece {
    fn request(&self) -> Request {
        Request {
            size: self.size.map_or(Size::Eof, Size::Bytes),
            source_offset: self.source_offset,
            sink_offset: self.sink_offset,
            block: self.block.and_then(NonZeroUsize::new),
            switches: Some(self.switches),
            sparse: self.sparse,
            stable: self.stable,
            ..Request::default()
        }
    }
}

/// Sizes near a boundary, and other sizes.
fn sizes() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..LARGEST,
        0..5000u64,
        prop::sample::select(vec![
            0, 1, 511, 512, 4095, 4096, 4097, 65_535, 65_536, 131_072
        ]),
    ]
}

/// Switches that disable any paths but the last.
fn some_switches() -> impl Strategy<Value = Switches> {
    prop::collection::vec(any::<bool>(), DataPath::ALL.len()).prop_map(|on| {
        let off = DataPath::ALL.iter().copied().zip(on).filter(|(_, on)| !on);
        let off = off.filter(|(path, _)| *path != DataPath::ReadWrite);
        off.fold(Switches::all(), |switches, (path, _)| {
            switches.without(path)
        })
    })
}

prop_compose! {
    fn pieces()(
        size in prop::option::weighted(0.8, sizes()),
        source_offset in prop::option::weighted(0.3, sizes()),
        sink_offset in prop::option::weighted(0.3, sizes()),
        block in prop::option::weighted(0.3, 100..60_000usize),
        switches in some_switches(),
        sparse in prop::sample::select(vec![Sparse::Auto, Sparse::Always, Sparse::Never]),
        stable in any::<bool>(),
    ) -> Piece {
        Piece { size, source_offset, sink_offset, block, switches, sparse, stable }
    }
}

fn run(
    from: SourceKind,
    to: SinkKind,
    total: u64,
    nonblocking: [bool; 2],
    pieces: &[Piece],
) -> Result<(), TestCaseError> {
    let spec = Spec::verify(total);
    let source = Source::make(from, &spec.nonblocking(nonblocking[0])).unwrap();
    let sink = Sink::make(to, &spec.nonblocking(nonblocking[1])).unwrap();
    let mut model = Model::new(&source, &sink);
    for piece in pieces {
        let mut piece = piece.clone();
        piece.source_offset = piece.source_offset.filter(|_| from.is_seekable());
        let seekable = sink.start.is_some() && to != SinkKind::Append;
        piece.sink_offset = piece.sink_offset.filter(|_| seekable);
        let _watched = watchdog::watch(format!("{from:?} -> {to:?}, {total} bytes, {pieces:?}"));
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), piece.request());
        let report = transfer
            .map_err(|e| TestCaseError::fail(e.to_string()))?
            .run()
            .report;
        let moved = model.transfer(&piece);
        prop_assert_eq!(report.written, moved.bytes, "{:?}: {:?}", piece, report);
        prop_assert_eq!(report.read, moved.bytes, "{:?}: {:?}", piece, report);
        let ended = if moved.ended { Ended::Eof } else { Ended::Size };
        prop_assert_eq!(report.ended, ended, "{:?}: {:?}", piece, report);
        for path in &report.path {
            prop_assert!(piece.switches.allows(*path), "{:?}: {:?}", piece, report);
        }
        if from.is_seekable() {
            let at = rustix::fs::tell(&source.fd).unwrap();
            prop_assert_eq!(
                at,
                model.source_position,
                "source, {:?}: {:?}",
                piece,
                report
            );
        }
        if seekable {
            let at = rustix::fs::tell(&sink.fd).unwrap();
            prop_assert_eq!(at, model.sink_position, "sink, {:?}: {:?}", piece, report);
        }
    }
    let written = model.sink.len() as u64;
    let Collected::Bytes(found, _) = sink.finish(written).unwrap() else {
        return Err(TestCaseError::fail("nothing was collected"));
    };
    prop_assert_eq!(found.len(), model.sink.len());
    let wrong = found.iter().zip(&model.sink).position(|(a, b)| a != b);
    prop_assert_eq!(wrong, None, "the first wrong byte");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_split_gives_the_same(
        from in prop::sample::select(SOURCES.to_vec()),
        to in prop::sample::select(SINKS.to_vec()),
        total in sizes(),
        nonblocking in any::<[bool; 2]>(),
        pieces in prop::collection::vec(pieces(), 1..6),
    ) {
        run(from, to, total, nonblocking, &pieces)?;
    }
}
