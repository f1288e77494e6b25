//! The caller's pipes, which may be enlarged for the duration of the transfer.

use crate::endpoint::{Endpoint, Side};
use crate::pipe::CallerPipe;

/// The pipes of the source and the sink. An idle transfer has none.
#[derive(Default)]
pub(crate) struct EnlargedPipes {
    pub(in crate::path) ends: [Option<Box<CallerPipe>>; 2],
    /// Enough may go through them to be worth enlarging.
    pub(in crate::path) worth_it: bool,
    /// The calls of [`of`](EnlargedPipes::of) before a pipe is looked at again that is large
    /// already, or that another transfer adapts.
    skips: [u8; 2],
}

impl EnlargedPipes {
    /// Counts them as idle. They keep their size.
    pub(crate) fn rest(&mut self) {
        for pipe in self.ends.iter_mut().flatten() {
            pipe.rest();
        }
    }

    /// The sink's capacity, if known without a call.
    pub(in crate::path) fn sink_capacity(&self) -> Option<usize> {
        self.ends[1].as_deref().map(CallerPipe::capacity)
    }

    pub(in crate::path) fn of(
        &mut self,
        side: Side,
        endpoint: &Endpoint<'_>,
    ) -> Option<&mut CallerPipe> {
        let end = usize::from(side == Side::Sink);
        let (pipe, skips) = (&mut self.ends[end], &mut self.skips[end]);
        if pipe.is_none() && endpoint.kind().is_pipe() {
            if *skips > 0 {
                *skips -= 1;
                return None;
            }
            *pipe = CallerPipe::new(side, endpoint).map(Box::new);
            if pipe.is_none() {
                *skips = u8::MAX;
            }
        }
        pipe.as_deref_mut()
    }
}
