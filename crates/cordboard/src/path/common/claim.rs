//! Claims: ranges of a file reserved for one transfer while other processes use the same
//! open file description, for calls that take an offset and do not lock the file
//! position.

use crate::path::flow::Flow;
use crate::path::flow::cursor::Cursor;
use crate::sys::fstat;

/// The bytes available in the source, and its size.
#[derive(Debug, Clone, Copy)]
struct Available {
    bytes: u64,
    size: u64,
}

impl Flow<'_> {
    /// Claims up to `length` of the source's next bytes for this transfer, for a call
    /// that does not lock the source's position. Returns how many bytes the call may
    /// request.
    pub(crate) fn claim_source(&mut self, length: usize) -> usize {
        let available = self.available();
        self.claim_of_source(length, available);
        within(self.source.cursor, length)
    }

    /// Returns whether nothing was left, because another process has read it.
    fn claim_of_source(&mut self, length: usize, available: Option<Available>) -> bool {
        let claims = self.claims_source() && self.source.cursor == Cursor::Position;
        let Some(Available { bytes, size }) = available.filter(|_| claims) else {
            return false;
        };
        let (fd, bytes) = (self.source.fd(), bytes.min(length as u64));
        self.source.cursor.claim_before(fd, bytes, size)
    }

    /// Returns the bytes from here to the end of the source. At the size that the source
    /// had when the transfer began, the size is read again: it may have grown. `None`
    /// without a size.
    fn available(&self) -> Option<Available> {
        let (here, size) = (self.counted_place()?, self.source.facts().size?);
        let up_to = |size: u64| Available {
            bytes: size.saturating_sub(here),
            size,
        };
        let claims = self.claims_source() || self.claims_sink();
        if claims && here >= size {
            let now = fstat(self.source.fd());
            return Some(up_to(now.map_or(size, |now| now.st_size as u64)));
        }
        Some(up_to(size))
    }

    /// Whether the source's position has to be claimed.
    fn claims_source(&self) -> bool {
        let at_position = matches!(
            self.source.cursor,
            Cursor::Position | Cursor::Claimed { .. }
        );
        at_position && !self.source.is_unshared() && self.source.kind().is_cached()
    }

    /// The offset for a call that reads the source. An offset is needed even if nothing
    /// is left to claim: `splice(2)` writes back the position that it began with even if
    /// it read nothing (`do_splice`, fs/splice.c), and another process may have moved it.
    pub(crate) fn offset_to_read(&self) -> Option<u64> {
        match self.source.cursor {
            Cursor::Position if self.claims_source() => self.source.offset(),
            cursor => cursor.place(),
        }
    }

    /// Records that a call has read `bytes` at this offset.
    pub(crate) fn was_read(&mut self, offset: Option<u64>, bytes: u64) {
        self.source.cursor.used(self.source.fd(), offset, bytes);
    }

    /// Whether another process has moved the source's position since this transfer moved
    /// it. Rewinding it by the bytes that this transfer has read would make that process
    /// read its own bytes again.
    pub(crate) fn source_is_astray(&self) -> bool {
        let left_at = match self.source.cursor {
            Cursor::Claimed { end, .. } => Some(end),
            _ => self.counted_place(),
        };
        self.claims_source() && Cursor::position(self.source.fd()) != left_at
    }

    /// Whether the sink's position has to be claimed.
    pub(crate) fn claims_sink(&self) -> bool {
        let facts = self.sink.facts();
        let at_position = matches!(self.sink.cursor, Cursor::Position | Cursor::Claimed { .. });
        at_position && !self.sink.is_unshared() && facts.kind.is_cached() && !facts.append
    }

    /// As [`Flow::was_read`], for the sink.
    pub(crate) fn was_written(&mut self, offset: Option<u64>, bytes: u64) {
        self.sink.cursor.used(self.sink.fd(), offset, bytes);
    }

    /// Claims `length` bytes of the sink. The same number of bytes must be ready to be
    /// written.
    pub(crate) fn claim_sink(&mut self, length: usize) -> usize {
        if self.claims_sink() {
            self.sink.cursor.claim(self.sink.fd(), length as u64);
        }
        within(self.sink.cursor, length)
    }

    /// Claims both ends for a call that moves bytes from one to the other.
    pub(crate) fn claim_both(&mut self, length: usize) -> usize {
        let available = self.available();
        let is_gone = self.claim_of_source(length, available);
        let length = within(self.source.cursor, length);
        match available {
            // The call is made to detect the end of file.
            Some(Available { bytes: 0, .. }) => within(self.sink.cursor, length),
            // A claim of the sink would leave a gap.
            Some(_) if is_gone => within(self.sink.cursor, length),
            Some(Available { bytes, .. }) => {
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                self.claim_sink(length.min(bytes))
            }
            None => self.claim_sink(length),
        }
    }

    /// Whether the sink's position has to be claimed, and nothing is.
    fn lacks_sink_claim(&self) -> bool {
        self.claims_sink() && self.sink.cursor == Cursor::Position
    }

    /// As [`Flow::claim_both`], for a call that writes into the claimed range of the sink.
    /// `wanted` returns the length to claim. `None`: nothing is claimed, so nothing may be
    /// written. The source has ended, as far as it reports.
    pub(crate) fn claim_to_write(&mut self, wanted: impl Fn(&Flow<'_>) -> usize) -> Option<usize> {
        let length = self.claim_both(wanted(self));
        if !self.lacks_sink_claim() {
            return Some(length);
        }
        // The source has ended, or has grown since.
        if let Ok(Some(false)) = self.source_goes_on() {
            return None;
        }
        let length = self.claim_both(wanted(self));
        (!self.lacks_sink_claim()).then_some(length)
    }

    /// Claims both ends for `bytes` that the source was found to have, up to `size`. `None`:
    /// another process has read them since.
    pub(crate) fn claim_found(&mut self, bytes: u64, size: u64) -> Option<u64> {
        let (claims, fd) = (self.claims_source(), self.source.fd());
        if claims && self.source.cursor.claim_before(fd, bytes, size) {
            return None;
        }
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        Some(self.claim_sink(within(self.source.cursor, length)) as u64)
    }

    /// Claims bytes of the source that its position has already passed.
    pub(in crate::path) fn claim_passed(&mut self, at: u64, end: u64) {
        self.source.cursor = Cursor::Claimed { at, end };
        if let Some(size) = self.source.facts().size {
            // If another process has read some of it, the range reaches past the end.
            self.source.cursor.end_at(self.source.fd(), size);
        }
    }

    /// Truncates `bytes` to the claimed range of the sink.
    pub(crate) fn claimed<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[..within(self.sink.cursor, bytes.len())]
    }

    /// Releases both claims at the end of the transfer: moves both positions back to the
    /// end of the bytes that were moved.
    pub(crate) fn unclaim(&mut self) {
        self.source.cursor.unclaim(self.source.fd());
        self.sink.cursor.unclaim(self.sink.fd());
    }

    /// Releases both claims before another path begins, which may move fewer bytes per
    /// call. A claim stays for the next path if another process has moved the position
    /// past it.
    pub(crate) fn release_claims(&mut self) {
        self.source.cursor.release(self.source.fd());
        self.release_sink_claim();
    }

    /// Releases the sink's claim while the transfer goes on. It stays if another process has
    /// moved the position past it.
    pub(crate) fn release_sink_claim(&mut self) {
        self.sink.cursor.release(self.sink.fd());
    }
}

/// Limits `length` to what is left of a claim, if there is one.
fn within(cursor: Cursor, length: usize) -> usize {
    let claimed = cursor.claimed().map(usize::try_from);
    claimed.map_or(length, |claimed| claimed.map_or(length, |n| n.min(length)))
}
