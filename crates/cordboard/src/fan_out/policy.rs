//! What happens to a slow sink.

use crate::named::named;

named! {
    /// What happens to a sink that has no room for the next bytes, or that fails.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    #[non_exhaustive]
    pub enum OnSlow {
        /// The other sinks wait. If the sink fails, the fan-out ends, as a transfer with
        /// this sink does; the other sinks get every byte that was read.
        #[default]
        Block = "block",
        /// The sink does not get these bytes. They are counted. If it fails, the other
        /// sinks continue without it.
        Drop = "drop",
        /// The other sinks wait, but no longer than the
        /// [patience](super::FanOut::patience). If the sink has no room by then, or if it
        /// fails, they continue without it. After the last byte was read, the caller waits
        /// until the sink has accepted no byte for the patience.
        Detach = "detach",
    }
    /// All policies.
    ALL
    /// Returns the name in the command's flags: `block`, `drop`, `detach`.
    name
}
