//! Direct I/O with read and write: aligned where possible, and through a
//! second, buffered descriptor for the unaligned head and tail (`open(2)`,
//! NOTES, `O_DIRECT`).

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::OFlags;

use crate::endpoint::{Facts, reopen};
use crate::errno::Errno;
use crate::path::common::{in_place, stream};
use crate::path::flow::Flow;
use crate::sys;

/// The unit of direct I/O if the kernel does not report it, or was not asked.
pub(super) const UNKNOWN: usize = 4096;

/// The number of bytes that a write must be a multiple of; 1 without direct
/// I/O.
pub(super) fn unit(facts: &Facts) -> usize {
    if !facts.is_direct() {
        return 1;
    }
    facts
        .alignment
        .map_or(UNKNOWN, |a| a.offset.max(1) as usize)
}

fn memory(facts: &Facts) -> usize {
    facts
        .alignment
        .map_or(UNKNOWN, |a| a.memory.max(1) as usize)
}

/// Reads from any offset, any length.
pub(super) fn read(
    flow: &mut Flow<'_>,
    buffered_fd: &mut Option<OwnedFd>,
    into: &mut [u8],
) -> Result<usize, Errno> {
    let (fd, facts) = (flow.source.fd(), *flow.source.facts());
    let offset = flow.source.place()?;
    let unit = unit(&facts);
    let whole = into.len() / unit * unit;
    if whole > 0
        && offset % unit as u64 == 0
        && (into.as_ptr() as usize).is_multiple_of(memory(&facts))
    {
        match stream::read_at_cursor(flow, &mut into[..whole]) {
            // Alignment is stricter than reported: read through the cache.
            Err(Errno::EINVAL) => {}
            done => return done,
        }
    }
    // By offset, for a call that does not lock the file position.
    let length = flow.claim_source(into.len());
    let offset = flow.source.place()?;
    let n = buffered(fd, OFlags::RDONLY, buffered_fd, |fd| {
        Ok(sys::pread(fd, &mut into[..length], offset)?)
    })?;
    flow.was_read(Some(offset), n as u64);
    Ok(n)
}

/// Writes at any offset, any length: the aligned part directly, if it begins
/// aligned; otherwise up to the next boundary, or the tail, through the cache.
pub(super) fn write(
    flow: &mut Flow<'_>,
    buffered_fd: &mut Option<OwnedFd>,
    bytes: &[u8],
) -> Result<usize, Errno> {
    let (fd, facts) = (flow.sink.fd(), *flow.sink.facts());
    let offset = flow.sink.place()?;
    let offset = if facts.appends() {
        sys::fstat(fd)?.st_size as u64
    } else {
        offset
    };
    let unit = unit(&facts);
    let off_boundary = (offset % unit as u64) as usize;
    let whole = bytes.len() / unit * unit;
    if whole > 0 && off_boundary == 0 && (bytes.as_ptr() as usize).is_multiple_of(memory(&facts)) {
        match in_place::write(flow, &bytes[..whole]) {
            Err(rustix::io::Errno::INVAL) => {}
            done => return Ok(done?),
        }
    }
    let part = match off_boundary {
        0 => bytes,
        head => &bytes[..bytes.len().min(unit - head)],
    };
    let mut flags = OFlags::WRONLY;
    if facts.appends() {
        flags |= OFlags::APPEND;
    }
    let part = &part[..flow.claim_sink(part.len())];
    let offset = match facts.appends() {
        true => offset,
        false => flow.sink.place()?,
    };
    let n = buffered(fd, flags, buffered_fd, |fd| match flow.in_place {
        true => Ok(in_place::write_by(flow, fd, part, Some(offset))?),
        false => Ok(sys::pwrite(fd, part, offset)?),
    })?;
    if facts.appends() {
        // The result is ignored: the bytes are written and count, and the next write
        // appends wherever the position is.
        let _ = rustix::fs::seek(fd, rustix::fs::SeekFrom::End(0));
    } else {
        flow.was_written(Some(offset), n as u64);
    }
    Ok(n)
}

/// Makes one call without `O_DIRECT`: on a second open file description of the
/// same file, or, if that is unavailable (no procfs, no permission, a lease),
/// by clearing the flag for the duration of the call, as dd(1) does for its
/// last block.
fn buffered(
    fd: BorrowedFd<'_>,
    flags: OFlags,
    buffered_fd: &mut Option<OwnedFd>,
    call: impl FnOnce(BorrowedFd<'_>) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    use std::os::fd::AsFd;
    if buffered_fd.is_none() {
        *buffered_fd = reopen(fd, flags).ok();
    }
    if let Some(buffered_fd) = buffered_fd {
        return call(buffered_fd.as_fd());
    }
    let before = rustix::fs::fcntl_getfl(fd)?;
    rustix::fs::fcntl_setfl(fd, before - OFlags::DIRECT)?;
    let done = call(fd);
    // The result is ignored: the call's bytes are done and count.
    let _ = rustix::fs::fcntl_setfl(fd, before);
    done
}
