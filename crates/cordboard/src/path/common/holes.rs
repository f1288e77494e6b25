//! Holes: ranges without blocks, which read as zeros.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FallocateFlags, OFlags, SeekFrom};

use crate::endpoint::{Filesystem, Side, reopen};
use crate::errno::Errno;
use crate::path::common::hole_check::{Trust, read_hole, trust};
use crate::path::common::lengthen::lengthen;
use crate::path::flow::Flow;
use crate::path::flow::cursor::Cursor;
use crate::sys::{again, fstat, has_written_extent};

/// Bytes of a hole per step if a stage inspects its zeros, or if it is read: few enough that
/// a cancellation takes effect soon.
const INSPECTED: u64 = 16 << 20;

/// Makes the sink's next `length` bytes a hole, or those before its end, and moves past
/// them. Returns their number; 0 if that is impossible and zeros must be written.
///
/// The sink's length is extended at once: if another process then sets `O_APPEND`
/// on it, the next write still goes to the right place, and no byte is counted
/// that the sink does not have.
pub(crate) fn make(flow: &mut Flow<'_>, length: u64) -> Result<u64, Errno> {
    Ok(made(flow, length)?.map_or(0, |made| made.length))
}

/// Makes the hole and returns what this has shown of the sink; `None` if zeros
/// must be written. Claims the range, because no call that makes a hole locks the
/// file position.
fn made(flow: &mut Flow<'_>, length: u64) -> Result<Option<Made>, Errno> {
    let before = flow.sink.cursor;
    flow.claim_sink(usize::try_from(length).unwrap_or(usize::MAX));
    let made = made_here(flow, length);
    if before == Cursor::Position && !matches!(made, Ok(Some(_))) {
        flow.release_sink_claim();
    }
    made
}

fn made_here(flow: &mut Flow<'_>, length: u64) -> Result<Option<Made>, Errno> {
    let Some(offset) = flow.sink.offset() else {
        return Ok(None);
    };
    let sink = flow.sink.fd();
    let size = fstat(sink)?.st_size as u64;
    let end = offset.saturating_add(length);
    if offset < size {
        // Earlier contents must read as zeros from now on, and their blocks be freed. The
        // sink is lengthened by the next call: either may be refused where the other is not
        // (a memfd with F_SEAL_FUTURE_WRITE or F_SEAL_GROW: EPERM).
        if punch(sink, offset, end).is_err() {
            return Ok(None);
        }
        let length = end.min(size) - offset;
        flow.sink.move_by(length as i64)?;
        return Ok(Some(Made {
            length,
            no_append: false,
        }));
    }
    let no_append = match lengthen(sink, end, &mut flow.sink_closed) {
        Ok(longer) => longer.no_append,
        // No file can be that long here. Filling the disk with zeros would
        // not change that.
        Err(Errno::EFBIG) if !is_past_the_limit(end) => return Err(Errno::EFBIG),
        // EPERM of a sealed memfd, or the limit: writing zeros shows how far
        // the file can grow.
        Err(_) => return Ok(None),
    };
    // Frees the block of the byte that lengthened it, which reads as zero anyway.
    let _ = punch(sink, offset, end);
    flow.sink.move_by(length as i64)?;
    Ok(Some(Made { length, no_append }))
}

/// Deallocates the blocks of a range, if the file system can.
fn punch(sink: BorrowedFd<'_>, start: u64, end: u64) -> rustix::io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    again(|| rustix::fs::fallocate(sink, flags, start, end - start))
}

/// A hole in the sink.
#[derive(Debug)]
struct Made {
    length: u64,
    /// The hole begins at or past the sink's end, which is known to support `RWF_NOAPPEND`.
    no_append: bool,
}

/// Whether `RLIMIT_FSIZE` forbids a file of this size.
fn is_past_the_limit(size: u64) -> bool {
    // If the limit is unknown, writing zeros shows it.
    crate::sys::file_size_limit().map_or(true, |limit| limit.is_some_and(|limit| limit < size))
}

/// Iterates over a source's data and holes.
///
/// Past the end of the sink, a hole takes no call: the next write goes to its own
/// offset regardless of `O_APPEND` ([`Flow::in_place`]), which leaves the hole
/// before it. The hole is counted at once, before the sink is that long; if
/// nothing is written after it, [`Walk::end`] lengthens the sink.
#[derive(Debug)]
pub(crate) struct Walk {
    /// Finished: the rest is treated as data.
    over: bool,
    /// The source is known to be data up to here.
    data_until: u64,
    /// The source's offset at a count of bytes read: both advance together.
    known: Option<(u64, u64)>,
    /// Bytes of a hole that were counted but that the sink may lack, the total
    /// written at that time, and the hole's end in the sink.
    pending: u64,
    pending_at: u64,
    pending_end: u64,
    /// A descriptor for `SEEK_DATA` and `SEEK_HOLE`, which move the file
    /// position: other processes may use that of the source meanwhile.
    own: Option<OwnedFd>,
    /// Whether the reported holes are trusted; `None` before the first.
    trust: Option<Trust>,
}

