//! One call from the source to the sink, if one of them is a pipe.

use super::ask::{available_step, others_take, which_is_not_ready};
use super::pipe_to_pipe::end_of;
use super::{EMPTY_READS, Splice};
use crate::endpoint::Side;
use crate::errno::Errno;
use crate::path::flow::Flow;
use crate::path::verdict::Verdict;
use crate::sys;
use rustix::pipe::SpliceFlags;

impl Splice {
    /// Moves bytes from source to sink by one call: one end is a pipe.
    pub(super) fn one_call(&mut self, flow: &mut Flow<'_>) -> Verdict {
        let (from_pipe, to_pipe) = (flow.source.kind().is_pipe(), flow.sink.kind().is_pipe());
        if self.pipe_to_pipe.held() > 0 || !self.copy_out.pending().is_empty() {
            return self.drain_pair(flow);
        }
        let polled = flow.source.ready.marked;
        // A socket would block with the sink's pipe locked.
        let readable = if to_pipe && !from_pipe {
            flow.source.ready.take_polled()
        } else {
            flow.source.may_use(from_pipe)
        };
        if !readable && let Err(verdict) = self.waits_for_poll(flow) {
            return verdict;
        }
        if !flow.sink.may_use(to_pipe) {
            return Verdict::Blocked(Side::Sink);
        }
        if from_pipe && to_pipe {
            if !polled && self.pipe_to_pipe.source_is_empty(flow) {
                return Verdict::Blocked(Side::Source);
            }
            match self.fill_pair(flow) {
                Some(Ok(())) => return self.drain_pair(flow),
                Some(Err(verdict)) => return verdict,
                None => {}
            }
        }
        let length = match (from_pipe, to_pipe) {
            (true, true) => self.step_of_a_stream(flow),
            (true, false) => available_step(flow, self.step),
            (false, _) => Ok(flow.claim_source(flow.want(self.step))),
        };
        let length = match length {
            Ok(length) => length,
            Err(verdict) => return verdict,
        };
        let (source, sink) = (flow.source.fd(), flow.sink.fd());
        // Not through the private-pipe type: neither pipe is private.
        let offset = flow.offset_to_read();
        let (mut from, mut to) = (offset, flow.sink.cursor.place());
        let mut call = || {
            let (from, to, flags) = (from.as_mut(), to.as_mut(), SpliceFlags::NONBLOCK);
            Ok(rustix::pipe::splice(source, from, sink, to, length, flags)?)
        };
        let done = flow.write_by(None, || sys::attempt(&mut call));
        if let Err(error) = done
            && error.was_pending()
        {
            let side = if from_pipe { Side::Sink } else { Side::Source };
            return Verdict::Failed(side, error.errno);
        }
        let done = done.map_err(Errno::from);
        if from_pipe && !to_pipe && others_take(flow, length, done) {
            self.use_private_pipe();
        }
        match done {
            Ok(0) => end_of(flow),
            Ok(n) => {
                flow.was_read(offset, n as u64);
                flow.sink.cursor.advance(n as u64);
                self.moved = true;
                self.empty_reads = 0;
                self.pipe_to_pipe.moved(n);
                flow.pipe_moved(Side::Source, n);
                flow.pipe_moved(Side::Sink, n);
                flow.carried(n as u64)
            }
            Err(Errno::EAGAIN) => match which_is_not_ready(flow) {
                // Or the sink's reader has made room since the call.
                Side::Source if polled => match flow.is_at_a_mark() {
                    Ok(true) if self.empty_reads + 1 == EMPTY_READS => {
                        Verdict::Declined("urgent data is next in the stream".into())
                    }
                    Ok(at_a_mark) => {
                        self.empty_reads += u32::from(at_a_mark);
                        Verdict::Blocked(Side::Source)
                    }
                    Err(errno) => Verdict::Failed(Side::Source, errno),
                },
                side => Verdict::Blocked(side),
            },
            // A source pipe returns its end and no error: the sink failed.
            Err(errno @ Errno::EPIPE) => Verdict::Failed(Side::Sink, errno),
            Err(Errno::EINTR) => flow.was_interrupted(Side::Sink),
            // Caused by the sink, or by a page in the pipe that is no longer
            // valid (`page_cache_pipe_buf_confirm`, fs/splice.c): a read shows
            // which. From pipe to pipe, by neither (`splice_pipe_to_pipe`).
            Err(errno) if from_pipe && flow.has_next() && (to_pipe || errno == Errno::EIO) => {
                Verdict::Declined(errno.into())
            }
            Err(errno) if from_pipe => self.refused_or_failed(Side::Sink, errno),
            Err(errno) => self.source_failed(flow, errno),
        }
    }
}
