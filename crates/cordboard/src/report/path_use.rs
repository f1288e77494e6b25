//! The bytes that each path of a transfer has moved.

use std::fmt;

use crate::named::named;
use crate::request::DataPath;

named! {
    /// Why a path was used.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum Chosen {
        /// It was the first of the route.
        First = "first",
        /// An earlier transfer of this process has found that it is the best between these kinds
        /// of source and sink, from this file system ([`Tune`](crate::Tune)). It was the first one.
        Remembered = "remembered",
        /// The paths before it in the route declined:
        /// [`Report::declined`](super::Report::declined).
        Next = "next",
        /// It was used while the transfer measured its paths
        /// ([`Tune`](crate::Tune)).
        Measured = "measured",
        /// It was the best of the paths that the transfer measured.
        Best = "best",
    }
    /// All values.
    ALL
    /// Returns the word of the JSON line: `first`, `remembered`, `next`, `measured`,
    /// `best`.
    name
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The bytes that one path has moved, and why it was used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathUse {
    /// The path.
    pub path: DataPath,
    /// Bytes that it took from the source, including the holes skipped before its
    /// steps. The sum over all paths is [`Report::read`](super::Report::read), unless
    /// holes were skipped and no path moved a byte.
    pub bytes: u64,
    /// Why it was used.
    pub chosen: Chosen,
    /// The size of its calls in bytes; `None` unless `chosen` is [`Chosen::Best`].
    pub piece: Option<usize>,
}

impl PathUse {
    pub(crate) fn new(path: DataPath, bytes: u64, chosen: Chosen) -> PathUse {
        PathUse {
            path,
            bytes,
            chosen,
            piece: None,
        }
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for PathUse {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let more = usize::from(self.piece.is_some());
        let mut out = serializer.serialize_struct("PathUse", 3 + more)?;
        out.serialize_field("path", self.path.name())?;
        out.serialize_field("bytes", &self.bytes)?;
        out.serialize_field("chosen", self.chosen.name())?;
        if let Some(piece) = self.piece {
            out.serialize_field("piece", &piece)?;
        }
        out.end()
    }
}
