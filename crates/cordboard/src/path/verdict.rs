//! What a path answers: whether it takes a pair, and what a step came to.

use crate::endpoint::Side;
use crate::errno::Errno;
use crate::request::Why;

/// What one step of a path came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// So many bytes made progress; 0 if a signal came first.
    Moved(u64),
    /// The path does not take this pair, or not any more; this step provably
    /// consumed nothing, so the next path may go on from here.
    Declined(Why),
    /// Nothing can be done before this side is ready.
    Blocked(Side),
    /// The kernel is at work on this transfer's behalf: nothing can be done
    /// before [`Step::completions`](super::Step::completions) polls readable.
    Pending,
    /// The source has ended, as far as this path can tell.
    Ended,
    /// One side failed.
    Failed(Side, Errno),
    /// A stage failed, and neither side is the cause.
    StageFailed(Errno),
}

/// Whether a path takes a pair: the reason it does, or why it does not.
pub(crate) type Takes = Result<&'static str, Why>;
