//! UNIX sockets, by path or, as `@NAME`, by abstract name.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketType};

use super::net::accept_one;
use super::operand::Operand;
use super::stale;
use super::unix_socket::socket;
use crate::files::{FileId, SocketFileId};
use crate::interruptible::pause;
use crate::problem::Action;
use crate::problem::Problem;
use crate::signals;

fn address(path: &Path) -> Result<SocketAddrUnix, Errno> {
    match path.as_os_str().as_bytes() {
        [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name),
        _ => SocketAddrUnix::new(path),
    }
}

/// A connection, or for datagrams a socket with a peer.
pub fn connect(path: &Path, kind: SocketType, operand: Operand<'_>) -> Result<OwnedFd, Problem> {
    let problem = |errno| operand.problem(errno, Action::Connect);
    let address = address(path).map_err(problem)?;
    let socket = socket(kind).map_err(problem)?;
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            // The listener's queue is full, and there is nothing to poll for.
            Err(Errno::AGAIN) => pause(Duration::from_millis(20))?,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(problem(errno)),
        }
    }
}

/// A socket file that is removed when it is no longer needed.
///
/// Somebody may have removed it meanwhile, and bound another of that name: only
/// what we made is ours to remove. While our socket is open its inode's number
/// is not given to another.
#[derive(Debug)]
pub struct SocketFile {
    file: SocketFileId,
    /// A signal that ends us at once has it removed too.
    noted: bool,
}

impl SocketFile {
    /// Of one that was bound right now; `None`: it is gone already.
    fn new(path: &Path) -> Option<SocketFile> {
        let file = SocketFileId::new(path, FileId::of(path)?)?;
        Some(SocketFile {
            noted: signals::remove_at_exit(file.clone()),
            file,
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.noted {
            signals::keep_file();
        }
        self.file.remove();
    }
}

/// Binds a socket to a path. What is there is removed only if it is the file of
/// a socket that is closed.
pub fn bind(
    path: &Path,
    kind: SocketType,
    operand: Operand<'_>,
) -> Result<(OwnedFd, Option<SocketFile>), Problem> {
    let problem = |errno| operand.problem(errno, Action::Listen);
    let address = address(path).map_err(problem)?;
    let ours = socket(kind).map_err(problem)?;
    if path.as_os_str().as_bytes().first() == Some(&b'@') {
        rustix::net::bind(&ours, &address).map_err(problem)?;
        return Ok((ours, None));
    }
    stale::bind(&ours, path, &address, operand)?;
    Ok((ours, SocketFile::new(path)))
}

/// One connection that is accepted; the socket's file is gone by then.
pub fn accept(path: &Path, kind: SocketType, operand: Operand<'_>) -> Result<OwnedFd, Problem> {
    let (listener, _file) = bind(path, kind, operand)?;
    rustix::net::listen(&listener, 1).map_err(|e| operand.problem(e, Action::Listen))?;
    accept_one(&listener, operand)
}
