//! The flags of several sinks, and of several sources.

use clap::{Args, ValueEnum};

use crate::units;

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

/// How several sources take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Turns {
    /// A number of bytes.
    Turn,
    /// Whole lines.
    Line,
    /// Records that end in a zero byte.
    Null,
    /// Whole datagrams.
    Datagram,
}

/// What happens to a source that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Failing {
    /// The command ends.
    End,
    /// The others continue.
    Detach,
}

/// The flags of several sources.
#[derive(Debug, Clone, Args)]
pub struct FanIn {
    /// Move several sources into one sink: all operands but the last are
    /// sources. The sources take turns, of a number of bytes (turn), of whole
    /// lines (line), of records that end in a zero byte (null), or of whole
    /// datagrams (datagram). A source without bytes does not delay the others,
    /// nor does a FIFO that has no writer yet. The first byte moves once every
    /// listening source has a connection. They all listen from the start, and
    /// the connections may come in any order.
    /// A line or record longer than 1M is divided. Bytes after the last line
    /// feed of a source are a line; no line feed is added. --size applies to
    /// each source, --idle to all of them together. A rate and a pause apply
    /// to the sink: a few MiB of each source may be read before the sink
    /// accepts them. The sources are not rewound over bytes that the sink has
    /// not accepted. Holes are written as zeros. Each source has its own
    /// report (--json: sources)
    #[arg(long, value_name = "HOW", value_enum)]
    pub fan_in: Option<Turns>,
    /// Number of bytes of one turn, 64K by default. Needs --fan-in turn
    #[arg(long, value_name = "BYTES", value_parser = units::block)]
    #[arg(allow_hyphen_values = true)]
    pub turn: Option<std::num::NonZeroUsize>,
    /// If a source fails: end with its error, or continue with the other
    /// sources (detach). The exit status is 1 in both cases. Needs --fan-in
    #[arg(long, value_name = "POLICY", value_enum)]
    pub on_failure: Option<Failing>,
}
