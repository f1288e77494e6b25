//! The identity of a file.

/// The identity of a file. No two files have the same identity at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    /// `st_dev`, or `st_rdev` for a block device.
    pub device: u64,
    /// `st_ino`; 0 for a block device.
    pub inode: u64,
}
