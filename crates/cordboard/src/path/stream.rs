//! Reading bytes into a buffer, as every path that has one does it.

use rustix::net::RecvFlags;

use super::{Cursor, Flow};
use crate::errno::Errno;
use crate::pipe::{self, OwnedPipe};

/// One read where the source stands. `aside`: for reading a little from a pipe.
pub(super) fn read(
    flow: &mut Flow<'_>,
    into: &mut [u8],
    aside: &mut Option<OwnedPipe>,
) -> Result<usize, Errno> {
    let fd = flow.source_fd();
    if flow.source.kind().is_socket() {
        let flags = if flow.may_sleep {
            RecvFlags::empty()
        } else {
            RecvFlags::DONTWAIT
        };
        return Ok(rustix::net::recv(fd, into, flags)?.1);
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
