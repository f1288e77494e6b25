//! A large buffer between a source and a sink.

mod endings;
mod kinds;
mod levels;
mod random;
pub mod runs;
