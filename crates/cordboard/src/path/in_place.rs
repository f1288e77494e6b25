//! A write at the sink's offset, whatever `O_APPEND` says: the sink may end
//! before that offset, and the bytes do not belong at its end.

use std::io::IoSlice;
use std::os::fd::BorrowedFd;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::lengthen::{NO_APPEND, lengthen};
use crate::path::flow::Flow;
use crate::sys;

/// The position, which moves along: -1 in `pwritev2(2)`.
const HERE: u64 = u64::MAX;

/// Writes where the sink is written next, and moves that place along.
pub(super) fn write(flow: &mut Flow<'_>, bytes: &[u8]) -> rustix::io::Result<usize> {
    let (sink, place) = (flow.sink.fd(), flow.sink.cursor.place());
    let n = match place {
        _ if flow.in_place => write_by(flow, sink, bytes, place)?,
        Some(offset) => sys::pwrite(sink, bytes, offset)?,
        None => rustix::io::write(sink, bytes)?,
    };
    flow.sink.cursor.advance(n as u64);
    Ok(n)
}

/// For a sink of which [`Flow::in_place`] says so, by this descriptor of it, which
/// may be of another description, at that offset; `None`: at the descriptor's
/// position. Where the call is refused, the sink is lengthened up to there.
pub(super) fn write_by(
    flow: &Flow<'_>,
    sink: BorrowedFd<'_>,
    bytes: &[u8],
    offset: Option<u64>,
) -> rustix::io::Result<usize> {
    if let Some(done) = call(sink, bytes, offset.unwrap_or(HERE)) {
        return done;
    }
    if let Some(place) = flow.sink.offset() {
        // Where that fails, so does the write.
        let _ = lengthen(sink, place);
    }
    match offset {
        Some(offset) => sys::pwrite(sink, bytes, offset),
        None => rustix::io::write(sink, bytes),
    }
}

/// At this offset of a sink that was found without `O_APPEND`, and may have it
/// by now. Where the call is refused, that is looked for once more.
///
/// # Errors
///
/// `EBADF`: it has, and the kernel has no `RWF_NOAPPEND` (before Linux 6.9), or
/// a filter refuses the call. Otherwise as `pwrite(2)`.
pub(super) fn write_at(
    sink: BorrowedFd<'_>,
    bytes: &[u8],
    offset: u64,
) -> rustix::io::Result<usize> {
    if let Some(done) = call(sink, bytes, offset) {
        return done;
    }
    match appends(sink) {
        true => Err(Errno::BADF),
        false => sys::pwrite(sink, bytes, offset),
    }
}

/// `pwrite(2)` appends then, whatever the offset (its BUGS).
pub(super) fn appends(sink: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_getfl(sink).is_ok_and(|flags| flags.contains(OFlags::APPEND))
}

/// | errno | what follows | evidence |
/// |---|---|---|
/// | `EOPNOTSUPP`, `ENOSYS`, `EPERM`, `EACCES` | `None`: refused | before Linux 6.9; a filter that was installed since, or one of another thread |
fn call(sink: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> Option<rustix::io::Result<usize>> {
    match rustix::io::pwritev2(sink, &[IoSlice::new(bytes)], offset, NO_APPEND) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM | Errno::ACCESS) => None,
        done => Some(done),
    }
}
