//! An entry: one running command, or one transfer of a server.

use std::ffi::{CString, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use rustix::fs::{AtFlags, stat, unlinkat};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

use crate::files::ToRemove;
use crate::signals;

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
    path: PathBuf,
    name: String,
}

impl Registered {
    /// `path`: that of the directory.
    pub(super) fn new(directory: OwnedFd, path: PathBuf, name: String) -> Registered {
        Registered {
            directory,
            path,
            name,
        }
    }

    /// Lets a signal that ends the process at once remove the entry too. No other file gets its
    /// name after a removal.
    pub fn remove_at_exit(&self) {
        let path = self.path.join(&self.name).into_os_string();
        if let Ok(path) = CString::new(path.into_vec()) {
            let _ = signals::remove_at_exit(ToRemove::Own(path));
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let _ = unlinkat(&self.directory, &self.name, AtFlags::empty());
    }
}
