//! Progress: drawn on standard error, printed there each second, or printed as one line on
//! request.

mod estimate;
mod frame;
mod known;
mod scan;
mod screen;
mod style;
mod watch;

pub use frame::fit;
pub use scan::Operands;
pub use screen::{Screen, is_on, width};
pub use style::Style;
pub use watch::Watch;
