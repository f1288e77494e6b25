//! The messages that other threads send to a reactor.

use super::job::Job;

/// A message to a reactor.
pub(super) enum Message {
    /// Run this transfer: a new one, or one that a worker returns.
    Run(Box<Job>),
    /// A flag of this transfer has changed (it was cancelled; its source is complete, rests, or
    /// no longer rests): wake it. A transfer that a worker runs is not woken: the worker checks
    /// before each step.
    Recheck(u64),
    /// The engine shuts down, or the last transfer of an engine that shuts down has
    /// ended.
    Stop,
}
