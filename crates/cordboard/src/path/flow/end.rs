//! One end of a transfer.

use std::os::fd::BorrowedFd;

use super::Ready;
use crate::endpoint::{Endpoint, Facts, Kind};
use crate::errno::Errno;
use crate::path::flow::cursor::{Cursor, move_cursor, place_of};

/// An endpoint, its cursor, and its readiness.
pub(crate) struct End<'fd> {
    endpoint: Endpoint<'fd>,
    pub(in crate::path) cursor: Cursor,
    pub(crate) ready: Ready,
    unshared: bool,
}

impl<'fd> End<'fd> {
    /// `offset`: used instead of the file position. `waits`: a call on it can
    /// block. `unshared`: no other process uses its position.
    pub(crate) fn new(
        endpoint: Endpoint<'fd>,
        offset: Option<u64>,
        waits: bool,
        unshared: bool,
    ) -> End<'fd> {
        let facts = endpoint.facts();
        End {
            cursor: match (offset, facts.position) {
                (Some(offset), _) => Cursor::At(offset),
                (None, Some(_)) => Cursor::Position,
                (None, None) => Cursor::Stream,
            },
            ready: Ready {
                // A read has a flag against waiting (`stream::read_at_cursor`).
                never_waits: facts.nonblocking || !waits || facts.polls_error,
                ..Ready::default()
            },
            unshared,
            endpoint,
        }
    }

    pub(crate) fn endpoint(&self) -> &Endpoint<'fd> {
        &self.endpoint
    }

    /// Replaces the descriptor or the facts of the same endpoint.
    pub(crate) fn set_endpoint(&mut self, endpoint: Endpoint<'fd>) {
        self.endpoint = endpoint;
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'fd> {
        self.endpoint.fd()
    }

    pub(crate) fn facts(&self) -> &Facts {
        self.endpoint.facts()
    }

    pub(crate) fn kind(&self) -> Kind {
        self.endpoint.kind()
    }

    /// Whether no other process uses its position.
    pub(crate) fn is_unshared(&self) -> bool {
        self.unshared
    }

    /// Whether the file position is used, and not an offset.
    pub(crate) fn is_at_position(&self) -> bool {
        matches!(self.cursor, Cursor::Position | Cursor::Claimed { .. })
    }

    /// Returns the offset at which it is used next.
    ///
    /// # Errors
    ///
    /// `ESPIPE` if it is not seekable. Otherwise as `lseek(2)`.
    pub(crate) fn place(&self) -> Result<u64, Errno> {
        place_of(self.cursor, self.fd())
    }

    /// The offset at which it is used next, if it is seekable.
    pub(crate) fn offset(&self) -> Option<u64> {
        self.place().ok()
    }

    /// Moves its offset by `bytes` without reading or writing. Returns the new
    /// offset.
    pub(crate) fn move_by(&mut self, bytes: i64) -> Result<u64, Errno> {
        move_cursor(&mut self.cursor, self.endpoint.fd(), bytes)
    }

    /// Whether it may be used without `poll(2)` first. `covered`: the call has
    /// its own flag against blocking.
    pub(crate) fn may_use(&mut self, covered: bool) -> bool {
        self.ready.take(covered)
    }
}
