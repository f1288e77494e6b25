//! Directories and all that is in them.

mod level;
mod name_collisions;
mod settle;
mod symlink;
mod walk;

pub use walk::{Given, copy};
