//! Buffered I/O of the direct path: an unaligned head or tail, the end of the source,
//! and the pieces of a block that failed by direct I/O.
//!
//! Each piece of a failed block is synced before it counts, because the device may
//! refuse it: a write to a block device, or to a file on a thinly provisioned one,
//! reports `EIO` and `ENOSPC` by `fdatasync(2)` only.
//!
//! The error of a sync is final. The kernel reports a write-back error once for
//! each open file description (`errseq_check_and_advance`, lib/errseq.c) and
//! has dropped the pages by then, without telling which. So the error may
//! belong to an earlier piece, and the `fsync(2)` at the end would succeed.

use rustix::fs::OFlags;

use super::Direct;
use super::block_engine::Outcome;
use super::places::{account, offsets};
use crate::endpoint::{Side, reopen};
use crate::errno::Errno;
use crate::path::common::in_place;
use crate::path::flow::Flow;
use crate::path::verdict::Verdict;
use crate::sys::again;

impl Direct {
    /// Handles a block that failed, with nothing in flight. Blocks written
    /// behind it do not count.
    pub(super) fn broken(&mut self, flow: &mut Flow<'_>) -> Option<Verdict> {
        let (outcome, length) = self.window.give_up()?;
        self.until = 0;
        let (from, _) = match offsets(flow) {
            Ok(offsets) => offsets,
            Err(errno) => return Some(Verdict::Declined(errno.into())),
        };
        self.retry_length = 0;
        let errno = match outcome {
            Outcome::ReadFailed(errno) | Outcome::WriteFailed(errno) => errno,
            // A short read or write, or a cancelled block: retried.
            _ => Errno::EAGAIN,
        };
        match errno {
            Errno::EINVAL if !self.refused => self.refused = true,
            Errno::EINVAL | Errno::EOPNOTSUPP | Errno::ENOTBLK | Errno::ENOMEM => {
                return Some(Verdict::Declined(errno.into()));
            }
            Errno::EAGAIN | Errno::EINTR | Errno::ECANCELED => {}
            _ => {
                self.retry_length = length;
                // Reports an error of earlier writes, if any.
                match self.sync(flow) {
                    // The next piece is synced too.
                    Ok(()) | Err(Errno::EINTR) => {}
                    Err(errno) => return Some(Verdict::Failed(Side::Sink, errno)),
                }
            }
        }
        self.buffered_until = from + length;
        Some(Verdict::Moved(0))
    }

    /// Moves a piece by buffered I/O: of a head or a tail, of the end, or of a block
    /// that failed by direct I/O.
    pub(super) fn buffered_piece(&mut self, flow: &mut Flow<'_>) -> Verdict {
        let (from, to) = match offsets(flow) {
            Ok(offsets) => offsets,
            Err(errno) => return Verdict::Declined(errno.into()),
        };
        if self.is_taken || (flow.is_at_size() && self.found_end <= from) {
            return Verdict::Ended;
        }
        // `O_APPEND` was set on the sink since.
        if in_place::appends(flow.sink.fd()) {
            return Verdict::Declined(Errno::EBADF.into());
        }
        let boundary = self.unit - from % self.unit;
        let mut length = boundary.max(self.buffered_until.saturating_sub(from));
        let retrying = self.retry_length > 0 && from < self.buffered_until;
        if retrying {
            length = length.min(self.retry_length);
        }
        let mut length = flow.want(usize::try_from(length).unwrap_or(self.arena.len()));
        if retrying {
            // Direct I/O reads whole units. A schedule grants any number of bytes.
            let whole = (from + length as u64) / self.unit * self.unit;
            length = whole
                .checked_sub(from)
                .filter(|n| *n > 0)
                .map_or(length, |n| n as usize);
        }
        let Some(mut memory) = self.arena.take(length.min(self.arena.len())) else {
            return Verdict::Declined("no memory is left for blocks".into());
        };
        let source = self.source.fd(flow.source.fd());
        let mut read = rustix::io::pread(source, &mut memory[..], from);
        if retrying && read.is_err() {
            // A page cache folio may span megabytes, and is read as a whole.
            let past = reopen(source, OFlags::RDONLY | OFlags::DIRECT);
            read = match past.map(|fd| rustix::io::pread(&fd, &mut memory[..], from)) {
                // No whole units, or no direct I/O: the first error is the reason.
                Err(_) | Ok(Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP)) => read,
                Ok(past) => past,
            };
        }
        let n = match read.map_err(Errno::from) {
            Ok(0) => return Verdict::Ended,
            Ok(n) => n,
            Err(Errno::EINTR) => return flow.was_interrupted(Side::Source),
            Err(_) if retrying && self.halve_retry_length(length) => return Verdict::Moved(0),
            Err(errno) => return Verdict::Failed(Side::Source, errno),
        };
        let sink = self.sink.fd(flow.sink.fd());
        // The source may have grown past the claimed range.
        let bytes = flow.claimed(&memory[..n]);
        let mut written = in_place::write_at(sink, bytes, to).map_err(Errno::from);
        if retrying && written.is_ok() {
            written = self.sync(flow).and(written);
        }
        match written {
            Ok(0) => Verdict::Failed(Side::Sink, Errno::EIO),
            Ok(n) => match account(flow, n as u64) {
                Ok(()) => {
                    self.is_filled_to(to + n as u64);
                    Verdict::Moved(n as u64)
                }
                Err(verdict) => verdict,
            },
            Err(Errno::EINTR) => flow.was_interrupted(Side::Sink),
            // `O_APPEND` was set while the source was read.
            Err(Errno::EBADF) => Verdict::Declined(Errno::EBADF.into()),
            Err(_) if retrying && self.halve_retry_length(n) => Verdict::Moved(0),
            Err(errno) => Verdict::Failed(Side::Sink, errno),
        }
    }

    /// Writes the sink's dirty pages to the device. The first error is kept.
    /// `EINTR`: to be retried.
    fn sync(&mut self, flow: &Flow<'_>) -> Result<(), Errno> {
        let sink = self.sink.fd(flow.sink.fd());
        let synced = again(|| rustix::fs::fdatasync(sink)).map_err(Errno::from);
        if let Err(errno) = synced
            && errno != Errno::EINTR
        {
            self.sync_error.get_or_insert(errno);
        }
        synced
    }

    /// Returns the error of a sync, once it is known up to which offset the
    /// sink is written.
    pub(super) fn settled_sync_error(&self, flow: &Flow<'_>) -> Option<Errno> {
        let found = || {
            flow.source
                .offset()
                .is_none_or(|from| from >= self.buffered_until)
        };
        self.sync_error.filter(|_| found())
    }

    /// Halves the piece length after a failure of this length. `false` if no
    /// shorter one is possible.
    fn halve_retry_length(&mut self, length: usize) -> bool {
        let length = length as u64;
        self.retry_length = (length / 2).next_multiple_of(self.unit);
        length > self.unit
    }
}
