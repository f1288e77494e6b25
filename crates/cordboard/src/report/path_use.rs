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
        /// It was the path of the best of the settings that the transfer measured.
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
    /// The size of its calls in bytes, or that of the blocks of [`DataPath::Direct`], if `chosen`
    /// is [`Chosen::Best`], or if an earlier transfer has found it ([`Chosen::Remembered`]).
    pub piece: Option<usize>,
    /// The number of blocks in flight of [`DataPath::Direct`], if it has measured several settings.
    pub depth: Option<u32>,
    /// The number of bytes that the transfer had written when this setting became the best; 0 if it
    /// was the first one. `None` unless `chosen` is [`Chosen::Best`].
    pub after: Option<u64>,
}

/// The best of the settings that a transfer has measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BestSetting {
    /// The size of calls or blocks in bytes.
    pub(crate) piece: usize,
    /// The number of blocks in flight.
    pub(crate) depth: Option<u32>,
    /// The bytes after which it became the best.
    pub(crate) after: u64,
}

impl PathUse {
    pub(crate) fn new(path: DataPath, bytes: u64, chosen: Chosen) -> PathUse {
        PathUse {
            path,
            bytes,
            chosen,
            piece: None,
            depth: None,
            after: None,
        }
    }

    pub(crate) fn set_best(&mut self, best: BestSetting) {
        self.chosen = Chosen::Best;
        self.piece = Some(best.piece);
        self.depth = best.depth;
        self.after = Some(best.after);
    }

    /// Returns whether measurements have chosen it, and not the route.
    #[cfg(feature = "serde")]
    pub(super) fn is_measured(&self) -> bool {
        !matches!(self.chosen, Chosen::First | Chosen::Next)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for PathUse {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let more = usize::from(self.piece.is_some())
            + usize::from(self.depth.is_some())
            + usize::from(self.after.is_some());
        let mut out = serializer.serialize_struct("PathUse", 3 + more)?;
        out.serialize_field("path", self.path.name())?;
        out.serialize_field("bytes", &self.bytes)?;
        out.serialize_field("chosen", self.chosen.name())?;
        if let Some(piece) = self.piece {
            out.serialize_field("piece", &piece)?;
        }
        if let Some(depth) = self.depth {
            out.serialize_field("depth", &depth)?;
        }
        if let Some(after) = self.after {
            out.serialize_field("after", &after)?;
        }
        out.end()
    }
}
