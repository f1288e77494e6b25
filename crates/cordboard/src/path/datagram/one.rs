//! One datagram, without a batch.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::RecvFlags;

use super::super::Flow;
use super::size::largest;
use crate::errno::Errno;
use crate::sys::{self, Received};

/// What came of receiving one datagram.
pub(in crate::path) enum One {
    /// It is in the buffer.
    Here(Received),
    /// It is longer than what is left of the size, and stays where it is.
    TooLong,
}

/// One datagram into a buffer, for the path that has no batches.
pub(in crate::path) fn receive_one(
    flow: &mut Flow<'_>,
    into: &mut [u8],
    wait: bool,
) -> Result<One, Errno> {
    if flow.left < largest(flow.source.kind()).max(into.len()) as u64
        && next_length(flow, wait)? as u64 > flow.left
    {
        return Ok(One::TooLong);
    }
    let received = sys::receive_one(flow.source_fd(), into, wait)?;
    flow.truncated += u64::from(received.truncated);
    Ok(One::Here(received))
}

/// Length of the next datagram, which stays where it is.
pub(super) fn next_length(flow: &Flow<'_>, wait: bool) -> Result<usize, Errno> {
    let flags = RecvFlags::PEEK | RecvFlags::TRUNC;
    let flags = if wait {
        flags
    } else {
        flags | RecvFlags::DONTWAIT
    };
    let mut none = [0u8; 1];
    Ok(rustix::net::recv(flow.source_fd(), &mut none, flags)?.1)
}

/// Whether an empty datagram may be no datagram at all.
pub(in crate::path) fn reading_was_shut_down(flow: &Flow<'_>) -> bool {
    let fd = flow.source_fd();
    let mut fds = [PollFd::new(&fd, PollFlags::RDHUP)];
    matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1))
        && fds[0]
            .revents()
            .intersects(PollFlags::RDHUP | PollFlags::HUP)
}
