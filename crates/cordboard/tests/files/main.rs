//! Files as sources and sinks: holes, positions, file systems, and changes during
//! a transfer.

mod changes;
mod clones;
#[path = "../common/mod.rs"]
mod common;
mod compressed;
mod fuse;
mod holes;
mod killed;
mod mounts;
mod positions;
mod states;
