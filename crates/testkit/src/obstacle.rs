//! Descriptors that can make a transfer wait: terminals, FIFOs, connections.
//! `locked` has the pipes whose lock is held, `stalled` the connections whose
//! peer does not read.

use crate::wire;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// A TCP connection: (near, far).
///
/// # Errors
///
/// Those of the calls that make it.
pub fn tcp() -> io::Result<(OwnedFd, OwnedFd)> {
    wire::tcp()
}

/// A pseudo-terminal without line discipline: (slave, master).
///
/// # Errors
///
/// Those of the calls that make it.
pub fn terminal() -> io::Result<(OwnedFd, OwnedFd)> {
    wire::pty()
}

/// A named pipe whose name is gone already, and which waits: (read end, write
/// end).
///
/// # Errors
///
/// Those of the calls that make it.
pub fn fifo() -> io::Result<(OwnedFd, OwnedFd)> {
    wire::fifo()
}

/// Closing it resets the connection.
///
/// # Errors
///
/// Those of `setsockopt(2)`.
pub fn resets(fd: impl AsFd) -> io::Result<()> {
    let none = Some(std::time::Duration::ZERO);
    Ok(rustix::net::sockopt::set_socket_linger(fd, none)?)
}
