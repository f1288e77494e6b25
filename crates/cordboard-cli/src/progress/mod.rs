//! Progress: drawn on standard error, or printed as one line on request.

mod frame;
mod screen;
mod watch;

pub use frame::{Rate, fit};
pub use screen::{Screen, is_on, width};
pub use watch::Watch;
