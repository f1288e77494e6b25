//! What is not overwritten: the sources, what this command has just copied, and a
//! directory that would be copied into itself.

mod into_itself;
mod mounts;
mod sources;
mod written;

pub use into_itself::check_not_into_itself;
pub use sources::Sources;
pub use written::{ONE_NAME, Written};
