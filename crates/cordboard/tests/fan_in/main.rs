//! Several sources and one sink.

#[path = "../common/mod.rs"]
mod common;
mod datagrams;
mod endings;
mod kinds;
mod random;
mod records;
mod sources;
mod turns;
