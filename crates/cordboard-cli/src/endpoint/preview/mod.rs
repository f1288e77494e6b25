//! What can be opened in an endpoint's place without any effect: by `explain`, and before
//! endpoints are opened.

mod device;
mod open;

pub use device::opening_does_something;
pub use open::{Preview, StandIn, preview, resolve_symlinks};
