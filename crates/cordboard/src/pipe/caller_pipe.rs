//! The caller's pipes, which are enlarged for the duration of a transfer.

use std::os::fd::{BorrowedFd, RawFd};

use super::adapted::Adapted;
use super::budget::{Share, User, fair};
use super::capacity::{LARGEST, capacity};
use super::enlarged::{Enlarged, shrink};
use super::resize::resize;
use crate::endpoint::{Endpoint, Side};
use crate::sys::identity;

/// The caller's pipe, which may be enlarged for the duration of a transfer. Nothing but
/// its capacity is changed.
pub(crate) struct CallerPipe {
    side: Side,
    /// The owner's descriptor number.
    number: RawFd,
    before: usize,
    now: usize,
    share: Share,
    /// `None` until the transfer adapts the capacity, and while it is idle.
    user: Option<User>,
    /// Released after the capacity is restored.
    _adapted: Adapted,
}

impl CallerPipe {
    /// `None` if the pipe is already large, unless an earlier transfer has enlarged it, or
    /// if another transfer adapts it now.
    pub(crate) fn new(side: Side, endpoint: &Endpoint<'_>) -> Option<CallerPipe> {
        let (fd, number) = (endpoint.fd(), endpoint.number());
        let adapted = Adapted::begin(fd)?;
        let now = capacity(fd);
        let (before, share) = match Enlarged::take(fd) {
            Some(large) if large.now == now => (large.before, large.share),
            _ => (now, Share::none()),
        };
        (1..LARGEST).contains(&before).then_some(CallerPipe {
            side,
            number,
            before,
            now,
            share,
            user: None,
            _adapted: adapted,
        })
    }

    /// Makes the pipe as large as the budget allows, for a large transfer.
    pub(crate) fn grow(&mut self, source: BorrowedFd<'_>, sink: BorrowedFd<'_>) {
        self.fit(LARGEST, source, sink);
    }

    /// Adapts the capacity after a step that moved `bytes`. The pipe grows if its
    /// capacity limited the step, so that a pipe for occasional messages keeps its
    /// size. It at most doubles: if many transfers start together, none gets the whole
    /// budget before the others have had a turn. It shrinks if more pipes share the
    /// budget by now. A full pipe cannot shrink (`EBUSY`), so this is tried after each
    /// step.
    pub(crate) fn moved(&mut self, bytes: usize, source: BorrowedFd<'_>, sink: BorrowedFd<'_>) {
        if bytes >= self.now / 2 || self.now > fair() {
            self.fit(2 * self.now, source, sink);
        }
    }

    fn fit(&mut self, most: usize, source: BorrowedFd<'_>, sink: BorrowedFd<'_>) {
        self.user.get_or_insert_with(User::new);
        let fd = self.of(source, sink);
        let due = fair().min(most).max(self.before);
        // Unless its owner has changed it since.
        if due != self.now && capacity(fd) == self.now {
            resize(fd, &mut self.now, due, &mut self.share);
        }
    }

    /// Doubles the capacity, regardless of other pipes, because few bytes use up its
    /// slots. `false` if the pipe does not grow.
    pub(crate) fn widen(&mut self, source: BorrowedFd<'_>, sink: BorrowedFd<'_>) -> bool {
        let (fd, now) = (self.of(source, sink), self.now);
        if now < LARGEST && capacity(fd) == now {
            resize(fd, &mut self.now, 2 * now, &mut self.share);
        }
        self.now > now
    }

    /// Returns the capacity that its owner has set.
    pub(crate) fn before(&self) -> usize {
        self.before
    }

    /// Returns the last known capacity, without a system call.
    pub(crate) fn capacity(&self) -> usize {
        self.now
    }

    /// Stops counting the pipe as in use while it is idle.
    pub(crate) fn rest(&mut self) {
        self.user = None;
    }

    /// Restores the pipe's old capacity, unless its owner has changed the capacity
    /// since. If the pipe holds more than that (`EBUSY`), shrinks it as far as
    /// possible; the pipe then counts against the budget while it is larger.
    pub(crate) fn give_back(mut self, source: BorrowedFd<'_>, sink: BorrowedFd<'_>) {
        let fd = self.of(source, sink);
        if self.now == self.before || capacity(fd) != self.now {
            return;
        }
        shrink(fd, &mut self.now, self.before, &mut self.share);
        if let Some(id) = identity(fd) {
            let large = Enlarged {
                id,
                number: self.number,
                before: self.before,
                now: self.now,
                share: self.share,
            };
            large.leave();
        }
    }

    fn of<'fd>(&self, source: BorrowedFd<'fd>, sink: BorrowedFd<'fd>) -> BorrowedFd<'fd> {
        match self.side {
            Side::Source => source,
            Side::Sink => sink,
        }
    }
}
