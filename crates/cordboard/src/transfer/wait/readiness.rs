//! The readiness of the two sides of a transfer.

use rustix::event::PollFlags;

use super::Wakeup;
use crate::endpoint::{Kind, Side};
use crate::errno::Errno;
use crate::pipe::FifoCheck;
use crate::sys::shows_now;
use crate::transfer::{Control, Transfer};

impl Transfer<'_> {
    /// Records that a side is ready, or that only an error shows.
    ///
    /// # Errors
    ///
    /// The source's own error, which a call would have returned.
    pub(in crate::transfer) fn is_ready(
        &mut self,
        side: Side,
        wakeup: Wakeup,
    ) -> Result<(), Errno> {
        let kind = self.flow.end(side).kind();
        if side == Side::Source {
            // It has bytes, or a writer has closed it: `poll(2)` shows its end from now on.
            self.fifo_check = FifoCheck::Done;
        }
        // The next call returns the error, except of a socket (its error queue) and of a
        // userfaultfd, which always polls POLLERR.
        let may_persist = kind.is_socket() || self.flow.end(side).facts().polls_error;
        let mut open = wakeup.open || !may_persist;
        if !open {
            self.flow.end_mut(side).ready.error_persists |= !wakeup.unclear;
            // All other calls on sockets have a flag against waiting, and return
            // the error.
            if side == Side::Source && self.is_spliced() && !self.flow.source.ready.never_waits {
                open = self.flow.answers()?;
            }
        }
        if open {
            self.flow.end_mut(side).ready.marked = true;
        }
        Ok(())
    }

    /// Returns the wakeup of a wait for the source in which the sink shows an error, with what the
    /// source shows by now. `poll(2)` examines one descriptor after the other: the peer of a
    /// socket that is both may close it in between, and the source has then ended.
    pub(in crate::transfer) fn with_source(&self, wakeup: Wakeup) -> Wakeup {
        let is_lost = (wakeup.error || wakeup.hang_up) && !wakeup.ready;
        let there = PollFlags::IN | PollFlags::HUP;
        if !is_lost || !shows_now(self.flow.source.fd(), there) {
            return wakeup;
        }
        Wakeup {
            ready: true,
            open: true,
            ..wakeup
        }
    }

    /// Returns whether a side is a blocking file whose next call is made without
    /// another poll. If that call returns `EAGAIN`, from a FUSE server or a sysfs
    /// attribute, waiting does not help: `poll(2)` always reports such a file
    /// ready. The error may be temporary.
    pub(in crate::transfer) fn calls_at_once(&self, side: Side) -> bool {
        let end = self.flow.end(side);
        let facts = end.facts();
        let always_ready = facts.kind.is_cached() || facts.kind == Kind::Pseudo;
        let ready = always_ready && !facts.nonblocking;
        let known = &end.ready;
        ready && (known.marked || known.never_waits || known.may_sleep)
    }

    /// Returns whether a step may wait for the lock of a source that is a pipe: a
    /// process that splices a silent socket into it holds that lock, and no signal
    /// ends the wait. `poll(2)` takes no lock, and a pipe that it finds empty need
    /// not be touched.
    pub(in crate::transfer) fn source_may_be_locked(&self) -> bool {
        self.flow.source.kind().is_pipe()
            && !self.flow.allowance.is_over()
            && !self.holds()
            && !self.is_paused()
            && !self.control.as_ref().is_some_and(Control::is_cancelled)
    }

    /// Returns whether the source is a FIFO whose reader waits for the first writer: it has no
    /// `O_NONBLOCK`, and the transfer takes bytes. `poll(2)` reports no event before there is
    /// a writer (`pipe_poll`, fs/pipe.c).
    pub(crate) fn may_wait_for_writer(&self) -> bool {
        let source = &self.flow.source;
        let waits = source.kind() == Kind::Fifo && !source.facts().nonblocking;
        waits && !self.flow.allowance.is_over()
    }

    /// Returns whether the source is a FIFO without a writer, which `poll(2)` may
    /// not report. The next call then reports the end, as `read(2)` does. Checked until the
    /// FIFO has had a writer: after that, `poll(2)` reports the end. Checked only with
    /// `O_NONBLOCK`, without which `open(2)` has waited for a writer, because the check waits
    /// for the pipe's lock.
    pub(in crate::transfer) fn fifo_has_no_writer(&mut self) -> bool {
        let source = &self.flow.source;
        let may_be = source.kind() == Kind::Fifo && source.facts().nonblocking;
        // If the check fails, the step's call reports the end.
        may_be && self.fifo_check.is_over(source.fd())
    }
}

/// Returns whether `poll(2)` may report a socket as full after a shutdown, by the
/// peer for reading or locally for writing, so that only an attempt to write
/// reveals the shutdown. `unix_poll` and `unix_dgram_poll` (net/unix/af_unix.c)
/// check for room only, and `vsock_poll` (net/vmw_vsock/af_vsock.c) reports no room
/// then. TCP polls writable (`tcp_poll`, net/ipv4/tcp.c), and UDP has no peer that
/// could keep it full.
pub(in crate::transfer) fn hides_shutdown(kind: Kind) -> bool {
    kind.is_socket() && !matches!(kind, Kind::Tcp | Kind::Udp)
}

/// Returns the errno for an error or a hang-up on a sink while nothing is written
/// to it.
pub(in crate::transfer) fn sink_error(transfer: &Transfer<'_>, hang_up: bool) -> Option<Errno> {
    // A pipe's POLLERR: there is no reader. A socket's POLLHUP: both directions are
    // shut down. SO_ERROR is not read, because it returns the reason only once: in
    // the process that reads the socket, a reset would then look like a clean end.
    // A socket's POLLERR alone may be an entry of its error queue; the next write
    // shows which.
    match transfer.flow.sink.kind() {
        // The errno of a write (`hung_up_tty_write`, drivers/tty/tty_io.c).
        Kind::Tty => hang_up.then_some(Errno::EIO),
        kind => (hang_up || kind.is_pipe()).then_some(Errno::EPIPE),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;
    use crate::report::Ended;
    use crate::transfer::drive;
    use crate::transfer::wait::{Clock, Interest, Waiter};
    use crate::{DataPath, Request, Switches};

    /// A `poll(2)` that examines the source before the peer closes it, and the sink afterwards.
    struct Between(Option<UnixStream>);

    impl Clock for Between {
        fn now(&mut self) -> Duration {
            Duration::from_secs(1)
        }
    }

    impl Waiter for Between {
        fn wait(&mut self, _: &Interest<'_>, _: Option<Duration>) -> Result<Wakeup, Errno> {
            drop(self.0.take().expect("one wait"));
            Ok(Wakeup {
                hang_up: true,
                ..Wakeup::default()
            })
        }
    }

    #[test]
    fn a_source_that_has_ended_with_the_sink_is_an_end() {
        for path in [DataPath::Splice, DataPath::ReadWrite] {
            let (server, client) = UnixStream::pair().unwrap();
            let request = Request {
                idle: Some(Duration::from_secs(60)),
                switches: Some(Switches::only(&[path])),
                ..Request::default()
            };
            let transfer = Transfer::new(server.as_fd(), server.as_fd(), request).unwrap();
            let report = drive::run(transfer, &mut Between(Some(client))).report;
            assert_eq!(report.ended, Ended::Eof, "{report:?}");
        }
    }
}
