//! The kinds of threads that take the steps of a transfer.

/// The kind of thread that takes a transfer's steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThreadKind {
    /// The caller's thread: it takes all of them.
    Anywhere,
    /// An engine's reactor thread, which waits for all its transfers and must never
    /// block on one of them.
    Reactor,
    /// An engine's thread for direct copies, which take all their steps there.
    Disk,
    /// A worker, which may block in the kernel.
    Worker,
}
