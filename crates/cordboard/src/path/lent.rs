//! The caller's pipes, which may be larger for the length of the transfer.

use crate::endpoint::{Endpoint, Side};
use crate::pipe::CallerPipe;

/// Of the source and of the sink, if it is a pipe. An idle transfer has none.
#[derive(Default)]
pub(crate) struct LentPipes {
    pub(super) ends: [Option<Box<CallerPipe>>; 2],
    /// Much may go through them.
    pub(super) worth_it: bool,
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

    pub(super) fn of(&mut self, side: Side, endpoint: &Endpoint<'_>) -> Option<&mut CallerPipe> {
        let lent = &mut self.ends[usize::from(side == Side::Sink)];
        if lent.is_none() && endpoint.kind().is_pipe() {
            *lent = CallerPipe::new(side, endpoint).map(Box::new);
        }
        lent.as_deref_mut()
    }
}
