//! What a transfer has taken from its source and given to its sink.

/// Bytes and datagrams, counted. Only [`Flow`](super::Flow) changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Account {
    /// Bytes taken from the source.
    pub(super) read: u64,
    /// Bytes accepted by the sink.
    pub(super) written: u64,
    /// Datagrams that the kernel cut.
    pub(super) truncated: u64,
}
