//! Any sequence of transfers has the result of a plain loop: the same files, the
//! same counts, the same positions.

use std::num::NonZeroUsize;
use std::os::fd::AsFd;

use super::{CancelAt, direct};
use crate::common::{content, file_with, pattern, position, watchdog};
use cordboard::{Control, DataPath, Direct, Ended, Request, Size, Switches, Transfer, Watermarks};
use proptest::prelude::*;

/// The most bytes of the source.
const LARGEST: u64 = 3 << 20;

#[derive(Debug, Clone)]
struct Piece {
    size: Option<u64>,
    source_offset: Option<u64>,
    sink_offset: Option<u64>,
    block: Option<usize>,
    marks: Option<(u32, u32, u32)>,
    cancel_at: Option<u64>,
    sleeping: bool,
}

/// An offset near the boundary of a block, or anywhere.
fn places() -> impl Strategy<Value = u64> {
    prop_oneof![
        (0..LARGEST / 4096).prop_map(|n| n * 4096),
        (0..LARGEST / 4096, 0..3u64).prop_map(|(n, off)| n * 4096 + off),
        0..LARGEST,
    ]
}

prop_compose! {
    fn pieces()(
        size in prop::option::weighted(0.7, places()),
        source_offset in prop::option::weighted(0.4, places()),
        sink_offset in prop::option::weighted(0.4, places()),
        block in prop::option::weighted(0.4, 4096..1_000_000usize),
        marks in prop::option::weighted(0.4, (0..4u32, 0..6u32, 0..6u32)),
        cancel_at in prop::option::weighted(0.3, 0..LARGEST),
        sleeping in any::<bool>(),
    ) -> Piece {
        Piece { size, source_offset, sink_offset, block, marks, cancel_at, sleeping }
    }
}

fn request(piece: &Piece) -> Request {
    Request {
        size: piece.size.map_or(Size::Eof, Size::Bytes),
        source_offset: piece.source_offset,
        sink_offset: piece.sink_offset,
        block: piece.block.and_then(NonZeroUsize::new),
        watermarks: piece.marks.map(|(reads, writes, burst)| Watermarks {
            reads,
            writes,
            burst,
        }),
        direct: Direct::Always,
        switches: Some(Switches::only(&[DataPath::Direct, DataPath::ReadWrite])),
        ..direct()
    }
}

fn run(total: usize, pieces: &[Piece]) -> Result<(), TestCaseError> {
    let data = pattern(total);
    let (source, sink) = (file_with(&data), tempfile::tempfile().unwrap());
    let mut model: Vec<u8> = Vec::new();
    let (mut at_source, mut at_sink) = (0, 0);
    for piece in pieces {
        let from = piece.source_offset.unwrap_or(at_source);
        let to = piece.sink_offset.unwrap_or(at_sink);
        let there = (total as u64).saturating_sub(from);
        let whole = piece.size.map_or(there, |size| size.min(there));
        let mut control = Control::new().unwrap();
        if piece.sleeping {
            control = control.interrupting();
        }
        let observer = CancelAt(piece.cancel_at.unwrap_or(u64::MAX), control.clone());
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request(piece))
            .map_err(|e| TestCaseError::fail(e.to_string()))?;
        let report = transfer.control(&control).observe(observer).run().report;
        let written = report.written;
        prop_assert_eq!(report.read, written, "{:?}: {:?}", piece, report);
        if report.ended == Ended::Cancelled {
            prop_assert!(piece.cancel_at.is_some_and(|at| at <= written) && written <= whole);
        } else {
            prop_assert_eq!(written, whole, "{:?}: {:?}", piece, report);
        }
        if written > 0 {
            let (from, to, length) = (from as usize, to as usize, written as usize);
            model.resize(model.len().max(to + length), 0);
            model[to..to + length].copy_from_slice(&data[from..from + length]);
        }
        at_source += if piece.source_offset.is_none() {
            written
        } else {
            0
        };
        at_sink += if piece.sink_offset.is_none() {
            written
        } else {
            0
        };
        prop_assert_eq!(position(&source), at_source, "{:?}: {:?}", piece, report);
        prop_assert_eq!(position(&sink), at_sink, "{:?}: {:?}", piece, report);
        // Blocks in flight behind a cancel may have overwritten old bytes there.
        if report.ended == Ended::Cancelled {
            let found = content(&sink);
            prop_assert_eq!(found.len(), model.len(), "{:?}: {:?}", piece, report);
            let past = (to + written) as usize;
            let end = model.len().min((to + whole) as usize);
            if past < end {
                model[past..end].copy_from_slice(&found[past..end]);
            }
            rustix::fs::seek(&sink, rustix::fs::SeekFrom::Start(at_sink)).unwrap();
        }
    }
    let found = content(&sink);
    prop_assert_eq!(found.len(), model.len());
    let wrong = found.iter().zip(&model).position(|(a, b)| a != b);
    prop_assert_eq!(wrong, None, "the first wrong byte");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_gives_the_same(
        total in places(),
        pieces in prop::collection::vec(pieces(), 1..5),
    ) {
        let _dog = watchdog("any_sequence_gives_the_same");
        run(total as usize, &pieces)?;
    }
}
