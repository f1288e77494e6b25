//! The account of a buffered transfer.

use super::unwritten::Unwritten;
use crate::endpoint::Side;
use crate::errno::Errno;
use crate::report::{Ended, Refusal, Report};

/// A buffered transfer was refused before any byte moved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
#[non_exhaustive]
pub struct Refused(pub Refusal);

/// The account of a buffered transfer that has ended: `read == written + stranded` in
/// every ending.
#[derive(Debug)]
#[non_exhaustive]
pub struct BufferedOutcome {
    /// Bytes that were read from the source. A seekable source is rewound over bytes
    /// that the sink did not get; they do not count.
    pub read: u64,
    /// Bytes that the sink has accepted.
    pub written: u64,
    /// Bytes that were read and not written, which are in
    /// [`BufferedOutcome::unwritten`].
    pub stranded: u64,
    /// Why it ended.
    pub ended: Ended,
    /// The side that has failed. `None` with [`Ended::Error`]: the buffer.
    pub failed: Option<Side>,
    /// The errno of the failure. If the buffer has failed (`ENOSPC`), the sink has every
    /// byte that was read.
    pub errno: Option<Errno>,
    /// The size of the buffer.
    pub size: u64,
    /// The most bytes that were read and not yet written at one time.
    pub most: u64,
    /// Bytes that have passed through the buffer's files. The others went from one
    /// private pipe to the next.
    pub stored: u64,
    /// The report of the transfer that read the source. Its sink is a private pipe.
    pub source: Report,
    /// The report of the transfer to the sink, from a private pipe.
    pub sink: Report,
    /// The stranded bytes.
    pub unwritten: Option<Unwritten>,
}
