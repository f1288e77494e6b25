//! A request for a grant.

/// A transfer's request for a grant of its schedule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need {
    /// The number of bytes that it can still use; `u64::MAX` if unknown.
    pub(crate) most: u64,
    /// The smallest number of bytes that its path can move.
    pub(crate) unit: u64,
    /// The length of its blocks.
    pub(crate) block: u64,
    /// The number of granted bytes that are in flight.
    pub(crate) in_flight: u64,
    /// A step may wait for its source or its sink inside a system call, other than one on a file.
    pub(crate) may_sleep: bool,
}
