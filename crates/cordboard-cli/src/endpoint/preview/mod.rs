//! `explain`: what can be opened in an endpoint's place without any effect.

mod device;
mod open;

pub use open::{Preview, preview, resolve_symlinks};
