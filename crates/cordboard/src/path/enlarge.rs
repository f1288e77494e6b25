//! Enlarging the caller's pipes for the length of a transfer.

use super::flow::Flow;
use crate::endpoint::Side;
use crate::pipe;
use crate::sys::{page_size, unsent};

impl Flow<'_> {
    /// Much may go through both ends. `at_once`: and it is to come now.
    pub(super) fn lend_pipes(&mut self, at_once: bool) {
        self.lent.worth_it = true;
        if !at_once {
            return;
        }
        let (source, sink) = (self.source.fd(), self.sink.fd());
        for (side, end) in [(Side::Source, &self.source), (Side::Sink, &self.sink)] {
            if let Some(lent) = self.lent.of(side, end.endpoint()) {
                lent.grow(source, sink);
            }
        }
    }

    /// So many bytes went through the pipe on this side in one step.
    pub(super) fn lent_moved(&mut self, side: Side, bytes: usize) {
        let (source, sink) = (self.source.fd(), self.sink.fd());
        if !self.lent.worth_it || bytes < page_size() {
            return;
        }
        let end = match side {
            Side::Source => &self.source,
            Side::Sink => &self.sink,
        };
        if let Some(lent) = self.lent.of(side, end.endpoint()) {
            lent.moved(bytes, source, sink);
        }
    }

    /// Gives the sink's pipe twice the slots. `false` if it has no more then.
    pub(super) fn widen_sink(&mut self) -> bool {
        let (source, sink) = (self.source.fd(), self.sink.fd());
        let lent = self.lent.of(Side::Sink, self.sink.endpoint());
        lent.is_some_and(|lent| lent.widen(source, sink))
    }

    /// The transfer is at its end: the pipes get the size that they had.
    pub(crate) fn give_pipes_back(&mut self) {
        let (source, sink) = (self.source.fd(), self.sink.fd());
        for lent in self.lent.ends.iter_mut().filter_map(Option::take) {
            lent.give_back(source, sink);
        }
    }
}

/// The sink's pipe has no slot left, though its pages hold little, and a write would
/// have put more into them: a splice adds a slot for the least piece, where a write
/// goes on in the last page (`pipe_write`, fs/pipe.c). So many bytes are in it, of so
/// many; `None` if it has room, or is full, or a filter refuses to tell.
pub(super) fn sparsely_filled(flow: &Flow<'_>) -> Option<(usize, usize)> {
    let sink = flow.sink.fd();
    let there = usize::try_from(unsent(sink).ok()?).ok()?;
    // Before anything was lent: so much it is to hold.
    let capacity = match &flow.lent.ends[1] {
        Some(lent) => lent.before(),
        None => pipe::capacity(sink),
    };
    let is_full = there.saturating_add(page_size()) > capacity;
    (!is_full && !pipe::has_room(sink)).then_some((there, capacity))
}
