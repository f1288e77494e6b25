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
    /// Take all operands but the last for sources, and move them into the last
    /// one. The sources take turns: of some bytes (turn); of whole lines, or of
    /// records that end in a zero byte (line, null); or of whole datagrams. A
    /// source without bytes is not waited for. A line longer than 1M is
    /// divided. The rest at the end of a source is a line, to which no line
    /// feed is added. --size is that of each source, --idle of all together.
    /// Each source has an account of its own (--json: sources)
    #[arg(long, value_name = "HOW", value_enum)]
    pub fan_in: Option<Turns>,
    /// Bytes of one turn, 64K by default. Needs --fan-in turn
    #[arg(long, value_name = "BYTES", value_parser = units::block)]
    pub turn: Option<std::num::NonZeroUsize>,
    /// If one of several sources fails: end with its error, or continue with
    /// the others. The exit status is 1 in both cases. Needs --fan-in
    #[arg(long, value_name = "POLICY", value_enum)]
    pub on_failure: Option<Failing>,
}
