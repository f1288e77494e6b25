//! `--control PATH`: a UNIX socket by which other processes steer the command. The
//! words are those of a control descriptor (docs/cue-protocol.md).

mod client;
mod clients;
mod commanded;
pub mod control;
mod live;
mod server;

pub use client::Steered;
pub use clients::Clients;
pub use commanded::Commanded;
pub use live::Live;
pub use server::Steering;
