//! The process that the library is in: its limits, its children, descriptors that
//! it closes, system calls that it is refused. Most of these tests change what
//! belongs to the process and run alone in one. This program has an allocator that
//! can hold new threads, for `forks`.

mod closed;
#[path = "../common/mod.rs"]
mod common;
mod forks;
mod leaks;
mod limits;
mod refusals;
mod side_effects;
