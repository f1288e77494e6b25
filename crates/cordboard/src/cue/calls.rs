//! The calls on a control descriptor, for the C library.

use std::os::fd::BorrowedFd;

use rustix::net::{RecvFlags, SendFlags};

use crate::errno::Errno;
use crate::sys::{recv, send};

/// Sends a part of the bytes that the socket accepts without waiting: `sendto(2)`, or `sendmsg(2)`
/// if a filter refuses that.
///
/// # Errors
///
/// Those of `send(2)`; the errno of a filter that refuses both calls.
pub fn send_at_once(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    Ok(send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)
}

/// Receives at least one byte, without waiting: `recvfrom(2)`, or `recvmsg(2)` if a filter
/// refuses that. 0: the end.
///
/// # Errors
///
/// Those of `recv(2)`; the errno of a filter that refuses both calls.
pub fn receive_at_once(fd: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<usize, Errno> {
    Ok(recv(fd, bytes, RecvFlags::DONTWAIT)?)
}
