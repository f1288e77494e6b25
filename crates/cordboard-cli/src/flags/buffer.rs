//! The flags of a buffer.

use std::ffi::OsString;

use clap::{Args, ValueHint};

use crate::units;

/// The flags of a buffer.
#[derive(Debug, Clone, Default, Args)]
pub struct Buffering {
    /// Read up to this many bytes from SRC before DST has accepted them. SRC is
    /// read as fast as it provides bytes, and waits only while the buffer is
    /// full. --rate and --schedule then limit the bytes that go to DST. A SIZE
    /// below that of one datagram (--block), or of one block of direct I/O, is
    /// raised to that. If the command ends early, the bytes in the buffer are lost,
    /// unless SRC is a file, whose position is then set back. Needs a single SRC
    /// and a single DST
    #[arg(long, value_name = "SIZE", value_parser = units::buffer)]
    #[arg(allow_hyphen_values = true)]
    pub buffer: Option<u64>,
    /// Keep the buffer in unnamed files in this directory, not in memory. Needs
    /// --buffer
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub buffer_file: Option<OsString>,
    /// Read no more than this many bytes a second from SRC into the buffer.
    /// Needs --buffer
    #[arg(long, value_name = "BYTES", value_parser = units::per_second)]
    #[arg(allow_hyphen_values = true)]
    pub intake_rate: Option<u64>,
}
