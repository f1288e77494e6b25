//! Several sources and one sink.

mod datagrams;
mod endings;
mod kinds;
mod random;
mod records;
pub mod sources;
mod turns;
