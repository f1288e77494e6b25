//! `cordboard copy SRC… DST`.
//!
//! | module | subject |
//! |---|---|
//! | `command` | the operands |
//! | `tree` | the walk through a directory tree, symlinks, settling directories |
//! | `parallel` | several files at once: batches, threads, the engine, the order of messages |
//! | `one_file` | one file: opening, the sink, copying, verifying, closing |
//! | `attributes` | `-p`: owner, mode, times, access control lists, extended attributes |
//! | `overwrite` | what is not overwritten: sources, and what was just copied |
//! | `directories` | the open directories of a walk |
//! | `job`, `place`, `outcome`, `abort`, `refusals` | shared by all of them |
//!
//! Each module uses only modules below it.

mod abort;
mod attributes;
mod command;
mod directories;
mod job;
mod one_file;
mod outcome;
mod overwrite;
mod parallel;
mod place;
mod refusals;
mod tree;

pub use command::run;
