//! The flags of `splice`.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueHint};

use super::{Buffering, Common, FanIn, Range, Slow, Writing};
use crate::units;

/// `cordboard splice`.
#[derive(Debug, Args)]
pub struct Splice {
    /// The source of the bytes
    #[arg(value_name = "SRC", value_hint = ValueHint::AnyPath)]
    pub source: OsString,
    /// The sink of the bytes
    #[arg(value_name = "DST", value_hint = ValueHint::AnyPath)]
    pub sink: OsString,
    /// More sinks, which get the same bytes. Each sink has its own report
    /// (--json: sinks). With --fan-in, only the last operand is a sink
    #[arg(value_name = "DST", value_hint = ValueHint::AnyPath)]
    pub more_sinks: Vec<OsString>,
    /// Policy if one of several sinks has no room. Needs several DST. block: the
    /// others wait for it. drop: it does not get the bytes, which are counted.
    /// detach: it gets no more bytes once the others have waited for a second, or
    /// if it accepts none for a second at the end. If a sink fails, the command
    /// ends with block, and otherwise continues without it. The exit status is 1
    /// if a sink has failed or was detached. The default is block. With each policy, the
    /// first byte moves once every FIFO among the sinks has a reader, and every
    /// listening sink has its peer
    #[arg(long, value_name = "POLICY", value_enum)]
    pub on_slow: Option<Slow>,
    /// Shared flags.
    #[command(flatten)]
    pub fan_in: FanIn,
    /// Shared flags.
    #[command(flatten)]
    pub buffering: Buffering,
    /// Shared flags.
    #[command(flatten)]
    pub range: Range,
    /// Shared flags.
    #[command(flatten)]
    pub writing: Writing,
    /// End without an error when no bytes have moved for this time. At the end,
    /// the command waits for acknowledgements of the peer of DST (tcp: or
    /// tcp-listen:) until none arrives for this time, or for 10 seconds without
    /// this option. It does not wait for the peer of an inherited connection (-
    /// or fd:N). When SRC has been silent for this time, bytes that were read
    /// have the same time again to go to DST. It is an error if DST does not
    /// take them, if it takes no more although SRC has more bytes, or if a
    /// frame is incomplete (--unzstd). Waiting for a connection, or for the
    /// other end of a FIFO, does not count, except for the writers of several
    /// sources
    #[arg(long, value_name = "SECONDS", value_parser = units::seconds)]
    #[arg(allow_hyphen_values = true)]
    pub idle: Option<Duration>,
    /// Shared flags.
    #[command(flatten)]
    pub common: Common,
}
