//! The transfer on the engine that moves the content of a private channel to the sink.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use super::wait::Waiter;
use crate::endpoint::Side;
use crate::engine::{self, Awaits, Running, Status};
use crate::errno::Errno;
use crate::report::{Ended, Failure, Outcome, Report};
use crate::request::{Request, Size};
use crate::sys::WakeFd;
use crate::transfer::{Control, Observer, Progress};

/// The interval of polling if no descriptor is available to wait for.
pub(crate) const RETRY: Duration = Duration::from_millis(5);

/// The transfer from a private channel to the sink, and the observer of both sides.
pub(crate) struct Drain<'o> {
    running: Running,
    observer: Option<Box<dyn Observer + Send + 'o>>,
    wake: Option<Arc<Wake>>,
}

/// Wakes the composition when a sink has accepted bytes. The transfers to several sinks may
/// share it.
#[derive(Debug)]
pub(crate) struct Wake {
    /// `None`: no descriptor is available, and the composition polls.
    event: Option<WakeFd>,
    /// The composition waits for bytes to be accepted.
    wanted: AtomicBool,
    /// The total number of bytes that the sinks have accepted.
    written: AtomicU64,
}

impl Wake {
    pub(crate) fn new() -> Arc<Wake> {
        Arc::new(Wake {
            event: WakeFd::new().ok(),
            wanted: AtomicBool::new(false),
            written: AtomicU64::new(0),
        })
    }

    /// Returns an observer for a transfer to a sink.
    pub(crate) fn observer(self: &Arc<Self>) -> Signal {
        Signal {
            wake: Arc::clone(self),
            written: 0,
        }
    }

    /// Returns the total number of bytes that the sinks have accepted.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::SeqCst)
    }

    /// Requests a wakeup. Returns `false` if the sinks have already accepted more than
    /// `known` bytes.
    pub(crate) fn request(&self, known: u64) -> bool {
        self.wanted.store(true, Ordering::SeqCst);
        self.written() <= known
    }

    /// Ends the request.
    pub(crate) fn clear(&self) {
        self.wanted.store(false, Ordering::SeqCst);
        if let Some(event) = &self.event {
            let _ = event.clear();
        }
    }

    /// Adds the descriptor of the wakeup to those of a wait, and returns the timeout of the
    /// wait. Without a descriptor, or with one that cannot be cleared, the composition polls:
    /// the timeout is at most [`RETRY`].
    pub(crate) fn add_to<'f>(
        &'f self,
        fds: &mut Vec<PollFd<'f>>,
        timeout: Option<Duration>,
    ) -> Option<Duration> {
        match self.event.as_ref().and_then(WakeFd::waitable) {
            Some(event) => {
                fds.push(PollFd::from_borrowed_fd(event, PollFlags::IN));
                timeout
            }
            None => Some(timeout.map_or(RETRY, |timeout| timeout.min(RETRY))),
        }
    }
}

/// Observes one transfer on the engine's thread.
pub(crate) struct Signal {
    wake: Arc<Wake>,
    /// Bytes that its sink has accepted.
    written: u64,
}

impl Observer for Signal {
    fn progress(&mut self, progress: &Progress) {
        let more = progress.written.saturating_sub(self.written);
        if more == 0 {
            return;
        }
        self.written = progress.written;
        self.wake.written.fetch_add(more, Ordering::SeqCst);
        if self.wake.wanted.swap(false, Ordering::SeqCst)
            && let Some(event) = &self.wake.event
        {
            event.signal();
        }
    }
}

/// Counts the failure of a sink without a reader as the end of its source. For a sink that has
/// every byte: it needs no reader, although its transfer has noticed that first.
pub(crate) fn excuse_reader(sink: &mut Report) {
    if (sink.failed, sink.errno) == (Some(Side::Sink), Some(Errno::EPIPE)) {
        (sink.ended, sink.failed, sink.errno) = (Ended::Eof, None, None);
    }
}

