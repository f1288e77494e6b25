//! Writes at the sink's offset regardless of `O_APPEND`: the sink may end before
//! that offset, and the bytes do not belong at its end.

use std::io::IoSlice;
use std::os::fd::BorrowedFd;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::lengthen::{NO_APPEND, lengthen};
use crate::path::flow::Flow;
use crate::sys;

/// Writes at the sink's cursor and advances it.
pub(in crate::path) fn write(flow: &mut Flow<'_>, bytes: &[u8]) -> rustix::io::Result<usize> {
    let (sink, place) = (flow.sink.fd(), flow.sink.cursor.place());
    let n = match place {
        _ if flow.in_place => write_by(flow, sink, bytes, place)?,
        Some(offset) => sys::pwrite(sink, bytes, offset)?,
        None => rustix::io::write(sink, bytes)?,
    };
    flow.sink.cursor.advance(n as u64);
    Ok(n)
}

/// Writes at `offset` (`None`: at the file position) to a sink for which
/// [`Flow::in_place`] is set. `sink` may be another open file description of the
/// same file. If the kernel refuses the flag, first lengthens the sink up to its
/// next offset. A sink that is long enough is not lengthened: its last byte could be
/// one of the transfer, which [`lengthen`] may overwrite.
pub(in crate::path) fn write_by(
    flow: &mut Flow<'_>,
    sink: BorrowedFd<'_>,
    bytes: &[u8],
    offset: Option<u64>,
) -> rustix::io::Result<usize> {
    if let Some(done) = call(sink, bytes, offset.unwrap_or(sys::HERE)) {
        return done;
    }
    if let Some(place) = flow.sink.offset()
        && (rustix::fs::fstat(sink)?.st_size as u64) < place
    {
        // If that fails, so does the write.
        let _ = lengthen(sink, place, &mut flow.sink_closed);
    }
    match offset {
        Some(offset) => sys::pwrite(sink, bytes, offset),
        None => rustix::io::write(sink, bytes),
    }
}

/// Writes at `offset` to a sink that had no `O_APPEND` when it was checked, and
/// may have it by now. If the kernel refuses the call, checks `O_APPEND` once
/// more.
///
/// # Errors
///
/// `EBADF`: the flag is set, and the kernel has no `RWF_NOAPPEND` (before Linux
/// 6.9), or a seccomp filter refuses the call. Otherwise as `pwrite(2)`.
pub(in crate::path) fn write_at(
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

/// Whether `O_APPEND` is set, with which `pwrite(2)` appends, whatever the offset
/// (man page, BUGS).
pub(in crate::path) fn appends(sink: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_getfl(sink).is_ok_and(|flags| flags.contains(OFlags::APPEND))
}

/// | errno | result | evidence |
/// |---|---|---|
/// | `EOPNOTSUPP`, `ENOSYS`, `EPERM`, `EACCES` | `None`: refused | before Linux 6.9; a seccomp filter installed since, or of another thread |
fn call(sink: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> Option<rustix::io::Result<usize>> {
    match rustix::io::pwritev2(sink, &[IoSlice::new(bytes)], offset, NO_APPEND) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM | Errno::ACCESS) => None,
        done => Some(done),
    }
}
