//! The flags of `top`.

use std::ffi::OsString;

use clap::{Args, ValueHint};

/// The flags of `top`.
#[derive(Debug, Args)]
pub struct TopFlags {
    /// Control sockets to show, the PATH or @NAME of --control; without any, those
    /// of all commands of this user
    #[arg(value_name = "CONTROL", value_hint = ValueHint::AnyPath)]
    pub controls: Vec<OsString>,
    /// Print one table and exit; the rate is the average since the start
    #[arg(long)]
    pub once: bool,
    /// Print a line of JSON for each transfer and exit
    #[arg(long)]
    pub json: bool,
}
