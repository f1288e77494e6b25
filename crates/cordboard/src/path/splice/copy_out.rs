//! Copies the contents of a private pipe, or of a socket pair, to memory and writes
//! them from there, for a sink that refuses pages or could block on them. That needs
//! no further descriptor, so it also works at `RLIMIT_NOFILE`.

use crate::endpoint::Side;
use crate::errno::Errno;
use crate::path::common::in_place;
use crate::path::common::socket::Sender;
use crate::path::flow::Flow;
use crate::path::verdict::Verdict;
use crate::pipe::{self, Channel};

/// Bytes that a blocking pipe that polls writable accepts without blocking.
const PIECE: usize = 4096;

/// Bytes copied out of a pipe.
#[derive(Default)]
pub(super) struct CopyOut {
    bytes: Vec<u8>,
    start: usize,
    sender: Sender,
}

impl CopyOut {
    /// Bytes per step, if all of them are copied.
    pub(super) const ENOUGH: usize = 128 << 10;

    pub(super) fn pending(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Reads everything out of the pipe, or nothing if memory is unavailable
    /// (`ENOMEM`). If a page in the pipe is no longer valid, reads the bytes before
    /// it and fails with `EIO`, or with the file system's error.
    pub(super) fn take(&mut self, pipe: &mut impl Channel) -> Result<(), Errno> {
        if self.pending().is_empty() {
            self.bytes.clear();
            self.start = 0;
        }
        pipe::read_out(pipe, &mut self.bytes)
    }

    pub(super) fn write(&mut self, flow: &mut Flow<'_>) -> Verdict {
        let rest = &self.bytes[self.start..];
        let done = match flow.sink.kind().is_socket() {
            true => self.sender.send(flow, rest, flow.mode.may_sleep()),
            false => {
                let most = match flow.sink_is_a_pipe_that_waits() {
                    true => PIECE,
                    false => rest.len(),
                };
                let bytes = flow.claimed(&rest[..rest.len().min(most)]);
                in_place::write(flow, bytes).map_err(Errno::from)
            }
        };
        match done {
            Ok(0) => Verdict::Failed(Side::Sink, Errno::EIO),
            Ok(n) => {
                self.start += n;
                flow.gave(n as u64);
                Verdict::Moved(n as u64)
            }
            Err(Errno::EINTR) => flow.was_interrupted(Side::Sink),
            Err(Errno::EAGAIN) => Verdict::Blocked(Side::Sink),
            Err(errno) => Verdict::Failed(Side::Sink, errno),
        }
    }
}
