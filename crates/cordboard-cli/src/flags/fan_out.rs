//! The flags of several sinks.

use clap::ValueEnum;

/// What happens to a slow sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Slow {
    /// The others wait.
    Block,
    /// Bytes are dropped.
    Drop,
    /// The sink is detached.
    Detach,
}
