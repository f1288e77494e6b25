//! Descriptors in the states that make others wait: locked pipes, terminals,
//! connections that are reset. `stalled` has those of a peer that does not read.

use crate::wire;
use rustix::net::SocketType;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;

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

/// A pipe whose lock a thread holds: it splices a silent socket into the pipe,
/// and the kernel waits for the socket with the pipe locked.
#[derive(Debug)]
pub struct LockedPipe {
    /// The read end.
    pub reader: OwnedFd,
    /// The write end.
    pub writer: OwnedFd,
    silent: Option<OwnedFd>,
    holder: Option<JoinHandle<()>>,
}

impl LockedPipe {
    /// Locks a fresh pipe.
    ///
    /// # Errors
    ///
    /// Those of the calls that make it.
    pub fn new() -> io::Result<LockedPipe> {
        let (reader, writer) = wire::pipe(false)?;
        let (silent, socket) = wire::unix(SocketType::STREAM)?;
        let into = writer.try_clone()?;
        let (sender, number) = std::sync::mpsc::channel();
        let holder = std::thread::spawn(move || {
            let _ = sender.send(rustix::thread::gettid().as_raw_nonzero());
            let flags = rustix::pipe::SpliceFlags::empty();
            // It ends with the end of the socket.
            let _ = rustix::pipe::splice(&socket, None, &into, None, 1, flags);
        });
        let thread = number.recv().map_err(io::Error::other)?;
        let inside = format!("/proc/self/task/{thread}/syscall");
        let number = libc::SYS_splice.to_string();
        // The kernel tells no number while the thread runs (`proc(5)`).
        while std::fs::read_to_string(&inside)?.split(' ').next() != Some(&number) {
            std::thread::yield_now();
        }
        Ok(LockedPipe {
            reader,
            writer,
            silent: Some(silent),
            holder: Some(holder),
        })
    }

    /// Lets go of the lock.
    pub fn release(&mut self) {
        self.silent = None;
        if let Some(holder) = self.holder.take() {
            let _ = holder.join();
        }
    }
}

impl Drop for LockedPipe {
    fn drop(&mut self) {
        self.release();
    }
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