impl Walk {
    pub(crate) fn new() -> Walk {
        Walk {
            over: false,
            data_until: 0,
            known: None,
            pending: 0,
            pending_at: 0,
            pending_end: 0,
            own: None,
            trust: None,
        }
    }

    /// The descriptor that it has opened.
    pub(crate) fn own(&self) -> Option<&OwnedFd> {
        self.own.as_ref()
    }

    /// As [`Walk::own`], to be closed.
    pub(crate) fn into_own(self) -> Option<OwnedFd> {
        self.own
    }

    /// Skips a hole on both sides, if one comes next, and limits the step to the
    /// data before the following hole; to 0 bytes if more of the hole is left;
    /// does not limit it if holes cannot be found or made. `by_write`: the bytes
    /// after a hole are written by writes, or by calls that report that they
    /// would append.
    ///
    /// # Errors
    ///
    /// Of the side whose offset or length could not be changed. The next read
    /// would come from the wrong offset: the transfer must stop.
    pub(crate) fn advance(
        &mut self,
        flow: &mut Flow<'_>,
        by_write: bool,
    ) -> Result<(), (Side, Errno)> {
        if !self.over && !self.next(flow, by_write)? {
            self.over = true;
        }
        if self.over {
            flow.allowance.set_extent(u64::MAX);
        }
        Ok(())
    }

    /// `false`: holes cannot be found here; all is data.
    fn next(&mut self, flow: &mut Flow<'_>, by_write: bool) -> Result<bool, (Side, Errno)> {
        let Some(offset) = self.offset(flow) else {
            return Ok(false);
        };
        if offset < self.data_until {
            flow.allowance.set_extent(self.data_until - offset);
            return Ok(true);
        }
        let Some((data, end)) = self.true_extent(flow, offset) else {
            self.go_to(flow, offset, offset)?;
            return Ok(false);
        };
        let hole = data.saturating_sub(offset).min(flow.allowance.remaining());
        let inspected = flow.stages.look().then_some(INSPECTED);
        // Past the claimed range of the sink, other processes may have written.
        let most = [inspected, flow.sink.cursor.claimed()]
            .into_iter()
            .flatten()
            .min();
        let whole = most.is_none_or(|most| hole <= most);
        let hole = most.map_or(hole, |most| hole.min(most));
        // The source first: a hole made in the sink cannot be undone.
        if !self.go_to(flow, offset, offset + hole)? {
            return Ok(false);
        }
        let mut made = 0;
        if hole > 0 {
            let skipped = self.skip(flow, hole, by_write);
            made = skipped.unwrap_or(0);
            let kept = match made < hole {
                true => self.keep(flow, offset + made, hole - made),
                false => Ok(()),
            };
            skipped.map_err(|errno| (Side::Sink, errno))?;
            flow.skipped(made);
            kept?;
            if made == 0 {
                return Ok(false);
            }
        }
        self.known = Some((offset + made, flow.read()));
        if !whole || made < hole {
            flow.allowance.set_extent(0);
            return Ok(true);
        }
        self.data_until = end;
        flow.allowance.set_extent(end - data);
        Ok(true)
    }

    /// The source's next offset, without a system call each time.
    fn offset(&self, flow: &Flow<'_>) -> Option<u64> {
        match (flow.source.cursor, self.known) {
            (Cursor::Position, Some((offset, read))) => Some(offset + (flow.read() - read)),
            _ => flow.source.offset(),
        }
    }

    /// Moves the sink past a hole, or past the part of it before the sink's end. Returns the
    /// number of bytes; 0: impossible.
    fn skip(&mut self, flow: &mut Flow<'_>, hole: u64, by_write: bool) -> Result<u64, Errno> {
        let lazily = flow.in_place && by_write && !flow.stages.look();
        // An offset that no file can have is left to the call that reports it.
        if lazily && let Ok(end) = flow.sink.move_by(hole as i64) {
            self.pending_end = end;
            if flow.written() > self.pending_at {
                self.pending = 0;
            }
            self.pending += hole;
            self.pending_at = flow.written() + hole;
            return Ok(hole);
        }
        self.end_hole(flow)?;
        let Some(made) = made(flow, hole)? else {
            return Ok(0);
        };
        // With a size limit, zeros are written, which shows how far the sink can
        // grow.
        flow.in_place = made.no_append && crate::sys::file_size_limit() == Ok(None);
        Ok(made.length)
    }

