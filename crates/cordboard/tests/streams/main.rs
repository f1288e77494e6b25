//! Pipes and stream sockets, with their peers in any state.

#[path = "../common/mod.rs"]
mod common;
mod packets;
mod pipes;
mod resets;
mod shared_pipes;
mod sockets;
