//! A control socket in the directory itself, for transfers whose user has not named one.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};

use super::{Directory, Entry, Registered};
use crate::problem::Problem;

/// The maximum number of connections that wait to be accepted.
const WAITING: i32 = 16;

/// A listening socket and its entry. The drop removes both.
pub struct Listening {
    /// Removed before the socket is.
    _entry: Registered,
    file: PathBuf,
    listener: OwnedFd,
}

impl Directory {
    /// Creates a listening socket in the directory, and its entry.
    pub fn listen(&self, command: &str, label: String) -> Result<Listening, Problem> {
        let done = self.listening(command, label);
        done.map_err(|errno| self.not_added(errno))
    }

    fn listening(&self, command: &str, label: String) -> Result<Listening, Errno> {
        let file = self.socket();
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // The file gets the mode of the socket (unix_bind_bsd, net/unix/af_unix.c). A change
        // of the umask would affect all threads.
        fchmod(&listener, Mode::RUSR | Mode::WUSR)?;
        bind(&listener, &SocketAddrUnix::new(&file)?)?;
        let entry = Entry::new(command, label, file.clone().into_os_string());
        let registered = listen(&listener, WAITING).and_then(|()| self.register(&entry));
        match registered {
            Ok(entry) => Ok(Listening {
                _entry: entry,
                file,
                listener,
            }),
            Err(errno) => {
                let _ = std::fs::remove_file(&file);
                Err(errno)
            }
        }
    }
}

impl Listening {
    /// Returns the socket, which is non-blocking.
    pub fn listener(&self) -> &OwnedFd {
        &self.listener
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}
