//! The caller's pipes, which may be larger for the length of the transfer.

use super::Flow;
use crate::endpoint::{Endpoint, Side};
use crate::pipe::{self, CallerPipe};
use crate::sys::{page_size, unsent};

/// Of the source and of the sink, if it is a pipe. An idle transfer has none.
#[derive(Default)]
pub(crate) struct LentPipes {
    ends: [Option<Box<CallerPipe>>; 2],
    /// Much may go through them.
    worth_it: bool,
}

impl LentPipes {
    /// They are idle.
    pub(crate) fn rest(&mut self) {
        for lent in self.ends.iter_mut().flatten() {
            lent.rest();
        }
    }

    /// The sink's capacity, where it is known without a call.
    pub(super) fn sink_capacity(&self) -> Option<usize> {
        self.ends[1].as_deref().map(CallerPipe::capacity)
    }

    fn of(&mut self, side: Side, endpoint: &Endpoint<'_>) -> Option<&mut CallerPipe> {
        let lent = &mut self.ends[usize::from(side == Side::Sink)];
        if lent.is_none() && endpoint.kind().is_pipe() {
            *lent = CallerPipe::new(side, endpoint).map(Box::new);
        }
        lent.as_deref_mut()
    }
}

impl Flow<'_> {
    /// Much may go through both ends. `at_once`: and it is to come now.
    pub(super) fn lend_pipes(&mut self, at_once: bool) {
        self.lent.worth_it = true;
        if !at_once {
            return;
        }
        let (source, sink) = (self.source_fd(), self.sink_fd());
        for (side, endpoint) in [(Side::Source, &self.source), (Side::Sink, &self.sink)] {
            if let Some(lent) = self.lent.of(side, endpoint) {
                lent.grow(source, sink);
            }
        }
    }

    /// So many bytes went through the pipe on this side in one step.
    pub(super) fn lent_moved(&mut self, side: Side, bytes: usize) {
        let (source, sink) = (self.source_fd(), self.sink_fd());
        if !self.lent.worth_it || bytes < page_size() {
            return;
        }
        let endpoint = match side {
            Side::Source => &self.source,
            Side::Sink => &self.sink,
        };
        if let Some(lent) = self.lent.of(side, endpoint) {
            lent.moved(bytes, source, sink);
        }
    }

    /// Gives the sink's pipe twice the slots. `false` if it has no more then.
    pub(super) fn widen_sink(&mut self) -> bool {
        let (source, sink) = (self.source_fd(), self.sink_fd());
        let lent = self.lent.of(Side::Sink, &self.sink);
        lent.is_some_and(|lent| lent.widen(source, sink))
    }

    /// The transfer is at its end: the pipes get the size that they had.
    pub(crate) fn give_pipes_back(&mut self) {
        let (source, sink) = (self.source_fd(), self.sink_fd());
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
    let sink = flow.sink_fd();
    let there = usize::try_from(unsent(sink).ok()?).ok()?;
    // Before anything was lent: so much it is to hold.
    let capacity = match &flow.lent.ends[1] {
        Some(lent) => lent.before(),
        None => pipe::capacity(sink),
    };
    let is_full = there.saturating_add(page_size()) > capacity;
    (!is_full && !pipe::has_room(sink)).then_some((there, capacity))
}
