//! The answers of a path: whether it accepts a pair, and the result of a step.

use crate::endpoint::Side;
use crate::errno::Errno;
use crate::request::Why;

/// The result of one step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Moved this many bytes; 0 if a signal came first.
    Moved(u64),
    /// The path does not accept this pair, or no longer; this step has consumed
    /// nothing, so the next path may continue from here.
    Declined(Why),
    /// Nothing can be done until this side is ready.
    Blocked(Side),
    /// The kernel is working on this transfer: nothing can be done until
    /// [`Step::completions`](super::Step::completions) polls readable.
    Pending,
    /// The source has ended, as far as this path can tell.
    Ended,
    /// One side failed.
    Failed(Side, Errno),
    /// A stage failed, and neither side is the cause.
    StageFailed(Errno),
}

/// Whether a path accepts a pair: the reason, or why not.
pub(crate) type Takes = Result<&'static str, Why>;
