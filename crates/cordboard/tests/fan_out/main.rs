//! One source and several sinks.

#[path = "../common/mod.rs"]
mod common;
mod endings;
mod fallback;
mod kinds;
mod messages;
mod policies;
mod random;
mod readers;
