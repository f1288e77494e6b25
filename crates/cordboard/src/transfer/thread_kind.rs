//! Which thread takes the steps of a transfer.

/// The thread that takes a transfer's steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThreadKind {
    /// The caller's: it takes all of them.
    Anywhere,
    /// An engine's one thread that waits for all its transfers, and must never
    /// wait for one of them.
    Reactor,
    /// An engine's one thread for transfers past the page cache, which all take
    /// their steps there.
    Disk,
    /// One of those that may wait inside the kernel.
    Worker,
}
