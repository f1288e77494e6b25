//! UNIX sockets, by path or, as `@NAME`, by abstract name.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketType};

use super::operand::Operand;
use super::stale;
use super::unix_socket::socket;
use crate::files::{RemovableSocket, SocketId, ToRemove};
use crate::interruptible::pause;
use crate::problem::Action;
use crate::problem::Problem;
use crate::signals::{self, Place};

/// The address of a path, or of the abstract name `@NAME`.
pub fn address(path: &Path) -> Result<SocketAddrUnix, Errno> {
    match path.as_os_str().as_bytes() {
        [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name),
        _ => SocketAddrUnix::new(path),
    }
}

/// Connects a socket without waiting. A path may have any length.
pub fn connect_at_once(socket: &OwnedFd, path: &Path) -> Result<(), Errno> {
    match address(path) {
        // `sun_path` has room for 108 bytes. An abstract name has no file.
        Err(Errno::NAMETOOLONG) if path.as_os_str().as_bytes().first() != Some(&b'@') => {
            let file = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            let short = format!("/proc/self/fd/{}", file.as_raw_fd());
            rustix::net::connect(socket, &SocketAddrUnix::new(short)?)
        }
        address => rustix::net::connect(socket, &address?),
    }
}

/// Connects, or for datagrams makes a socket with a peer.
pub fn connect(path: &Path, kind: SocketType, operand: Operand<'_>) -> Result<OwnedFd, Problem> {
    connect_within(path, kind, operand, Duration::MAX)
}

/// As [`connect`]. `EAGAIN`: the queue of the listener is full, and has been for this time.
pub fn connect_within(
    path: &Path,
    kind: SocketType,
    operand: Operand<'_>,
    most: Duration,
) -> Result<OwnedFd, Problem> {
    let start = Instant::now();
    let problem = |errno| operand.problem(errno, Action::Connect);
    let socket = socket(kind).map_err(problem)?;
    loop {
        match connect_at_once(&socket, path) {
            Ok(()) => return Ok(socket),
            // The queue of the listener is full, and there is nothing to poll
            // for.
            Err(Errno::AGAIN) if start.elapsed() < most => pause(Duration::from_millis(20))?,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(problem(errno)),
        }
    }
}

/// The file of a socket, which is removed when it is no longer needed.
///
/// Another process may have removed it meanwhile, and bound another of that
/// name: only the file of this process may be removed. While the socket is
/// open, no other file gets its inode number.
#[derive(Debug)]
pub struct SocketFile {
    file: RemovableSocket,
    /// A signal that ends the process at once removes it too.
    place: Option<&'static Place>,
}

impl SocketFile {
    /// Of a socket that was just bound; `None`: the file was removed already.
    fn new(path: &Path) -> Option<SocketFile> {
        let file = RemovableSocket::new(path, SocketId::of(path)?)?;
        Some(SocketFile {
            place: signals::remove_at_exit(ToRemove::Socket(file.clone())),
            file,
        })
    }
}

impl SocketFile {
    /// The file by device and inode.
    pub fn id(&self) -> SocketId {
        self.file.file()
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            place.clear();
        }
        self.file.remove();
    }
}

/// Binds a socket to a path. An existing file is removed only if it is that of
/// a closed socket.
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

/// Makes a listener for this number of connections.
pub fn listen(
    path: &Path,
    kind: SocketType,
    backlog: i32,
    operand: Operand<'_>,
) -> Result<(OwnedFd, Option<SocketFile>), Problem> {
    let (listener, file) = bind(path, kind, operand)?;
    rustix::net::listen(&listener, backlog).map_err(|e| operand.problem(e, Action::Listen))?;
    Ok((listener, file))
}
