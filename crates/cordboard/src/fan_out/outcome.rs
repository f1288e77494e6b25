//! The account of a fan-out: of the source, and of each sink.

use crate::errno::Errno;
use crate::named::named;
use crate::report::{Ended, Refusal, Report, Stranded};
use crate::request::Why;

named! {
    /// How bytes reached a sink, or the private pipe in front of it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum Carry {
        /// `tee(2)`: the pages are referenced.
        Tee = "tee",
        /// `splice(2)`: the last sink takes the pages themselves, and a sink that
        /// was full takes them later.
        Splice = "splice",
        /// A buffer in user space and `write(2)`, or `sendto(2)` for datagrams.
        Write = "write",
    }
    /// All ways.
    ALL
    /// Returns the name in the JSON report.
    name
}

named! {
    /// Why a sink received no more bytes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum SinkEnded {
        /// The fan-out ended, and the sink has every byte that was not dropped.
        Complete = "complete",
        /// The sink failed: [`SinkReport::errno`].
        Failed = "failed",
        /// The other sinks, or the caller after the last byte was read, waited longer for it
        /// than the patience of [`OnSlow::Detach`](super::OnSlow::Detach) allows.
        Detached = "detached",
        /// The fan-out ended early, and the sink does not have every byte, or was not synced.
        Stopped = "stopped",
    }
    /// All endings.
    ALL
    /// Returns the name in the JSON report.
    name
}

/// The error of a fan-out that was refused before any byte moved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{refusal}")]
#[non_exhaustive]
pub struct Refused {
    /// The index of the sink that was examined.
    pub sink: usize,
    /// The reason.
    pub refusal: Refusal,
}

/// The account of one sink: `read == written + dropped + stranded` in every ending.
#[derive(Debug)]
#[non_exhaustive]
pub struct SinkReport {
    /// Bytes that were read from the source for this sink. Bytes that were read after the
    /// sink had failed or was detached do not count.
    pub read: u64,
    /// Bytes that the sink has accepted.
    pub written: u64,
    /// Bytes that were dropped because the sink had no room
    /// ([`OnSlow::Drop`](super::OnSlow::Drop)).
    pub dropped: u64,
    /// The number of contiguous ranges of dropped bytes.
    pub gaps: u64,
    /// Bytes that were read and neither written nor dropped. They are in
    /// [`SinkReport::unwritten`], up to the first byte whose page cannot be read.
    pub stranded: u64,
    /// Why it received no more bytes.
    pub ended: SinkEnded,
    /// The errno of a sink that failed.
    pub errno: Option<Errno>,
    /// How the bytes reached the sink, or its private pipe.
    pub carried: Vec<Carry>,
    /// The first of `tee(2)` and `splice(2)` that was refused for this sink, and why.
    /// [`Carry::Splice`] and "turned off" if the request does not allow
    /// [`DataPath::Splice`](crate::DataPath::Splice); `tee(2)` is not used then either.
    pub declined: Option<(Carry, Why)>,
    /// The report of the transfer from the sink's private pipe to the sink. `None`: the
    /// sink is a pipe and needs no other, because the other sinks wait for it
    /// ([`OnSlow::Block`](super::OnSlow::Block)), or because no engine is available.
    pub transfer: Option<Report>,
    /// The stranded bytes, up to the first byte whose page cannot be read.
    pub unwritten: Option<Stranded>,
}

/// The account of a fan-out that has ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct FanOutOutcome {
    /// Bytes that were read from the source for the sinks. A seekable source is rewound
    /// over bytes that have not reached the first private pipe. These do not count.
    pub read: u64,
    /// Why the fan-out ended.
    pub ended: Ended,
    /// The index of the sink whose failure ended the fan-out: a sink with
    /// [`OnSlow::Block`](super::OnSlow::Block), or the first that has failed if all have
    /// failed or were detached.
    pub failed_sink: Option<usize>,
    /// The fan-out ended because a wait of its thread failed: a filter refuses `poll(2)` and
    /// `select(2)`, or there is no memory. Neither the source nor a sink has failed.
    pub wait_failed: bool,
    /// The errno of a failure: that of the failed sink, of the source, or of the wait.
    pub errno: Option<Errno>,
    /// The report of the transfer that read the source. Its sink is a private pipe.
    pub source: Report,
    /// Bytes that were read from the source after the last one that was given to a sink,
    /// and to which the source could not be rewound: [`Report::stranded`] of
    /// [`FanOutOutcome::source`].
    pub stranded: Option<Stranded>,
    /// The sinks, in the order of the request.
    pub sinks: Vec<SinkReport>,
}

impl FanOutOutcome {
    /// Returns whether every sink has every byte that was not dropped, and the source
    /// did not fail.
    pub fn is_complete(&self) -> bool {
        self.ended != Ended::Error && self.sinks.iter().all(|s| s.ended == SinkEnded::Complete)
    }
}
