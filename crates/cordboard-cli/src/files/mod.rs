//! Files by name: existence, status, and removal of what this process made.

mod access;
mod exists;
mod removal;
mod replacement;
mod socket_file;
mod stat;

pub use access::check_access;
pub use exists::{if_exists, if_reachable};
pub use removal::{Id, Removal, id, leftover, remove, remove_unused};
pub use replacement::{Replacement, replace_symlink};
pub use socket_file::{RemovableSocket, SocketId, ToRemove};
pub use stat::{filesystem_of, is_pseudo, is_standard_output, kind, times};

/// Returns the directory in which this name is looked up.
pub fn directory_of(path: &std::path::Path) -> &std::path::Path {
    let parent = path.parent().filter(|at| !at.as_os_str().is_empty());
    parent.unwrap_or(std::path::Path::new("."))
}

/// The names in a directory. For tests.
#[cfg(test)]
fn names(dir: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}