    /// Makes sure that the sink has all of the last hole.
    fn end_hole(&mut self, flow: &mut Flow<'_>) -> Result<(), Errno> {
        if self.pending > 0 && flow.written() == self.pending_at {
            // Not the file position: another process may have sought back since.
            let (sink, place) = (flow.sink.fd(), self.pending_end);
            let size = fstat(sink)?.st_size as u64;
            if size < place {
                lengthen(sink, place, &mut flow.sink_closed)?;
                // Deallocates the byte that lengthened it, and nothing that another process has
                // added. Bytes before this hole may be written only now, in its range.
                let start = place.saturating_sub(self.pending);
                let _ = punch(sink, size.max(start), place);
            }
        }
        self.pending = 0;
        Ok(())
    }

    /// Lengthens the sink to the counted bytes, once nothing more will be written
    /// and nothing is held. If that fails, the hole is not counted.
    pub(crate) fn end(&mut self, flow: &mut Flow<'_>) -> Result<(), Errno> {
        let pending = self.pending;
        self.end_hole(flow).inspect_err(|_| {
            let back = -(pending as i64);
            let _ = flow.source.move_by(back);
            let _ = flow.sink.move_by(back);
            flow.uncount_hole(pending);
        })
    }

    /// Returns the next data range, without a hole in front of it that the file system reports
    /// falsely.
    fn true_extent(&mut self, flow: &Flow<'_>, offset: u64) -> Option<(u64, u64)> {
        let mut found = self.extent(flow, offset)?;
        if found.0 <= offset {
            return Some(found);
        }
        let (source, own) = (&flow.source, self.own.as_ref().map(AsFd::as_fd));
        let trust = match self.trust {
            Some(trust) => trust,
            None => {
                let trust = trust(source.facts(), source.fd(), own);
                if trust == Trust::FromNowOn {
                    found = self.extent(flow, offset)?;
                }
                *self.trust.insert(trust)
            }
        };
        if found.0 <= offset {
            return Some(found);
        }
        let fd = self.own.as_ref().map_or(flow.source.fd(), AsFd::as_fd);
        let is_hole = match trust {
            Trust::Trusted | Trust::FromNowOn => true,
            Trust::Unmapped => has_written_extent(fd, offset, found.0 - offset) == Ok(false),
            Trust::Read => false,
        };
        if is_hole {
            return Some(found);
        }
        let most = flow.allowance.remaining().min(INSPECTED);
        read_hole(fd, offset, found, most)
    }

    /// Returns the next data range. The search moves a file position: that of a
    /// second descriptor, or the source's own if it is unshared or if the source
    /// cannot be reopened. A file of FUSE may have to be synced, through a second descriptor.
    fn extent(&mut self, flow: &Flow<'_>, offset: u64) -> Option<(u64, u64)> {
        let at_position = flow.source.cursor == Cursor::Position;
        let is_unshared = at_position && flow.source.is_unshared();
        if self.own.is_none()
            && (!is_unshared || flow.source.facts().may_be_on(Filesystem::is_fuse))
        {
            self.own = reopen(flow.source.fd(), OFlags::RDONLY).ok();
        }
        match &self.own {
            Some(own) => find(own.as_fd(), offset),
            None if at_position => find(flow.source.fd(), offset),
            None => None,
        }
    }

    /// Moves the source's next read from `here` to `there`. `false`: another process
    /// has moved its position, and the bytes that were passed instead are claimed.
    fn go_to(&self, flow: &mut Flow<'_>, here: u64, there: u64) -> Result<bool, (Side, Errno)> {
        let failed = |errno: rustix::io::Errno| (Side::Source, errno.into());
        let step = there.wrapping_sub(here) as i64;
        match flow.source.cursor {
            // The search for holes has moved the position to an arbitrary offset.
            Cursor::Position if self.own.is_none() => {
                rustix::fs::seek(flow.source.fd(), SeekFrom::Start(there)).map_err(failed)?;
            }
            Cursor::Position if step != 0 => {
                let end = rustix::fs::seek(flow.source.fd(), SeekFrom::Current(step));
                let end = end.map_err(failed)?;
                if end != there {
                    // Not moved back: in between, another process could claim bytes
                    // from the wrong position.
                    flow.claim_passed(end.wrapping_sub(step as u64), end);
                    return Ok(false);
                }
            }
            Cursor::At(_) | Cursor::Claimed { .. } => {
                (flow.source.move_by(step)).map_err(|errno| (Side::Source, errno))?;
            }
            Cursor::Position | Cursor::Stream => {}
        }
        Ok(true)
    }

