//! One source and several sinks.

#[path = "../common/mod.rs"]
mod common;
mod kinds;
mod readers;
