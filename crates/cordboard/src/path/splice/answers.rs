//! Interprets results of splice that are ambiguous by themselves.

use super::Splice;
use crate::endpoint::{Kind, Side};
use crate::errno::Errno;
use crate::path::common::enlarge::sparsely_filled;
use crate::path::flow::Flow;
use crate::path::verdict::Verdict;
use crate::pipe;
use crate::request::Why;

/// A sink pipe without free slots that holds less than this part of its capacity is
/// written to instead.
const FILLED: usize = 8;

impl Splice {
    /// Whether a source need not be polled before it is spliced from: the call does not
    /// block, or may.
    pub(super) fn needs_no_poll(&self, flow: &Flow<'_>) -> bool {
        match flow.source.kind() {
            kind if kind.is_pipe() => true,
            // By `SPLICE_F_NONBLOCK` (`unix_stream_splice_read`, net/unix/af_unix.c).
            Kind::UnixStream => flow.mode.may_sleep(),
            _ => flow.mode.may_sleep() && self.busy,
        }
    }

    /// Handles a source that was not polled. `Ok`: it can be spliced from nevertheless.
    ///
    /// `poll(2)` never reports anything for some sockets that fail each call, such as
    /// one without a connection (`vsock_poll`, net/vmw_vsock/af_vsock.c). TCP and UNIX
    /// sockets report a hang-up. So for other sockets the first call peeks, which
    /// consumes nothing and does not block.
    ///
    /// # Errors
    ///
    /// [`Verdict::Blocked`]: it has to be polled. The socket's pending error, which is
    /// returned once.
    pub(super) fn waits_for_poll(&mut self, flow: &Flow<'_>) -> Result<(), Verdict> {
        let first = !std::mem::replace(&mut self.peeked, true);
        if !first || flow.source.kind() != Kind::StreamSocket {
            return Err(Verdict::Blocked(Side::Source));
        }
        match flow.peek() {
            Ok(Some(_)) => Ok(()),
            Ok(None) | Err(Errno::EAGAIN | Errno::EINTR) => Err(Verdict::Blocked(Side::Source)),
            Err(errno) => Err(Verdict::Failed(Side::Source, errno)),
        }
    }

    /// Handles a sink that accepts nothing. If it is a pipe whose slots are used up by
    /// few bytes, gives it more slots.
    pub(super) fn widen(&mut self, flow: &mut Flow<'_>) -> Verdict {
        let blocked = Verdict::Blocked(Side::Sink);
        if !flow.sink.kind().is_pipe() {
            return blocked;
        }
        let Some((there, capacity)) = sparsely_filled(flow) else {
            return blocked;
        };
        self.slots_underfilled |= there < capacity / FILLED;
        match flow.widen_sink() {
            true => Verdict::Moved(0),
            false => blocked,
        }
    }

    /// Makes the next steps copy the rest of the private pipe through memory.
    pub(super) fn copy_rest(&mut self, errno: Errno) -> Verdict {
        self.refused = Some(errno);
        Verdict::Moved(0)
    }

    /// Acquires the private pipe between a channel and a sink. If none is available and no
    /// other path follows, one call moves the bytes, with the channel locked.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`: the next path holds no lock while it writes.
    pub(super) fn keep_apart(&mut self, flow: &Flow<'_>) -> Result<(), Why> {
        match pipe::acquire(self.step) {
            Ok(pipe) => self.private = Some(pipe),
            Err(errno) if flow.has_next() => return Err(errno.into()),
            Err(_) => {}
        }
        self.via_private_pipe = self.private.is_some();
        Ok(())
    }

    /// Fills a private pipe first from now on, so that the sink is claimed only for
    /// bytes already held.
    pub(super) fn use_private_pipe(&mut self) {
        // EMFILE: it continues as before.
        self.private = pipe::acquire(self.step).ok();
        self.via_private_pipe = self.private.is_some();
    }
}
