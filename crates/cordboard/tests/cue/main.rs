//! Control descriptors: commands, records, links, limits, and what they cost. This
//! program has an allocator that counts, for `many`.

#[path = "../common/mod.rs"]
mod common;
mod endings;
mod hostile;
mod hosts;
mod limits;
mod links;
mod local;
mod many;
mod owners;
mod passed;
mod random;
mod steered;
mod steps;
