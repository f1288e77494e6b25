//! A large buffer between a source and a sink.

#[path = "../common/mod.rs"]
mod common;
mod endings;
mod kinds;
mod levels;
mod random;
mod runs;
