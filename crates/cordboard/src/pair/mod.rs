//! The facts about both endpoints together, on which the route depends.

mod capabilities;
mod relation;

pub use capabilities::Capabilities;
pub(crate) use capabilities::forget_for_ever;
pub use relation::Relation;
pub(crate) use relation::{are_same_sink, is_same, relation};

use crate::endpoint::Facts;
use crate::request::{Direct, Request, Size};

/// The input of the choice of a route. Make one with [`Pair::new`], and change
/// the fields that differ.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Pair<'a> {
    /// The facts of the source.
    pub source: &'a Facts,
    /// The facts of the sink.
    pub sink: &'a Facts,
    /// How the two are related.
    pub relation: Relation,
    /// The sink's range begins at or before the source's and overlaps it, or both are one
    /// pipe: each block must be read in full before any of it is written.
    pub overlapping: bool,
    /// The request.
    pub request: &'a Request,
    /// The direct I/O mode of the request, or of switches that force the direct
    /// path.
    pub(crate) direct_io: Direct,
}

impl<'a> Pair<'a> {
    /// Makes a pair of two unrelated endpoints.
    pub fn new(source: &'a Facts, sink: &'a Facts, request: &'a Request) -> Pair<'a> {
        Pair {
            source,
            sink,
            relation: Relation::Strangers,
            overlapping: false,
            request,
            direct_io: request.direct,
        }
    }

    /// Returns the offset at which reading starts, if the source can seek: that
    /// of the request, or its position.
    pub(crate) fn from(&self) -> Option<u64> {
        let position = self.source.position?;
        Some(self.request.source_offset.unwrap_or(position))
    }

    /// Returns the offset at which writing starts, in the same way.
    pub(crate) fn to(&self) -> Option<u64> {
        let position = self.sink.position?;
        Some(self.request.sink_offset.unwrap_or(position))
    }

    /// Returns the number of bytes to move, if it is known.
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
