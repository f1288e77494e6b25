//! Enlarges the caller's pipes for the duration of a transfer.

use crate::endpoint::Side;
use crate::path::flow::Flow;
use crate::pipe;
use crate::sys::{page_size, unsent};

impl Flow<'_> {
    /// Marks the pipes as worth enlarging. `at_once`: enlarges them now.
    pub(in crate::path) fn enlarge_pipes(&mut self, at_once: bool) {
        self.enlarged_pipes.worth_it = true;
        if !at_once {
            return;
        }
        let (source, sink) = (self.source.fd(), self.sink.fd());
        for (side, end) in [(Side::Source, &self.source), (Side::Sink, &self.sink)] {
            if let Some(pipe) = self.enlarged_pipes.of(side, end.endpoint()) {
                pipe.grow(source, sink);
            }
        }
    }

    /// Records that `bytes` went through the pipe on this side in one step.
    pub(in crate::path) fn pipe_moved(&mut self, side: Side, bytes: usize) {
        let (source, sink) = (self.source.fd(), self.sink.fd());
        if !self.enlarged_pipes.worth_it || bytes < page_size() {
            return;
        }
        let end = match side {
            Side::Source => &self.source,
            Side::Sink => &self.sink,
        };
        if let Some(pipe) = self.enlarged_pipes.of(side, end.endpoint()) {
            pipe.moved(bytes, source, sink);
        }
    }

    /// Doubles the slots of the sink's pipe. `false` if that fails.
    pub(in crate::path) fn widen_sink(&mut self) -> bool {
        let (source, sink) = (self.source.fd(), self.sink.fd());
        let pipe = self.enlarged_pipes.of(Side::Sink, self.sink.endpoint());
        pipe.is_some_and(|pipe| pipe.widen(source, sink))
    }

    /// Restores the pipes' original sizes at the end of the transfer.
    pub(crate) fn give_pipes_back(&mut self) {
        let (source, sink) = (self.source.fd(), self.sink.fd());
        for pipe in self.enlarged_pipes.ends.iter_mut().filter_map(Option::take) {
            pipe.give_back(source, sink);
        }
    }
}

/// Tests whether the sink's pipe has no free slot although its pages hold little. A
/// write would still fit: it continues the last page (`pipe_write`, fs/pipe.c), while
/// a splice uses a slot for the smallest piece. Returns the bytes in the pipe and its
/// capacity; `None` if it has a free slot or is full, or a seccomp filter refuses the
/// query.
pub(in crate::path) fn sparsely_filled(flow: &Flow<'_>) -> Option<(usize, usize)> {
    let sink = flow.sink.fd();
    let there = usize::try_from(unsent(sink).ok()?).ok()?;
    // The capacity before it was enlarged.
    let capacity = match &flow.enlarged_pipes.ends[1] {
        Some(pipe) => pipe.before(),
        None => pipe::capacity(sink),
    };
    let is_full = there.saturating_add(page_size()) > capacity;
    (!is_full && !pipe::has_room(sink)).then_some((there, capacity))
}
