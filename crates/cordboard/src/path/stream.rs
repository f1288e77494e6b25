//! Reading bytes into a buffer, as every path that has one does it.

use rustix::net::{RecvFlags, SendFlags};

use super::{Cursor, Flow};
use crate::errno::Errno;
use crate::pipe::{self, OwnedPipe};

/// Flags of a receive that may wait, or may not.
pub(super) fn receiving(wait: bool) -> RecvFlags {
    if wait {
        RecvFlags::empty()
    } else {
        RecvFlags::DONTWAIT
    }
}

/// Flags of a send that may wait, or may not, and never raises `SIGPIPE`.
pub(super) fn sending(wait: bool) -> SendFlags {
    if wait {
        SendFlags::NOSIGNAL
    } else {
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT
    }
}

/// One read where the source stands. `aside`: for reading a little from a pipe.
pub(super) fn read(
    flow: &mut Flow<'_>,
    into: &mut [u8],
    aside: &mut Option<OwnedPipe>,
) -> Result<usize, Errno> {
    let fd = flow.source_fd();
    if flow.source.kind().is_socket() {
        return Ok(rustix::net::recv(fd, into, receiving(flow.may_sleep))?.1);
    }
    if flow.source.kind().is_pipe() {
        let may_wait = flow.may_sleep || flow.source.facts().nonblocking;
        return pipe::read(fd, into, may_wait, aside);
    }
    let n = match flow.from {
        Cursor::At(offset) => rustix::io::pread(fd, into, offset)?,
        _ => rustix::io::read(fd, into)?,
    };
    flow.from.advance(n as u64);
    Ok(n)
}
