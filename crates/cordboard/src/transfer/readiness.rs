//! What a transfer knows of the readiness of its two sides.

use super::wait::Wakeup;
use super::{Control, Transfer};
use crate::endpoint::{Kind, Side};
use crate::errno::Errno;
use crate::pipe;

impl Transfer<'_> {
    /// A side was found ready; or, if it is not open, to have an error.
    ///
    /// # Errors
    ///
    /// The source's own error, which a call would have told of.
    pub(super) fn is_ready(&mut self, side: Side, wakeup: Wakeup) -> Result<(), Errno> {
        let kind = self.flow.end(side).kind();
        // Of anything but a socket an error is told by the next call.
        let mut open = wakeup.open || !kind.is_socket();
        if !open {
            self.flow.end_mut(side).ready.doubted |= !wakeup.unclear;
            // All other calls on sockets have a flag against waiting, and tell.
            if side == Side::Source && self.is_spliced() && !self.flow.source.ready.never_waits {
                open = self.flow.answers()?;
            }
        }
        if open {
            self.flow.end_mut(side).ready.marked = true;
        }
        Ok(())
    }

    /// A file whose next call may wait, and is not polled before: `EAGAIN` of it
    /// is an error, as of a FUSE server or a sysfs attribute, and `poll(2)`
    /// always finds the file ready. The error may last for a moment only.
    pub(super) fn calls_at_once(&self, side: Side) -> bool {
        let end = self.flow.end(side);
        let facts = end.facts();
        let always_ready = facts.kind.is_cached() || facts.kind == Kind::Pseudo;
        let ready = always_ready && !facts.nonblocking;
        let known = &end.ready;
        ready && (known.marked || known.never_waits || known.may_sleep)
    }

    /// A step may wait for the lock of a source that is a pipe: whoever splices
    /// a silent socket into it holds that, and no signal ends the wait. `poll(2)`
    /// takes no lock, and a pipe that it finds empty need not be touched.
    pub(super) fn source_may_be_locked(&self) -> bool {
        let wanted = |control: &Control| !control.is_cancelled() && !control.is_paused();
        self.flow.source.kind().is_pipe()
            && self.flow.allowance.remaining() > 0
            && !self.holds()
            && self.control.as_ref().is_none_or(wanted)
    }

    /// The source is a FIFO without a writer, which `poll(2)` need not show: the next
    /// call tells of its end, as `read(2)` does. Asked once, before the first step,
    /// since any writer that comes and goes later shows; and only with `O_NONBLOCK`,
    /// without which `open(2)` waits for a writer, since whoever asks waits for the
    /// lock.
    pub(super) fn fifo_has_no_writer(&mut self) -> bool {
        let source = &self.flow.source;
        let may_be = source.kind() == Kind::Fifo && source.facts().nonblocking;
        let due = may_be && !std::mem::replace(&mut self.fifo_checked, true);
        // Where nobody tells, the call does.
        due && pipe::fifo_is_over(source.fd()) != Some(false)
    }
}

/// A full socket whose writes fail since it was shut down, by the peer for reading or
/// here for writing, and which `poll(2)` shows as full all the same: `unix_poll` and
/// `unix_dgram_poll` (net/unix/af_unix.c) look at the room only, and `vsock_poll`
/// (net/vmw_vsock/af_vsock.c) shows none then. Only an attempt tells. TCP polls writable
/// (`tcp_poll`, net/ipv4/tcp.c), and UDP has no peer that could keep it full.
pub(super) fn hides_shutdown(kind: Kind) -> bool {
    kind.is_socket() && !matches!(kind, Kind::Tcp | Kind::Udp)
}

/// What an error or a hang-up on a sink that nobody writes to means.
pub(super) fn sink_error(transfer: &Transfer<'_>, hang_up: bool) -> Option<Errno> {
    // A pipe's POLLERR: there is no reader any more. A socket's POLLHUP: both
    // directions are shut down. Why, SO_ERROR would tell once, and it is for
    // whoever reads the socket: without it a reset would be a clean end there.
    // A socket's POLLERR alone may be its error queue; a write will tell.
    match transfer.flow.sink.kind() {
        // What a write says (`hung_up_tty_write`, drivers/tty/tty_io.c).
        Kind::Tty => hang_up.then_some(Errno::EIO),
        kind => (hang_up || kind.is_pipe()).then_some(Errno::EPIPE),
    }
}
