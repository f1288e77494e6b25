//! One datagram, without a batch.

use rustix::net::RecvFlags;

use super::super::Flow;
use super::super::stream::receiving;
use super::size::longest;
use crate::errno::Errno;
use crate::sys::{self, Received};

/// What came of receiving one datagram.
pub(in crate::path) enum One {
    /// It is in the buffer.
    Here(Received),
    /// It is longer than what is left of the size, and stays where it is.
    TooLong,
}

/// One datagram into a buffer, for the path that has no batches. `annotated`:
/// with what is told beside it, which costs a tenth of a small datagram.
pub(in crate::path) fn receive_one(
    flow: &mut Flow<'_>,
    into: &mut [u8],
    wait: bool,
    annotated: bool,
) -> Result<One, Errno> {
    let mut into = into;
    if flow.left < longest(flow.source.kind()) as u64 {
        if next_length(flow, wait)? as u64 > flow.left {
            return Ok(One::TooLong);
        }
    } else if let Ok(left) = usize::try_from(flow.left) {
        let room = left.min(into.len());
        into = &mut into[..room];
    }
    let received = if annotated {
        sys::receive_one(flow.source_fd(), into, wait)?
    } else {
        receive_plain(flow, into, wait)?
    };
    flow.truncated += u64::from(received.truncated);
    Ok(One::Here(received))
}

/// Without room for anything beside it: descriptors that were sent along are
/// closed by the kernel.
fn receive_plain(flow: &Flow<'_>, into: &mut [u8], wait: bool) -> Result<Received, Errno> {
    let flags = RecvFlags::TRUNC | receiving(wait);
    let whole = rustix::net::recv(flow.source_fd(), &mut *into, flags)?.1;
    Ok(Received {
        length: whole.min(into.len()),
        truncated: whole > into.len(),
        credentials: false,
        segment: None,
    })
}

/// Length of the next datagram, which stays where it is.
pub(super) fn next_length(flow: &Flow<'_>, wait: bool) -> Result<usize, Errno> {
    let flags = RecvFlags::PEEK | RecvFlags::TRUNC | receiving(wait);
    let mut none = [0u8; 1];
    Ok(rustix::net::recv(flow.source_fd(), &mut none, flags)?.1)
}
