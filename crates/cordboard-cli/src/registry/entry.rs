//! An entry: one running command, or one transfer of a server.

use std::ffi::OsString;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, stat, unlinkat};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
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
    /// The inode of the PID namespace of the process, if it is known (`namespaces(7)`).
    #[serde(default)]
    pub namespace: Option<u64>,
}

impl Entry {
    /// The entry of this process.
    pub fn new(command: &str, label: String, socket: OsString) -> Entry {
        Entry {
            pid: std::process::id(),
            command: command.to_owned(),
            label,
            socket,
            namespace: namespace(),
        }
    }

    /// Whether there is a process with this number, or there may be one: in another namespace,
    /// it has another number.
    pub(super) fn may_run(&self) -> bool {
        if self.is_elsewhere() {
            return true;
        }
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
    }

    /// Whether the process is in another PID namespace.
    pub fn is_elsewhere(&self) -> bool {
        self.namespace.is_some() && self.namespace != namespace()
    }

    /// Whether its number is that of a process of this PID namespace. An entry of an earlier version
    /// has no namespace.
    pub fn is_here(&self) -> bool {
        self.namespace.is_some() && !self.is_elsewhere()
    }
}

fn namespace() -> Option<u64> {
    let stat = stat("/proc/self/ns/pid").ok()?;
    #[allow(clippy::unnecessary_cast, reason = "its width is the architecture's")]
    Some(stat.st_ino as u64)
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
