//! Bad input: one clear line, the right exit status, the right counts, no hang.
#![allow(missing_docs)]

#[path = "../common/mod.rs"]
mod common;
mod network;
mod no_space;
mod operands;
mod report;
mod usage;
