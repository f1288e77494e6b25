//! The names of the data paths, and the reasons why a path was not taken.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::errno::Errno;
use crate::named::named;

named! {
    /// A way to move bytes, in the kernel where possible.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[non_exhaustive]
    pub enum DataPath {
        /// Shares the blocks: `FICLONE`, `FICLONERANGE`.
        Clone = "clone",
        /// Bypasses the page cache: `O_DIRECT`, several blocks in flight.
        Direct = "direct",
        /// `copy_file_range(2)`.
        CopyFileRange = "copy_file_range",
        /// `sendfile(2)`.
        Sendfile = "sendfile",
        /// `splice(2)`; through a private pipe if neither side is a pipe, or if the
        /// other side may block a call.
        Splice = "splice",
        /// `recvmmsg(2)` and `sendmmsg(2)`, message boundaries kept.
        Datagram = "datagram",
        /// A buffer in user space: the fallback for everything.
        ReadWrite = "read/write",
    }
    /// All paths.
    ALL
    /// Returns the name in reports and switches: `copy_file_range`, `read/write`.
    name
}

impl DataPath {
    pub(crate) const fn bit(self) -> u32 {
        1 << self as u8
    }
}

impl fmt::Display for DataPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that is not the name of a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{origin}`{word}` is not a data path: use {}", names())]
pub struct BadSwitch {
    /// The word.
    pub word: String,
    /// Where it came from, with a colon: `CORDBOARD_ROUTE: `; or empty.
    pub origin: &'static str,
}

/// All names, for a message: `clone, direct or read/write`.
fn names() -> String {
    let names: Vec<&str> = DataPath::ALL.iter().map(|path| path.name()).collect();
    match names.split_last() {
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

impl FromStr for DataPath {
    type Err = BadSwitch;

    fn from_str(word: &str) -> Result<DataPath, BadSwitch> {
        let name = word.trim().to_ascii_lowercase();
        let by_name = DataPath::ALL.iter().find(|path| path.name() == name);
        match (by_name, name.as_str()) {
            (Some(path), _) => Ok(*path),
            (None, "reflink") => Ok(DataPath::Clone),
            (None, "o_direct") => Ok(DataPath::Direct),
            (None, "copy-file-range" | "cfr") => Ok(DataPath::CopyFileRange),
            (None, "read-write" | "read_write" | "readwrite" | "rw") => Ok(DataPath::ReadWrite),
            (None, _) => Err(BadSwitch {
                word: word.to_owned(),
                origin: "",
            }),
        }
    }
}

/// Why a path was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// The kernel refused with this errno, or is known to refuse this pair.
    Errno(Errno),
    /// The path does not support these kinds of descriptors.
    Kinds(&'static str),
    /// The path has to wait, and a filter refuses `poll(2)` and `select(2)`.
    CannotWait,
    /// Another reason.
    Words(Cow<'static, str>),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Errno(errno) => match errno.name() {
                Some(name) => f.write_str(name),
                None => write!(f, "errno {}", errno.raw()),
            },
            Why::Kinds(words) => f.write_str(words),
            Why::CannotWait => {
                f.write_str("poll(2) and select(2) are refused, so readiness is unknown")
            }
            Why::Words(words) => f.write_str(words),
        }
    }
}

impl From<Errno> for Why {
    fn from(errno: Errno) -> Why {
        Why::Errno(errno)
    }
}

impl From<&'static str> for Why {
    fn from(words: &'static str) -> Why {
        Why::Words(Cow::Borrowed(words))
    }
}

/// A preferred path that was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Declined {
    /// The path.
    pub path: DataPath,
    /// Why it was not taken.
    pub why: Why,
}

#[cfg(feature = "serde")]
impl serde::Serialize for Declined {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut out = serializer.serialize_struct("Declined", 2)?;
        out.serialize_field("path", self.path.name())?;
        out.serialize_field("why", &self.why.to_string())?;
        out.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errno_is_a_name_or_a_number() {
        assert_eq!(Why::from(Errno::EBADE).to_string(), "EBADE");
        assert_eq!(Why::from(Errno::from_raw(9999)).to_string(), "errno 9999");
    }
}
