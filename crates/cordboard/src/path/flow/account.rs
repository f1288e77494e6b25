//! Counts of what a transfer has taken from its source and given to its sink.

use crate::report::Dropped;

/// Counts of bytes and datagrams. Only [`Flow`](super::Flow) changes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Account {
    /// Bytes taken from the source.
    pub(super) read: u64,
    /// Bytes accepted by the sink.
    pub(super) written: u64,
    /// Datagrams that the kernel truncated.
    pub(super) truncated: u64,
    /// Datagrams that were too long for the sink, and their bytes.
    pub(super) dropped: Dropped,
}
