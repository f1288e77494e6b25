//! `--control PATH`: a UNIX socket by which other processes steer the command. The
//! words are those of a control descriptor (docs/cue-protocol.md).

mod client;
mod live;
mod server;

pub use live::Live;
pub use server::Steering;
