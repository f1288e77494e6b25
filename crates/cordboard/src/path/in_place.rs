//! A write at the sink's offset, whatever `O_APPEND` says: the sink may end
//! before that offset, and the bytes do not belong at its end.

use std::io::IoSlice;
use std::os::fd::BorrowedFd;

use super::lengthen::{NO_APPEND, lengthen};
use super::{Cursor, Flow};

/// The position, which moves along: -1 in `pwritev2(2)`.
const HERE: u64 = u64::MAX;

/// For a sink of which [`Flow::in_place`] says so.
///
/// | errno | what follows | evidence |
/// |---|---|---|
/// | `EOPNOTSUPP`, `ENOSYS`, `EPERM`, `EACCES` | the sink is lengthened up to that offset | a filter that was installed since, or one of another thread |
pub(super) fn write(flow: &Flow<'_>, bytes: &[u8]) -> rustix::io::Result<usize> {
    let offset = match flow.to {
        Cursor::At(offset) => Some(offset),
        _ => None,
    };
    write_by(flow, flow.sink_fd(), bytes, offset)
}

/// The same by another descriptor of the sink, which is a second description
/// too, at that offset; `None`: at the descriptor's position.
pub(super) fn write_by(
    flow: &Flow<'_>,
    sink: BorrowedFd<'_>,
    bytes: &[u8],
    offset: Option<u64>,
) -> rustix::io::Result<usize> {
    let parts = [IoSlice::new(bytes)];
    match rustix::io::pwritev2(sink, &parts, offset.unwrap_or(HERE), NO_APPEND) {
        Err(
            rustix::io::Errno::OPNOTSUPP
            | rustix::io::Errno::NOSYS
            | rustix::io::Errno::PERM
            | rustix::io::Errno::ACCESS,
        ) => {}
        done => return done,
    }
    if let Some(place) = flow.sink_offset() {
        // Where that fails, so does the write.
        let _ = lengthen(sink, place);
    }
    match offset {
        Some(offset) => rustix::io::pwrite(sink, bytes, offset),
        None => rustix::io::write(sink, bytes),
    }
}
