//! The file of a socket.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{FileType, lstat};
use rustix::path::Arg;

use crate::removal::{Id, beside, id, remove_by_path};

/// A socket's file, by its device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId(Id);

impl FileId {
    /// The socket of this name; `None` where there is none.
    pub fn of(path: impl Arg) -> Option<FileId> {
        let stat = lstat(path).ok()?;
        let socket = FileType::from_raw_mode(stat.st_mode) == FileType::Socket;
        socket.then_some(FileId(id(&stat)))
    }
}

/// What it takes to remove a socket's file in a signal handler.
#[derive(Debug, Clone)]
pub struct Removable {
    path: CString,
    /// See [`removal`](crate::removal).
    private: CString,
    file: FileId,
}

impl Removable {
    /// The file that has this name now.
    pub fn new(path: &Path, file: FileId) -> Option<Removable> {
        Some(Removable {
            path: CString::new(path.as_os_str().as_bytes()).ok()?,
            private: beside(path)?,
            file,
        })
    }

    /// Removes it, if it is still what has this name. A signal handler may
    /// call it.
    pub fn remove(&self) {
        let known = self.file.0;
        let path: &CStr = &self.path;
        let _ = remove_by_path(path, &self.private, known);
    }
}
