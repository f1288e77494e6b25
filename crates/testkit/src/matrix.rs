//! The sizes of the tests of every pair of a source and a sink.

use crate::sink::SinkKind;
use crate::source::SourceKind;

/// The sizes every pair is tried with.
pub const SIZES: [u64; 6] = [0, 1, 4095, 4096, 65_537, (1 << 20) + 1];

/// The size with which the table of paths is generated and checked.
pub const TABLE_SIZE: u64 = 1 << 20;

/// Limits `size` to the most bytes that both kinds of this pair are tested with.
pub fn bounded(source: SourceKind, sink: SinkKind, size: u64) -> u64 {
    let most = source.most().unwrap_or(u64::MAX);
    size.min(most).min(sink.most().unwrap_or(u64::MAX))
}

/// Returns why this pair is not available here, if so.
pub fn unavailable(source: SourceKind, sink: SinkKind) -> Option<String> {
    source.unavailable().or_else(|| sink.unavailable())
}
