//! One write.

use std::os::fd::OwnedFd;

use rustix::io::ReadWriteFlags;

use super::numbers::{self, NUMBER, NUMBERS};
use super::{aligned, counter, zeros};
use crate::endpoint::{Facts, Kind, Side};
use crate::errno::Errno;
use crate::path::{Cursor, Flow, Verdict, stream};

/// What a pipe takes in one piece or not at all (`pipe(7)`); a blocking
/// terminal or device is given no more at a time either.
const PIECE: usize = 4096;

/// Writes to a sink, by the call that it takes.
pub(in crate::path) struct Outlet {
    /// `RWF_NOWAIT` works on the sink.
    nowait: bool,
    twin: Option<OwnedFd>,
}

impl Outlet {
    pub(in crate::path) fn new() -> Outlet {
        Outlet {
            nowait: true,
            twin: None,
        }
    }

    /// Bytes that a write should be a multiple of.
    pub(in crate::path) fn unit(sink: &Facts) -> usize {
        match aligned::unit(sink) {
            1 if sink.kind == Kind::Eventfd => NUMBER,
            unit => unit,
        }
    }

    /// Whether the sink may be written now.
    pub(in crate::path) fn is_open(&self, flow: &mut Flow<'_>) -> bool {
        let covered = flow.sink.kind().is_socket() || self.covers_waiting(flow);
        flow.may_write(covered)
    }

    /// Writes some of these bytes, and counts them; to show them to those who
    /// look is the caller's. To be asked [`Outlet::is_open`] before.
    pub(in crate::path) fn write(
        &mut self,
        flow: &mut Flow<'_>,
        bytes: &[u8],
    ) -> Result<usize, Verdict> {
        let done = if flow.seek_zeros {
            zeros::write(flow, &mut self.twin, bytes)
        } else {
            self.call(flow, bytes)
        };
        match done {
            Ok(0) if !bytes.is_empty() => Err(Verdict::Failed(Side::Sink, Errno::EIO)),
            Ok(n) => {
                flow.gave(n as u64);
                Ok(n)
            }
            Err(Errno::EINTR) => Err(Verdict::Moved(0)),
            Err(Errno::EAGAIN) => Err(Verdict::Blocked(Side::Sink)),
            // No such flag, no such call, or a filter that does not know it.
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EPERM)
                if self.nowait && self.covers_waiting(flow) =>
            {
                self.nowait = false;
                Err(Verdict::Moved(0))
            }
            Err(errno) => Err(Verdict::Failed(Side::Sink, errno)),
        }
    }

    /// The write has a flag of its own against waiting: pipes take
    /// `RWF_NOWAIT` (since Linux 5.1 or so).
    fn covers_waiting(&self, flow: &Flow<'_>) -> bool {
        self.nowait
            && !flow.may_sleep
            && flow.sink.kind().is_pipe()
            && !flow.sink.facts().nonblocking
    }

    fn call(&mut self, flow: &mut Flow<'_>, bytes: &[u8]) -> Result<usize, Errno> {
        let sink = flow.sink_fd();
        let facts = flow.sink.facts();
        if facts.kind.is_socket() {
            return Ok(rustix::net::send(
                sink,
                bytes,
                stream::sending(flow.may_sleep),
            )?);
        }
        if aligned::unit(facts) > 1 {
            return aligned::write(flow, &mut self.twin, bytes);
        }
        if self.covers_waiting(flow) {
            let parts = [std::io::IoSlice::new(bytes)];
            // Offset -1: at the current position.
            return Ok(rustix::io::pwritev2(
                sink,
                &parts,
                u64::MAX,
                ReadWriteFlags::NOWAIT,
            )?);
        }
        let waits = !facts.nonblocking && !flow.may_sleep && facts.can_block();
        let bytes = if waits && !flow.keeps_messages() {
            &bytes[..bytes.len().min(PIECE)]
        } else {
            bytes
        };
        if facts.kind == Kind::Eventfd {
            if waits && !counter::takes(sink, bytes) {
                return Err(Errno::EAGAIN);
            }
            return numbers::write(sink, bytes, if waits { 1 } else { NUMBERS });
        }
        let n = match flow.to {
            Cursor::At(offset) => rustix::io::pwrite(sink, bytes, offset)?,
            _ => rustix::io::write(sink, bytes)?,
        };
        flow.to.advance(n as u64);
        Ok(n)
    }
}
