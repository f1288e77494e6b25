//! Directories and all that is in them.

mod case_collisions;
mod level;
mod settle;
mod symlink;
mod walk;

pub use walk::{Given, copy};
