//! What the reactor is told by others.

use super::job::Job;

/// To the reactor.
pub(super) enum Message {
    /// A transfer to run: a new one, or one that comes back from a worker and
    /// waits, or goes on here.
    Run(Box<Job>),
    /// This transfer was cancelled: it is not to sleep on. One that is with a
    /// worker finds out by itself.
    Recheck(u64),
    /// The engine shuts down, or the last transfer of one that does has ended.
    Stop,
}
