//! The account of a fan-in: of the sink, and of each source.

use crate::errno::Errno;
use crate::named::named;
use crate::report::{Ended, Refusal, Report, Stranded};

named! {
    /// Why a source gave no more bytes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum SourceEnded {
        /// The source has ended.
        Eof = "eof",
        /// The bytes of [`Request::size`](crate::Request::size) were read.
        Size = "size",
        /// The source failed: [`SourceReport::errno`].
        Failed = "failed",
        /// The source failed, and the others have continued without it
        /// ([`OnFailure::Detach`](super::OnFailure::Detach)): [`SourceReport::errno`].
        Detached = "detached",
        /// The fan-in ended early.
        Stopped = "stopped",
    }
    /// All endings.
    ALL
    /// Returns the name in the JSON report.
    name
}

/// The error of a fan-in that was refused before any byte moved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{refusal}")]
#[non_exhaustive]
pub struct Refused {
    /// The index of the source that was examined.
    pub source_index: usize,
    /// The reason.
    pub refusal: Refusal,
}

/// The account of one source: `read == written + stranded` in every ending.
#[derive(Debug)]
#[non_exhaustive]
pub struct SourceReport {
    /// Bytes that were read from the source. A seekable source is rewound over bytes
    /// that have not reached the channel in front of the sink. These do not count.
    pub read: u64,
    /// Bytes of this source that the sink has accepted.
    pub written: u64,
    /// Bytes that were read and not written. They are in [`SourceReport::unwritten`].
    pub stranded: u64,
    /// The number of turns in which the source gave bytes.
    pub turns: u64,
    /// The number of records that were divided, because they were longer than
    /// [`FanIn::longest_record`](super::FanIn::longest_record).
    pub divided: u64,
    /// Why the source gave no more bytes.
    pub ended: SourceEnded,
    /// The errno of a source that failed.
    pub errno: Option<Errno>,
    /// The report of the transfer that read the source. Its sink is a private channel.
    pub transfer: Report,
    /// The stranded bytes.
    pub unwritten: Option<Stranded>,
}

/// The account of a fan-in that has ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct FanInOutcome {
    /// The sum of the bytes that were read.
    pub read: u64,
    /// Bytes that the sink has accepted: the sum of those of the sources.
    pub written: u64,
    /// The sum of the stranded bytes.
    pub stranded: u64,
    /// Why the fan-in ended. [`Ended::Eof`]: all sources that did not fail have ended.
    /// [`Ended::Size`]: [`Request::size`](crate::Request::size) bytes of each source were
    /// read.
    pub ended: Ended,
    /// The index of the source whose failure ended the fan-in
    /// ([`OnFailure::End`](super::OnFailure::End)). 0 if all sources have failed.
    pub failed_source: Option<usize>,
    /// The fan-in ended because a wait of its thread failed: a filter refuses `poll(2)` and
    /// `select(2)`, or there is no memory. Neither a source nor the sink has failed.
    pub wait_failed: bool,
    /// The errno of the failure, of the failed source, of the sink or of the wait.
    pub errno: Option<Errno>,
    /// The report of the transfer from the channel to the sink.
    pub sink: Report,
    /// The sources, in the order of the request.
    pub sources: Vec<SourceReport>,
}

impl FanInOutcome {
    /// Returns whether the sink has accepted every byte of every source.
    pub fn is_complete(&self) -> bool {
        let has_ended = |s: &SourceReport| matches!(s.ended, SourceEnded::Eof | SourceEnded::Size);
        self.ended != Ended::Error && self.stranded == 0 && self.sources.iter().all(has_ended)
    }
}
