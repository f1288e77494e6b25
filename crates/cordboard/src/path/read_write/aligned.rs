//! Reading and writing past the page cache: aligned where it can be, and
//! through a second, cached descriptor for the head and the tail that cannot
//! (`open(2)`, NOTES, `O_DIRECT`).

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::OFlags;

use super::super::{in_place, stream};
use crate::endpoint::{Facts, reopen};
use crate::errno::Errno;
use crate::path::flow::Flow;
use crate::sys;

/// Bytes that a write must be a multiple of; 1 for anything but direct I/O.
pub(super) fn unit(facts: &Facts) -> usize {
    if !facts.is_direct() {
        return 1;
    }
    facts.alignment.map_or(4096, |a| a.offset.max(1) as usize)
}

fn memory(facts: &Facts) -> usize {
    facts.alignment.map_or(4096, |a| a.memory.max(1) as usize)
}

/// A read that may begin and end anywhere.
pub(super) fn read(
    flow: &mut Flow<'_>,
    twin: &mut Option<OwnedFd>,
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
        match stream::plain(flow, &mut into[..whole]) {
            // Stricter than it says: read through the cache.
            Err(Errno::EINVAL) => {}
            done => return done,
        }
    }
    // By an offset, for a call that does not lock the position.
    let length = flow.claim_source(into.len());
    let offset = flow.source.place()?;
    let n = cached(fd, OFlags::RDONLY, twin, |fd| {
        Ok(sys::pread(fd, &mut into[..length], offset)?)
    })?;
    flow.was_read(Some(offset), n as u64);
    Ok(n)
}

/// A write that may begin and end anywhere: the aligned part directly, where
/// it begins aligned; otherwise up to the next boundary, or the tail, through
/// the cache.
pub(super) fn write(
    flow: &mut Flow<'_>,
    twin: &mut Option<OwnedFd>,
    bytes: &[u8],
) -> Result<usize, Errno> {
    let (fd, facts) = (flow.sink.fd(), *flow.sink.facts());
    let offset = flow.sink.place()?;
    let offset = if facts.appends() {
        rustix::fs::fstat(fd)?.st_size as u64
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
    let n = cached(fd, flags, twin, |fd| match flow.in_place {
        true => Ok(in_place::write_by(flow, fd, part, Some(offset))?),
        false => Ok(sys::pwrite(fd, part, offset)?),
    })?;
    if facts.appends() {
        rustix::fs::seek(fd, rustix::fs::SeekFrom::End(0))?;
    } else {
        flow.was_written(Some(offset), n as u64);
    }
    Ok(n)
}

/// Does one call without `O_DIRECT`: on a second open description of the same
/// file, or, where that cannot be had (no procfs, no permission, a lease), by
/// taking the flag off for the length of the call, as dd(1) does for its last
/// block.
fn cached(
    fd: BorrowedFd<'_>,
    flags: OFlags,
    twin: &mut Option<OwnedFd>,
    call: impl FnOnce(BorrowedFd<'_>) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    use std::os::fd::AsFd;
    if twin.is_none() {
        *twin = reopen(fd, flags).ok();
    }
    if let Some(twin) = twin {
        return call(twin.as_fd());
    }
    let before = rustix::fs::fcntl_getfl(fd)?;
    rustix::fs::fcntl_setfl(fd, before - OFlags::DIRECT)?;
    let done = call(fd);
    // Whatever comes of this: what the call has done is done, and counts.
    let _ = rustix::fs::fcntl_setfl(fd, before);
    done
}
