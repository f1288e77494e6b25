//! One write.

use std::os::fd::{BorrowedFd, OwnedFd};

use super::numbers::{self, NUMBER, NUMBERS};
use super::{aligned, counter, zeros};
use crate::endpoint::{Facts, Kind, Side};
use crate::errno::Errno;
use crate::path::common::in_place;
use crate::path::common::socket::Sender;
use crate::path::common::terminal::Terminal;
use crate::path::flow::Flow;
use crate::path::verdict::Verdict;
use crate::pipe::NoWait;

/// Writes to a sink by the call that suits its kind.
pub(in crate::path) struct SinkWriter {
    /// For a blocking pipe.
    nowait: NoWait,
    buffered_fd: Option<OwnedFd>,
    terminal: Terminal,
    sender: Sender,
}

impl SinkWriter {
    pub(in crate::path) fn new() -> SinkWriter {
        SinkWriter {
            nowait: NoWait::default(),
            buffered_fd: None,
            terminal: Terminal::default(),
            sender: Sender::default(),
        }
    }

    /// Returns the second description of a pipe, if it is open.
    pub(in crate::path) fn second(&self) -> Option<BorrowedFd<'_>> {
        self.nowait.second()
    }

    /// The number of bytes that a write should be a multiple of.
    pub(in crate::path) fn unit(sink: &Facts) -> usize {
        match aligned::unit(sink) {
            1 if sink.kind == Kind::Eventfd => NUMBER,
            unit => unit,
        }
    }

    /// Whether the sink may be written now.
    pub(in crate::path) fn is_open(&mut self, flow: &mut Flow<'_>) -> bool {
        let pipe = flow.sink_is_a_pipe_that_waits() && self.nowait.covers();
        let covered = flow.sink.kind().is_socket() || pipe;
        self.terminal.is_open(flow, covered)
    }

    /// Writes some of these bytes, and counts them; the caller passes them to
    /// the stages. The caller checks [`SinkWriter::is_open`] first.
    pub(in crate::path) fn write(
        &mut self,
        flow: &mut Flow<'_>,
        bytes: &[u8],
    ) -> Result<usize, Verdict> {
        let bytes = flow.claimed(bytes);
        let done = if flow.options.seek_zeros {
            zeros::write(flow, &mut self.buffered_fd, bytes)
        } else {
            self.call(flow, bytes)
        };
        match done {
            Ok(0) if !bytes.is_empty() => Err(Verdict::Failed(Side::Sink, Errno::EIO)),
            Ok(n) => {
                flow.gave(n as u64);
                Ok(n)
            }
            Err(Errno::EINTR) => Err(flow.was_interrupted(Side::Sink)),
            Err(Errno::EAGAIN) => Err(Verdict::Blocked(Side::Sink)),
            // The device's queue is temporarily full: `send(2)`.
            Err(Errno::ENOBUFS) if flow.sink.kind().is_datagram() => {
                Err(Verdict::Blocked(Side::Sink))
            }
            Err(errno) => Err(Verdict::Failed(Side::Sink, errno)),
        }
    }

    fn call(&mut self, flow: &mut Flow<'_>, bytes: &[u8]) -> Result<usize, Errno> {
        let sink = flow.sink.fd();
        let facts = flow.sink.facts();
        if facts.kind.is_socket() {
            return self.sender.send(flow, bytes, flow.mode.may_sleep());
        }
        if aligned::unit(facts) > 1 {
            return aligned::write(flow, &mut self.buffered_fd, bytes);
        }
        if flow.sink_is_a_pipe_that_waits() {
            let parts = [std::io::IoSlice::new(bytes)];
            return (self.nowait).write(sink, &parts, facts.is_packet_pipe());
        }
        let waits = !facts.nonblocking && !flow.mode.may_sleep() && facts.writing_waits();
        if facts.kind == Kind::Eventfd {
            if waits && !counter::takes(sink, bytes) {
                return Err(Errno::EAGAIN);
            }
            return numbers::write(sink, bytes, if waits { 1 } else { NUMBERS });
        }
        let bytes = self.terminal.piece(flow, bytes);
        Ok(in_place::write(flow, bytes)?)
    }

    /// Closes the other open file description of the sink.
    pub(in crate::path) fn finish(&mut self, flow: &mut Flow<'_>) {
        if let Some(own) = self.buffered_fd.take() {
            flow.close_sink(own);
        }
    }

    /// Releases resources that can be acquired again for the next write.
    pub(super) fn rest(&mut self) {
        self.nowait.rest();
    }

    /// Forgets its descriptors without closing them.
    pub(in crate::path) fn forget(&mut self) {
        std::mem::take(&mut self.nowait).forget();
        std::mem::forget(self.buffered_fd.take());
    }
}
