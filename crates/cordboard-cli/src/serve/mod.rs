//! `cordboard serve`: servers whose data connections are control descriptors.

mod ftp;

use crate::flags::{Protocol, Serve};

/// Runs the command, and returns its exit status.
pub fn run(flags: &Serve) -> u8 {
    match &flags.protocol {
        Protocol::Ftp(flags) => ftp::run(flags),
    }
}
