//! The words of a control descriptor: commands that are written to it, and records
//! that are read from it. `docs/cue-protocol.md` is the reference.
//!
//! Both are sequences of 32-bit little-endian words. The first word of each names what
//! follows and how many words it has, so that a reader can pass over what it does not
//! know.

mod command;
mod commands;
mod record;
mod records;
mod words;

pub use command::{BadCommand, Command, Limit};
pub use commands::Commands;
pub use record::{Done, Record, State, Status};
pub use records::Records;

/// The version of the protocol.
pub const VERSION: u32 = 1;
