//! What a transfer asks its schedule for.

/// What a transfer asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need {
    /// Bytes that it can still use; `u64::MAX` if unknown.
    pub(crate) most: u64,
    /// The least that its path can move: fewer are of no use to it.
    pub(crate) unit: u64,
    /// The length of its blocks.
    pub(crate) block: u64,
    /// Granted bytes that are in flight.
    pub(crate) in_flight: u64,
}
