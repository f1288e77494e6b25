//! How the sources take turns, and what happens if one fails.

use crate::named::named;

/// How the sources take turns. Every source that has bytes gets a turn before any other
/// gets its next one; a source without bytes is not waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Turn {
    /// A source gives up to so many bytes in its turn, wherever that cuts its bytes. 0
    /// counts as 1. Records of the kernel (an eventfd's) are not divided.
    ByTurn {
        /// Bytes of one turn.
        bytes: u64,
    },
    /// A source gives whole records, as many as fit into 64 KiB, but at least one. No
    /// byte of another source comes between the bytes of a record. The rest without a
    /// delimiter at the end of a source is a record. A record longer than
    /// [`FanIn::longest_record`](super::FanIn::longest_record) is divided, and other
    /// sources may come between its pieces; [`SourceReport::divided`] counts such
    /// records.
    ///
    /// [`SourceReport::divided`]: super::SourceReport::divided
    ByRecord {
        /// The last byte of each record, for example `b'\n'`.
        delimiter: u8,
    },
    /// A source gives its datagrams one after the other, up to 64 KiB of them, but at
    /// least one. Each stays whole; a sink that keeps message boundaries receives it as
    /// one message. All sources must be datagram or sequenced-packet sockets, or pipes.
    /// Packets of a pipe (pipe(2), `O_DIRECT`) are datagrams; other bytes in a pipe
    /// become datagrams of any length.
    ByDatagram,
}

impl Turn {
    /// Bytes of a turn, if the policy says nothing else.
    pub const BYTES: u64 = 64 << 10;

    /// Returns the bytes of a turn.
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
        /// The fan-in ends with its error, as a transfer from this source does. The sink
        /// gets every byte that was read.
        #[default]
        End = "end",
        /// The others continue without it.
        Detach = "detach",
    }
    /// All policies.
    ALL
    /// Returns the name in the command's flags: `end`, `detach`.
    name
}
