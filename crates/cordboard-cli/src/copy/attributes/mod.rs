//! `-p`: the attributes of a file.

mod acl;
mod extended;
mod nfs4;
mod owner;
mod preserve;
mod problems;
mod restrict;
mod value;

pub use acl::is_list;
pub use extended::{CopyResult, Names, Node, copy_extended, report_missing};
pub use owner::owner;
pub use problems::{owner_not_kept, refused, unread};
pub use restrict::restrict_before_contents;
