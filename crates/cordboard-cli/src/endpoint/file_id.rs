//! Which file a path names.

use rustix::fs::{FileType, lstat, unlink};
use rustix::path::Arg;

/// A socket's file, by its device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId(u64, u64);

impl FileId {
    /// The socket of this name; `None` where there is none.
    pub fn of(path: impl Arg) -> Option<FileId> {
        let stat = lstat(path).ok()?;
        let socket = FileType::from_raw_mode(stat.st_mode) == FileType::Socket;
        socket.then_some(FileId(stat.st_dev, stat.st_ino))
    }

    /// Removes it, if it is still what has this name. A signal handler may
    /// call it.
    pub fn remove(self, path: impl Arg + Copy) {
        if FileId::of(path) == Some(self) {
            let _ = unlink(path);
        }
    }
}