impl<'o> Drain<'o> {
    /// Starts the transfer. The size, the source offset and the snapshot of the request
    /// apply to the sources. The idle limit and the handle apply to this transfer.
    /// `rests`: see [`Drain::source_rests`].
    ///
    /// # Errors
    ///
    /// As [`engine::start`].
    pub(crate) fn start(
        channel: BorrowedFd<'_>,
        sink: BorrowedFd<'_>,
        request: &Request,
        control: Option<&Control>,
        observer: Option<Box<dyn Observer + Send + 'o>>,
        wake: Option<Arc<Wake>>,
        rests: bool,
    ) -> Result<Drain<'o>, Failure> {
        let request = Request {
            size: Size::Eof,
            source_offset: None,
            source_unshared: false,
            stable: false,
            ..request.clone()
        };
        let signal = wake.as_ref().map(Wake::observer);
        let running = engine::start_with(channel, sink, request, |transfer| {
            // A composition identifies the bytes of a sink by their number.
            let mut transfer = transfer.out_of_a_channel();
            transfer.source_rests = rests;
            if let Some(control) = control {
                transfer = transfer.control(control);
            }
            match signal {
                Some(signal) => transfer.observe(signal),
                None => transfer,
            }
        })?;
        Ok(Drain {
            running,
            observer,
            wake,
        })
    }

    pub(crate) fn status(&self) -> Status {
        self.running.status()
    }

    /// Returns the bytes that the sink has accepted.
    pub(crate) fn written(&self) -> u64 {
        let seen = self.wake.as_ref().map_or(0, |wake| wake.written());
        self.running.status().written.max(seen)
    }

    /// Returns what the transfer waits for. [`Drain::written`], if called afterwards, contains
    /// all that it has written before this wait.
    pub(crate) fn awaits(&self) -> Awaits {
        self.running.awaits()
    }

    /// Sets whether the idle limit does not run while the transfer waits for the channel: the
    /// channel gets no bytes at present because of the schedule of the source, or the
    /// composition has a limit of its own for the sources.
    pub(crate) fn source_rests(&self, rests: bool) {
        self.running.source_rests(rests);
    }

    /// Reports the progress. `read`: the number of bytes taken from the sources.
    pub(crate) fn observe(&mut self, read: u64) {
        let written = self.written();
        if let Some(observer) = &mut self.observer {
            let status = self.running.status();
            observer.progress(&Progress {
                read: read.max(written),
                written,
                dropped: status.dropped,
                pending_reads: status.pending_reads,
                pending_writes: status.pending_writes,
                path: status.path,
                elapsed: status.elapsed,
                sinks: 1,
            });
        }
    }

    /// Returns the longest interval without a call of the observer.
    fn interval(&self) -> Option<Duration> {
        self.observer.as_ref().and_then(|its| its.interval())
    }

    /// Waits for `fds`, for the end of the transfer, and for the observer's interval. The
    /// order of `fds` does not change.
    pub(crate) fn wait<'f>(
        &'f self,
        waiter: &mut dyn Waiter,
        fds: &mut Vec<PollFd<'f>>,
        timeout: Option<Duration>,
    ) -> Result<(), Errno> {
        let end = self.running.fd();
        let retry = end.is_err().then_some(RETRY);
        let times = [timeout, retry, self.interval()];
        let own = end.map(|fd| fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let done = waiter.wait(fds, times.into_iter().flatten().min());
        if own.is_ok() {
            fds.pop();
        }
        done
    }

    /// Waits for the end of the transfer, and returns the outcome. The write end of the
    /// channel is already closed. `read` is as in [`Drain::observe`].
    pub(crate) fn finish(mut self, waiter: &mut dyn Waiter, read: u64) -> Outcome {
        self.running.source_rests(false);
        self.running.source_is_complete();
        while !self.running.status().ended {
            self.observe(read);
            if self.wait(waiter, &mut Vec::new(), None).is_err() {
                break;
            }
        }
        self.running.wait()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A filter that the host installs later refuses to read it.
    #[test]
    fn a_wakeup_that_cannot_be_cleared_is_waited_for_no_more() {
        testkit::refuse::apart(|| {
            let wake = Wake::new();
            let waits = || {
                let mut fds = Vec::new();
                let timeout = wake.add_to(&mut fds, None);
                (fds.len(), timeout)
            };
            wake.clear();
            assert_eq!(waits(), (1, None));
            testkit::refuse::refuse(&[libc::SYS_read, libc::SYS_readv], libc::EPERM);
            wake.clear();
            assert_eq!(waits(), (0, Some(RETRY)));
        });
    }
}
