//! The ways to carry bytes, one file a path.
//!
//! Every file has the same anatomy: which pairs it takes (`takes`, a pure
//! function of facts), since which Linux, what each errno means for it with
//! the evidence, one step, its tests. A step makes a bounded number of system
//! calls, never waits unless the transfer allows it, and says with a
//! [`Verdict`] what came of it. `table.rs` has a row for each.

pub(crate) mod claim;
mod clone;
mod common;
pub(crate) mod copy_file_range;
mod cursor;
pub(crate) mod datagram;
pub(crate) mod direct;
mod enlarge;
mod flow;
pub(crate) mod holes;
mod in_place;
mod lengthen;
mod lent;
mod preallocate;
pub(crate) mod read_write;
pub(crate) mod sendfile;
mod socket;
mod spill;
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
