//! A cell of the table of pairs.

use testkit::table::Entry;
use testkit::{SinkKind, SourceKind};

/// A cell with a lower ratio is measured again, and reported as slow.
pub const SLOW: f64 = 0.95;

/// One cell of the table.
pub struct Cell {
    pub source: SourceKind,
    pub sink: SinkKind,
    pub entry: Entry,
}
