//! One source and several sinks.

mod endings;
mod fallback;
mod kinds;
mod messages;
mod policies;
mod random;
pub mod readers;
