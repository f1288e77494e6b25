//! The two endpoints of a transfer, with everything the route depends on.

mod capabilities;
mod relation;

pub use capabilities::Capabilities;
pub(crate) use capabilities::forget_for_ever;
pub use relation::Relation;
pub(crate) use relation::relation;

use crate::endpoint::Facts;
use crate::request::{Direct, Request, Size};

/// Everything the route depends on. Begin with [`Pair::new`], and change what
/// differs.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Pair<'a> {
    /// Where the bytes come from.
    pub source: &'a Facts,
    /// Where they go.
    pub sink: &'a Facts,
    /// How the two are related.
    pub relation: Relation,
    /// The sink's range begins inside the source's: each block must be read in
    /// full before any of it is written.
    pub overlapping: bool,
    /// What was asked for.
    pub request: &'a Request,
    /// Whether to go past the page cache, all told.
    pub(crate) direct: Direct,
}

impl<'a> Pair<'a> {
    /// Two strangers.
    pub fn new(source: &'a Facts, sink: &'a Facts, request: &'a Request) -> Pair<'a> {
        Pair {
            source,
            sink,
            relation: Relation::Strangers,
            overlapping: false,
            request,
            direct: request.direct,
        }
    }

    /// Where the source is read from: where it can seek, the offset of the
    /// request, or else its position.
    pub(crate) fn from(&self) -> Option<u64> {
        let position = self.source.position?;
        Some(self.request.source_offset.unwrap_or(position))
    }

    /// Where the sink is written to.
    pub(crate) fn to(&self) -> Option<u64> {
        let position = self.sink.position?;
        Some(self.request.sink_offset.unwrap_or(position))
    }

    /// Bytes there are to move, as far as is known.
    pub(crate) fn known(&self) -> Option<u64> {
        let here = self.from()?;
        let there = self.source.size.map(|size| size.saturating_sub(here));
        match (self.request.size, there) {
            (Size::Bytes(n), Some(there)) => Some(n.min(there)),
            (Size::Eof, there) => there,
            (Size::Bytes(n), None) => Some(n),
        }
    }
}
