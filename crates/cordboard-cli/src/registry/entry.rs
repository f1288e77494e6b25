//! An entry: one running command, or one transfer of a server.

use std::ffi::OsString;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, unlinkat};
use serde::{Deserialize, Serialize};

/// The content of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The number of the process (PID).
    pub pid: u32,
    /// The command: `splice`.
    pub command: String,
    /// The names of the source and the sink, for the user.
    pub label: String,
    /// The path of its control socket, or `@NAME`.
    pub socket: OsString,
}

/// An entry, which is removed when this is dropped.
#[derive(Debug)]
pub struct Registered {
    directory: OwnedFd,
    name: String,
}

impl Registered {
    pub(super) fn new(directory: OwnedFd, name: String) -> Registered {
        Registered { directory, name }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let _ = unlinkat(&self.directory, &self.name, AtFlags::empty());
    }
}
