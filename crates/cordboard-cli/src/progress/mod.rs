//! Progress: drawn on standard error, or printed as one line on request.

mod estimate;
mod frame;
mod known;
mod scan;
mod screen;
mod watch;

pub use estimate::Rate;
pub use frame::fit;
pub use scan::Operands;
pub use screen::{Screen, is_on, width};
pub use watch::Watch;
