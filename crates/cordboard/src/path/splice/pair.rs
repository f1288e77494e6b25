//! From pipe to pipe through a socket pair: see `pipe_to_pipe.rs`.

use super::pipe_to_pipe::{holds_bytes, room};
use super::{EMPTY_READS, Splice};
use crate::endpoint::Side;
use crate::errno::Errno;
use crate::path::flow::Flow;
use crate::path::verdict::Verdict;
use crate::pipe::packets::{self, Front};
use crate::pipe::{self, Channel};

impl Splice {
    /// Fills the pair from the source. `None`: the pair is not used.
    pub(super) fn fill_pair(&mut self, flow: &mut Flow<'_>) -> Option<Result<(), Verdict>> {
        if self.pipe_to_pipe.unavailable {
            return None;
        }
        let room = match room(flow) {
            Ok(0) => return Some(Err(Verdict::Blocked(Side::Sink))),
            Ok(room) => room,
            // This includes a sink without a reader: the splice that follows reports
            // it without taking bytes.
            Err(_) => return None,
        };
        let state = &mut self.pipe_to_pipe;
        if state.pair.is_none() {
            state.pair = pipe::acquire_pair().ok();
        }
        let Some(pair) = &mut state.pair else {
            state.unavailable = true;
            return None;
        };
        let length = flow.want(self.step.min(room));
        match pair.fill(flow.source.fd(), length) {
            Ok(0) if !holds_bytes(flow) => Some(Err(Verdict::Ended)),
            Ok(n @ 1..) => {
                self.empty_reads = 0;
                flow.took(n as u64);
                flow.pipe_moved(Side::Source, n);
                Some(Ok(()))
            }
            Err(Errno::EINTR) => Some(Err(flow.was_interrupted(Side::Source))),
            Err(Errno::EAGAIN) if self.was_empty(flow) => Some(Err(Verdict::Blocked(Side::Source))),
            // A seccomp filter refuses it, memory is short, or the next page cannot
            // be read, which a read reports.
            Ok(_) | Err(_) => {
                self.pipe_to_pipe.close_pair();
                None
            }
        }
    }

    /// Whether the source was empty at the call, which returned `EAGAIN`: bytes that
    /// it holds now may have arrived since.
    fn was_empty(&mut self, flow: &Flow<'_>) -> bool {
        let holds = holds_bytes(flow);
        let believed = !holds || self.empty_reads < EMPTY_READS;
        self.empty_reads += u32::from(holds && believed);
        believed
    }

    /// Drains the pair into the sink.
    pub(super) fn drain_pair(&mut self, flow: &mut Flow<'_>) -> Verdict {
        let copies = !self.copy_out.pending().is_empty();
        if !flow.sink.may_use(!copies) {
            return Verdict::Blocked(Side::Sink);
        }
        if copies {
            return self.copy_out.write(flow);
        }
        let Some(pair) = &mut self.pipe_to_pipe.pair else {
            return Verdict::Moved(0);
        };
        let (sink, held) = (flow.sink.fd(), usize::try_from(pair.held()).ok());
        let done = flow.write_by(held, || pair.drain(sink));
        match done {
            Ok(1..) | Err(Errno::EAGAIN | Errno::EINTR | Errno::EPIPE) => {
                self.sink_result(flow, done)
            }
            // A sink pipe returns no other error (`splice_file_to_pipe`,
            // fs/splice.c): it is the pair's, whose bytes are copied.
            Ok(_) | Err(_) => match self.copy_out.take(pair) {
                Ok(()) => {
                    self.pipe_to_pipe.close_pair();
                    Verdict::Moved(0)
                }
                Err(errno) => Verdict::Failed(Side::Source, errno),
            },
        }
    }

    /// Returns how many bytes the next step may move from pipe to pipe, or why none.
    pub(super) fn step_of_a_stream(&mut self, flow: &Flow<'_>) -> Result<usize, Verdict> {
        let step = flow.want(self.step);
        if self.pipe_to_pipe.inspected > 0 {
            return Ok(step.min(self.pipe_to_pipe.inspected));
        }
        Err(match packets::front(flow.source.fd(), step) {
            Ok(Front::Stream(bytes)) => {
                self.pipe_to_pipe.inspected = bytes;
                return Ok(bytes);
            }
            Ok(Front::Packets) => {
                Verdict::Declined("the sink's reader would lose parts of packets".into())
            }
            Ok(Front::Nothing) => Verdict::Blocked(Side::Source),
            Ok(Front::End) => Verdict::Ended,
            // A read into a buffer works for both.
            Err(errno) => Verdict::Declined(errno.into()),
        })
    }
}
