//! `-p`: the attributes of a file.

mod acl;
mod extended;
mod narrow;
mod owner;
mod preserve;
mod problems;
mod value;

pub use extended::{CopyResult, Node, copy_extended, report_missing};
pub use narrow::shut_before_contents;
pub use owner::owner;
pub use problems::{owner_not_kept, refused, unread};
