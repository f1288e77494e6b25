//! The data paths, one file each.
//!
//! Every file has the same structure: the pairs it accepts (`takes`, a pure
//! function of facts), the minimum Linux version, the meaning of each errno
//! with its evidence, one step, and its tests. A step makes a bounded number of
//! system calls, waits only if the transfer allows it, and returns a
//! [`Verdict`]. `table.rs` has a row for each path.

pub(crate) mod claim;
mod clone;
mod common;
pub(crate) mod copy_file_range;
mod cursor;
pub(crate) mod datagram;
pub(crate) mod direct;
mod enlarge;
mod enlarged_pipes;
mod flow;
pub(crate) mod holes;
mod in_place;
mod lengthen;
mod preallocate;
pub(crate) mod read_write;
pub(crate) mod sendfile;
mod socket;
pub(crate) mod splice;
mod staged;
mod step;
mod stream;
mod surplus;
mod table;
mod terminal;
mod verdict;

pub(crate) use common::needs_room;
pub(crate) use flow::Flow;
pub(crate) use preallocate::Preallocation;
pub(crate) use step::Step;
pub(crate) use table::{Holes, row};
pub(crate) use verdict::Verdict;
