//! The engine: how transfers are run on it, its threads, and what they cost. This
//! program has an allocator that counts, for `idle`.

#[path = "../common/mod.rs"]
mod common;
mod forks;
mod idle;
mod process;
mod same;
mod stuck;
mod threads;
mod ways;
