//! The open directories of a walk.

mod chain;
mod listing;
mod spares;

pub use chain::{Chain, MOST_OPEN};
pub use listing::list;
pub use spares::Spares;
