//! Several files at once.

mod batch;
mod dispatch;
mod engine;
mod ledger;
mod limits;
mod workers;

pub use batch::{Directory, Item, Pending};
pub use dispatch::Dispatch;
pub use limits::{LEFT, slots};
