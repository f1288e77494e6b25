//! The file of a UNIX socket, and files to remove at exit.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{FileType, Stat, lstat};
use rustix::path::Arg;

use super::removal::{Id, id, private_beside, remove_by_path};

/// The file of a socket, by device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketId(Id);

impl SocketId {
    /// The socket of this name; `None` if there is none.
    pub fn of(path: impl Arg) -> Option<SocketId> {
        let stat = lstat(path).ok()?;
        let socket = FileType::from_raw_mode(stat.st_mode) == FileType::Socket;
        socket.then_some(SocketId(id(&stat)))
    }

    /// Whether this is the status of the same file.
    pub fn is(self, stat: &Stat) -> bool {
        self.0 == id(stat)
    }
}

/// What a signal handler needs to remove the file of a socket.
#[derive(Debug, Clone)]
pub struct RemovableSocket {
    path: CString,
    /// See [`removal`](super::removal).
    private: CString,
    file: SocketId,
}

impl RemovableSocket {
    /// The file that has this name now.
    pub fn new(path: &Path, file: SocketId) -> Option<RemovableSocket> {
        Some(RemovableSocket {
            path: CString::new(path.as_os_str().as_bytes()).ok()?,
            private: private_beside(path)?,
            file,
        })
    }

    /// The file.
    pub fn file(&self) -> SocketId {
        self.file
    }

    /// Removes the file if it still has this name. Async-signal-safe.
    pub fn remove(&self) {
        let known = self.file.0;
        let path: &CStr = &self.path;
        let _ = remove_by_path(path, &self.private, known);
    }
}

/// A file that the signal handler which ends the process removes.
#[derive(Debug)]
pub enum ToRemove {
    /// That of a socket.
    Socket(RemovableSocket),
    /// One whose name no other process uses.
    Own(CString),
}

impl ToRemove {
    /// Removes the file. Async-signal-safe.
    pub fn remove(&self) {
        match self {
            ToRemove::Socket(file) => file.remove(),
            ToRemove::Own(path) => {
                let path: &CStr = path;
                let _ = rustix::fs::unlink(path);
            }
        }
    }
}
