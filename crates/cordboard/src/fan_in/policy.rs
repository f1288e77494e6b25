//! How the sources take turns, and what happens if one fails.

use crate::named::named;

/// How the sources take turns. Every source that has bytes gets a turn before any other
/// source gets its next one. The fan-in does not wait for a source without bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Turn {
    /// A source gives at most this number of bytes in its turn. The turn may end at any
    /// byte. 0 counts as 1. Records of the kernel (of an eventfd) are not divided.
    ByTurn {
        /// The number of bytes of one turn.
        bytes: u64,
    },
    /// A source gives whole records, as many as fit into 64 KiB, but at least one. No
    /// byte of another source comes between the bytes of a record. Bytes after the last
    /// delimiter of a source are a record. A record longer than
    /// [`FanIn::longest_record`](super::FanIn::longest_record) is divided, and bytes of
    /// other sources may come between its pieces. [`SourceReport::divided`] counts such
    /// records.
    ///
    /// [`SourceReport::divided`]: super::SourceReport::divided
    ByRecord {
        /// The last byte of each record, for example `b'\n'`.
        delimiter: u8,
    },
    /// A source gives datagrams, up to 64 KiB of them, but at least one. Each datagram
    /// stays whole: a sink that preserves message boundaries receives it as one message.
    /// All sources must be datagram or sequenced-packet sockets, or pipes. Packets of a
    /// pipe (pipe(2), `O_DIRECT`) are datagrams. Other bytes in a pipe become datagrams
    /// of any length.
    ByDatagram,
}

impl Turn {
    /// The default number of bytes of a turn.
    pub const BYTES: u64 = 64 << 10;

    /// Returns the number of bytes of a turn.
    pub(super) fn bytes(self) -> u64 {
        match self {
            Turn::ByTurn { bytes } => bytes.max(1),
            Turn::ByRecord { .. } | Turn::ByDatagram => Turn::BYTES,
        }
    }
}

impl Default for Turn {
    fn default() -> Turn {
        Turn::ByTurn { bytes: Turn::BYTES }
    }
}

named! {
    /// What happens if a source fails.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    #[non_exhaustive]
    pub enum OnFailure {
        /// The fan-in ends with the error of the source, as a transfer from this source
        /// does. The sink gets every byte that was read, except for incomplete records
        /// of the other sources ([`Turn::ByRecord`]).
        #[default]
        End = "end",
        /// The fan-in continues with the other sources.
        Detach = "detach",
    }
    /// All policies.
    ALL
    /// Returns the name in the command's flags: `end`, `detach`.
    name
}
