//! Claims: ranges of a file that are one transfer's alone, though others use the
//! same open description, for calls that take an offset and lock no position.

use crate::path::cursor::Cursor;
use crate::path::flow::Flow;

/// How much of the source there is, and its size.
#[derive(Debug, Clone, Copy)]
struct There {
    bytes: u64,
    size: u64,
}

impl Flow<'_> {
    /// The source's next bytes, no more than these, become this transfer's alone,
    /// for a call that does not lock the source's position. Returns how many the
    /// call may ask for.
    pub(crate) fn claim_source(&mut self, length: usize) -> usize {
        let there = self.there_is();
        self.claim_of_source(length, there)
    }

    fn claim_of_source(&mut self, length: usize, there: Option<There>) -> usize {
        if self.claims_source()
            && self.source.cursor == Cursor::Position
            && let Some(There { bytes, size }) = there
        {
            self.source
                .cursor
                .claim(self.source.fd(), bytes.min(length as u64));
            // If others have taken some of it, the claim goes past the end.
            self.source.cursor.end_at(self.source.fd(), size);
        }
        within(self.source.cursor, length)
    }

    /// What the source says that it has from here on: at the end of what it had
    /// when the transfer began it may have grown. `None` without a size.
    fn there_is(&self) -> Option<There> {
        let (here, size) = (self.counted_place()?, self.source.facts().size?);
        let up_to = |size: u64| There {
            bytes: size.saturating_sub(here),
            size,
        };
        let claims = self.claims_source() || self.claims_sink();
        if claims && here >= size {
            let now = rustix::fs::fstat(self.source.fd());
            return Some(up_to(now.map_or(size, |now| now.st_size as u64)));
        }
        Some(up_to(size))
    }

    /// The source's position is one to be claimed.
    fn claims_source(&self) -> bool {
        let at_position = matches!(
            self.source.cursor,
            Cursor::Position | Cursor::Claimed { .. }
        );
        at_position && !self.source.is_unshared() && self.source.kind().is_cached()
    }

    /// The offset for a call that reads the source. Also where nothing is left to be
    /// claimed it is one: `splice(2)` sets the position that it began with even if it
    /// has read nothing (`do_splice`, fs/splice.c), and others may have moved it.
    pub(crate) fn offset_to_read(&self) -> Option<u64> {
        match self.source.cursor {
            Cursor::Position if self.claims_source() => self.source.offset(),
            cursor => cursor.place(),
        }
    }

    /// A call has read so many bytes at this offset.
    pub(crate) fn was_read(&mut self, offset: Option<u64>, bytes: u64) {
        self.source.cursor.used(self.source.fd(), offset, bytes);
    }

    /// Others have moved the source's position since it was moved here: moved back
    /// by what this transfer has read, it would have them read their own bytes again.
    pub(crate) fn source_is_astray(&self) -> bool {
        let left_at = match self.source.cursor {
            Cursor::Claimed { end, .. } => Some(end),
            _ => self.counted_place(),
        };
        self.claims_source() && Cursor::position(self.source.fd()) != left_at
    }

    /// The sink's position is one to be claimed.
    pub(crate) fn claims_sink(&self) -> bool {
        let facts = self.sink.facts();
        let at_position = matches!(self.sink.cursor, Cursor::Position | Cursor::Claimed { .. });
        at_position && !self.sink.is_unshared() && facts.kind.is_cached() && !facts.append
    }

    /// As [`Flow::was_read`], of the sink.
    pub(crate) fn was_written(&mut self, offset: Option<u64>, bytes: u64) {
        self.sink.cursor.used(self.sink.fd(), offset, bytes);
    }

    /// The same for the sink, where as many bytes are at hand.
    pub(crate) fn claim_sink(&mut self, length: usize) -> usize {
        if self.claims_sink() {
            self.sink.cursor.claim(self.sink.fd(), length as u64);
        }
        within(self.sink.cursor, length)
    }

    /// The same for a call that moves bytes from one to the other.
    pub(crate) fn claim_both(&mut self, length: usize) -> usize {
        let there = self.there_is();
        let length = self.claim_of_source(length, there);
        match there {
            // The call is to find the end.
            Some(There { bytes: 0, .. }) => within(self.sink.cursor, length),
            Some(There { bytes, .. }) => {
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                self.claim_sink(length.min(bytes))
            }
            None => self.claim_sink(length),
        }
    }

    /// The same for so many bytes up to this size, which the source has been found
    /// to have by now.
    pub(crate) fn claim_found(&mut self, bytes: u64, size: u64) -> u64 {
        if self.claims_source() {
            self.source.cursor.claim(self.source.fd(), bytes);
            self.source.cursor.end_at(self.source.fd(), size);
        }
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.claim_sink(within(self.source.cursor, length)) as u64
    }

    /// No more bytes than were claimed of the sink.
    pub(crate) fn claimed<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[..within(self.sink.cursor, bytes.len())]
    }

    /// Nothing more is moved: both positions are where the bytes end.
    pub(crate) fn unclaim(&mut self) {
        self.source.cursor.unclaim(self.source.fd());
        self.unclaim_sink();
    }

    /// Both claims are given back before another path begins, which may take less at a
    /// time; where others have gone on behind one, it is for what comes next.
    pub(crate) fn lend_back(&mut self) {
        if self.source.cursor.is_last(self.source.fd()) {
            self.source.cursor.unclaim(self.source.fd());
        }
        self.lend_sink_back();
    }

    /// The sink's claim is given back before a wait; where others have gone on behind
    /// it, it is for what comes next.
    pub(crate) fn lend_sink_back(&mut self) {
        if self.sink.cursor.is_last(self.sink.fd()) {
            self.unclaim_sink();
        }
    }

    /// Nothing more is moved into what was claimed of the sink, for a call that writes at
    /// the sink's own position.
    pub(crate) fn unclaim_sink(&mut self) {
        self.sink.cursor.unclaim(self.sink.fd());
    }
}

/// No more bytes than are left of what was claimed, if anything was.
fn within(cursor: Cursor, length: usize) -> usize {
    let claimed = cursor.claimed().map(usize::try_from);
    claimed.map_or(length, |claimed| claimed.map_or(length, |n| n.min(length)))
}
