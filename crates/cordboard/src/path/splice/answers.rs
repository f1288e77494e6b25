//! What an answer of the kernel means to a splice, if it does not tell by itself.

use super::Splice;
use crate::endpoint::{Kind, Side};
use crate::errno::Errno;
use crate::path::enlarge::sparsely_filled;
use crate::path::flow::Flow;
use crate::path::stream;
use crate::path::verdict::Verdict;
use crate::pipe;

/// A pipe whose slots are used up by less than this part of its capacity is written to.
const FILLED: usize = 8;

impl Splice {
    /// Whether a source need not be polled before it is spliced from: the call does
    /// not wait, or may.
    pub(super) fn needs_no_poll(&self, flow: &Flow<'_>) -> bool {
        match flow.source.kind() {
            kind if kind.is_pipe() => true,
            // By `SPLICE_F_NONBLOCK` (`unix_stream_splice_read`, net/unix/af_unix.c).
            Kind::UnixStream => flow.mode.may_sleep(),
            _ => flow.mode.may_sleep() && self.busy,
        }
    }

    /// A source that was not polled. `Ok`: it can be spliced from all the same.
    ///
    /// `poll(2)` shows nothing for ever of some sockets that fail each call, such as
    /// one without a connection (`vsock_poll`, net/vmw_vsock/af_vsock.c). TCP and UNIX
    /// sockets show a hang-up. So of others the first call is a look, which takes
    /// nothing and does not wait.
    ///
    /// # Errors
    ///
    /// [`Verdict::Blocked`]: it is to be polled. The socket's own error, which is told
    /// once.
    pub(super) fn waits_for_poll(&mut self, flow: &Flow<'_>) -> Result<(), Verdict> {
        let first = !std::mem::replace(&mut self.looked, true);
        if !first || flow.source.kind() != Kind::StreamSocket {
            return Err(Verdict::Blocked(Side::Source));
        }
        match flow.peek() {
            Ok(_) => Ok(()),
            // Nothing is there, or it cannot be looked at.
            Err(Errno::EAGAIN | Errno::EINTR | Errno::EINVAL | Errno::EOPNOTSUPP) => {
                Err(Verdict::Blocked(Side::Source))
            }
            Err(errno) if errno.is_refusal() => Err(Verdict::Blocked(Side::Source)),
            Err(errno) => Err(Verdict::Failed(Side::Source, errno)),
        }
    }

    /// The sink takes nothing. If it is a pipe whose slots are used up by little, it
    /// gets more of them.
    pub(super) fn widen(&mut self, flow: &mut Flow<'_>) -> Verdict {
        let blocked = Verdict::Blocked(Side::Sink);
        if !flow.sink.kind().is_pipe() {
            return blocked;
        }
        let Some((there, capacity)) = sparsely_filled(flow) else {
            return blocked;
        };
        self.crowded |= there < capacity / FILLED;
        match flow.widen_sink() {
            true => Verdict::Moved(0),
            false => blocked,
        }
    }

    /// The end, where the source is a terminal and was not recognised as one.
    pub(super) fn source_says_eio(&self, flow: &mut Flow<'_>) -> Verdict {
        match stream::end_of_pty(flow) {
            Ok(_) => Verdict::Ended,
            Err(errno) => self.source_failed(flow, errno),
        }
    }

    /// The rest of the private pipe goes by copying.
    pub(super) fn copies_the_rest(&mut self, errno: Errno) -> Verdict {
        self.refused = Some(errno);
        Verdict::Moved(0)
    }

    /// From now on nothing is claimed of the sink but for what is in hand.
    pub(super) fn take_first(&mut self) {
        // EMFILE: it goes on as before.
        self.private = pipe::acquire(self.step).ok();
        self.through = self.private.is_some();
    }
}
