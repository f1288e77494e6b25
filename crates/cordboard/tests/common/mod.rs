//! What the test programs share. Each item is in the module of its subject and
//! is exported here.
#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "each test program uses a part of it"
)]

mod bytes;
pub mod datagrams;
mod exact;
mod grows;
pub mod mount;
mod pace;
mod paths;
pub mod process;
mod requests;
mod runs;
mod same;
mod sources;
mod steps;

pub use bytes::*;
pub use exact::*;
pub use grows::*;
pub use pace::*;
pub use paths::*;
pub use process::*;
pub use requests::*;
pub use runs::*;
pub use same::Same;
pub use sources::*;
pub use steps::*;
pub use testkit::skip::is_root;
