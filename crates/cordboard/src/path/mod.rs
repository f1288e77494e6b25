//! The data paths, one file or folder each: clone, copy_file_range, datagram, direct,
//! read_write, sendfile, splice. `common/` has operations that several of them share,
//! `flow/` the state that a step works on.
//!
//! Every path has the same structure: the pairs it accepts (`takes`, a pure
//! function of facts), the minimum Linux version, the meaning of each errno
//! with its evidence, one step, and its tests. A step makes a bounded number of
//! system calls, waits only if the transfer allows it, and returns a
//! [`Verdict`]. `table.rs` has a row for each path.

mod clone;
pub(crate) mod common;
pub(crate) mod copy_file_range;
pub(crate) mod datagram;
pub(crate) mod direct;
mod flow;
pub(crate) mod read_write;
pub(crate) mod sendfile;
pub(crate) mod splice;
mod staged;
mod step;
mod table;
mod verdict;

pub(crate) use common::checks::needs_room;
pub(crate) use common::preallocate::Preallocation;
pub(crate) use flow::{Flow, Joins};
pub(crate) use step::Step;
pub(crate) use table::{Holes, row};
pub(crate) use verdict::Verdict;
