//! `-p`: the attributes of a file.

mod acl;
mod extended;
mod owner;
mod preserve;
mod problems;
mod value;

pub use extended::{Node, Passed, leave_out, pass_on};
pub use owner::owner;
pub use problems::refused;