    /// Moves the source back over a hole that was passed, and that the sink does not have.
    fn keep(&self, flow: &mut Flow<'_>, offset: u64, hole: u64) -> Result<(), (Side, Errno)> {
        if flow.source.cursor == Cursor::Position && self.own.is_some() {
            flow.claim_passed(offset, offset + hole);
            return Ok(());
        }
        self.go_to(flow, offset + hole, offset).map(drop)
    }
}

/// Returns the next range of data at or after `offset`; at the end of the data,
/// an empty range at the end of the file. `None` if the file system cannot tell.
/// `lseek(2)`, since Linux 3.1; leaves the file position at an arbitrary offset.
fn find(fd: BorrowedFd<'_>, offset: u64) -> Option<(u64, u64)> {
    let seek_to = |from| again(|| rustix::fs::seek(fd, from));
    let data_from = |data| {
        let end = seek_to(SeekFrom::Hole(data)).ok()?;
        // Another process has punched a hole there since: the answer is not reliable.
        (end > data).then_some((data, end))
    };
    match seek_to(SeekFrom::Data(offset)) {
        Ok(data) => data_from(data),
        // Past the last data: a hole to the end, or the end itself.
        Err(rustix::io::Errno::NXIO) => {
            let size = fstat(fd).ok()?.st_size as u64;
            // The size may include data that another process has appended since.
            match seek_to(SeekFrom::Data(offset)) {
                Ok(data) => data_from(data),
                Err(rustix::io::Errno::NXIO) => (size >= offset).then_some((size, u64::MAX)),
                Err(_) => None,
            }
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::{Request, Transfer};

    /// One of the calls that make the hole is refused. The sink has no more bytes than are
    /// counted, and its other contents stay.
    #[test]
    fn a_hole_that_is_refused_in_part_is_counted_in_part() {
        const END: u64 = 1 << 20;
        let source = tempfile::tempfile().unwrap();
        // Returns the end of the hole that was made.
        let make = |refused: Option<usize>| {
            let sink = tempfile::tempfile().unwrap();
            sink.write_all_at(&[1; 8000], 0).unwrap();
            let request = Request {
                sink_offset: Some(4096),
                ..Request::default()
            };
            let mut transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
            let mut at = 4096;
            let body = || {
                while at < END
                    && let made @ 1.. = super::make(&mut transfer.flow, END - at).unwrap()
                {
                    at += made;
                }
            };
            let denied = |count| (Some(count) == refused).then_some(libc::ENOSPC);
            testkit::midst::refusing(&[libc::SYS_fallocate], body, denied)?;
            let mut bytes = vec![2; sink.metadata().unwrap().len() as usize];
            sink.read_exact_at(&mut bytes, 0).unwrap();
            let zeros = bytes[4096..].iter().take_while(|byte| **byte == 0).count();
            assert_eq!(zeros as u64, at - 4096, "{refused:?}");
            assert_eq!(bytes.len() as u64, at.max(8000), "{refused:?}");
            Some(at)
        };
        match make(None) {
            None => return testkit::skip::here("no seccomp_unotify(2) here"),
            Some(4096) => return testkit::skip::here("no holes in temporary files"),
            Some(end) => assert_eq!(end, END),
        }
        for refused in 0..5 {
            make(Some(refused));
        }
    }

    /// Another process appends after the search has found no more data, and before the size is
    /// queried.
    #[test]
    fn data_that_is_appended_meanwhile_is_no_hole() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        if find(file.as_fd(), 0) == Some((0, 1 << 20)) {
            return testkit::skip::here("no holes in temporary files");
        }
        let (mut found, mut appended) = (None, false);
        let calls = testkit::refuse::STAT.concat();
        let search = || found = find(file.as_fd(), 0);
        let append = || {
            if !std::mem::replace(&mut appended, true) {
                file.write_all_at(&[1; 4096], 1 << 20).unwrap();
            }
        };
        let Some(held) = testkit::midst::at_each(&calls, search, append) else {
            return testkit::skip::here("no seccomp_unotify(2) here");
        };
        assert_eq!((found, held), (Some((1 << 20, (1 << 20) + 4096)), 1));
        assert_eq!(find(file.as_fd(), 0), found);
    }
}
