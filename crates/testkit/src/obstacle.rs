//! Descriptors that can make a transfer wait: terminals, FIFOs, connections.
//! `locked` has the pipes whose lock is held, `stalled` the connections whose
//! peer does not read.

use crate::wire;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Makes a TCP connection: (near, far).
///
/// # Errors
///
/// Those of the system calls.
pub fn tcp() -> io::Result<(OwnedFd, OwnedFd)> {
    wire::tcp()
}

/// Makes a pseudo-terminal without line discipline: (slave, master).
///
/// # Errors
///
/// Those of the system calls.
pub fn terminal() -> io::Result<(OwnedFd, OwnedFd)> {
    wire::pty()
}

/// Makes a blocking named pipe whose name is already removed: (read end, write end).
///
/// # Errors
///
/// Those of the system calls.
pub fn fifo() -> io::Result<(OwnedFd, OwnedFd)> {
    wire::fifo()
}

/// Has `close(2)` reset this connection.
///
/// # Errors
///
/// Those of `setsockopt(2)`.
pub fn resets(fd: impl AsFd) -> io::Result<()> {
    let none = Some(std::time::Duration::ZERO);
    Ok(rustix::net::sockopt::set_socket_linger(fd, none)?)
}

/// Fills a stream socket with bytes and with pages, until neither has room. Returns the
/// number of bytes. Before Linux 6.5 a UNIX socket appends pages to the last bytes that
/// it holds, full or not (`unix_stream_sendpage`, net/unix/af_unix.c).
///
/// # Errors
///
/// Those of the system calls, except `EAGAIN`.
pub fn fill_stream(sink: impl AsFd) -> io::Result<usize> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    use rustix::io::Errno;
    let (sink, mut filled) = (sink.as_fd(), 0);
    let before = fcntl_getfl(sink)?;
    fcntl_setfl(sink, before | OFlags::NONBLOCK)?;
    let (reader, writer) = rustix::pipe::pipe()?;
    let bytes = || rustix::net::send(sink, &[7; 4096], rustix::net::SendFlags::empty());
    let pages = || {
        rustix::io::write(&writer, &[7; 4096])?;
        let flags = rustix::pipe::SpliceFlags::NONBLOCK;
        rustix::pipe::splice(&reader, None, sink, None, 4096, flags)
    };
    for one in [&bytes as &dyn Fn() -> rustix::io::Result<usize>, &pages] {
        loop {
            match one() {
                Ok(n) => filled += n,
                // A filter that refuses splice(2).
                Err(Errno::AGAIN | Errno::PERM | Errno::NOSYS) => break,
                Err(errno) => return Err(errno.into()),
            }
        }
    }
    fcntl_setfl(sink, before)?;
    Ok(filled)
}
