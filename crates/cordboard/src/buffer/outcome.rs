//! The account of a buffered transfer.

use super::unwritten::Unwritten;
use crate::endpoint::Side;
use crate::errno::Errno;
use crate::report::{Ended, Refusal, Report};

/// The error of a buffered transfer that was refused before any byte moved.
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
    /// that the sink has not accepted. These do not count.
    pub read: u64,
    /// Bytes that the sink has accepted.
    pub written: u64,
    /// Bytes that were read and not written. They are in
    /// [`BufferedOutcome::unwritten`].
    pub stranded: u64,
    /// Why the transfer ended.
    pub ended: Ended,
    /// The side that has failed. `None` with [`Ended::Error`]: the buffer, or a wait, has failed.
    pub failed: Option<Side>,
    /// The transfer ended because a wait of its thread failed: a filter refuses `poll(2)` and
    /// `select(2)`, or there is no memory. Neither a side nor the buffer has failed.
    pub wait_failed: bool,
    /// The errno of the failure. If a write into a file of the buffer has failed
    /// (`ENOSPC`), the sink has accepted every byte that was read. If bytes in a file are
    /// lost, because they cannot be read or their writeback has failed (`EIO`, `ENOSPC`),
    /// they count as stranded, and [`BufferedOutcome::unwritten`] ends before them.
    pub errno: Option<Errno>,
    /// The size of the buffer, as [`Buffered::size`](crate::Buffered::size) returns it.
    pub size: u64,
    /// The highest number of bytes that were read and not yet written at one time.
    pub most: u64,
    /// Bytes that have passed through the buffer's files. All other bytes went directly
    /// from the first private pipe to the second.
    pub stored: u64,
    /// The report of the transfer that read the source. Its sink is a private pipe.
    pub source: Report,
    /// The report of the transfer to the sink, from a private pipe.
    pub sink: Report,
    /// The stranded bytes.
    pub unwritten: Option<Unwritten>,
}
