//! The transfer on the engine that empties a private channel into the sink.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use super::wait::Waiter;
use crate::engine::{self, Running, Status};
use crate::errno::Errno;
use crate::report::{Failure, Outcome};
use crate::request::{Request, Size};
use crate::transfer::{Control, Observer, Progress};

/// The interval at which something is tried that cannot be waited for.
pub(crate) const RETRY: Duration = Duration::from_millis(5);

/// The transfer from a private channel to the sink, and the observer of both sides.
pub(crate) struct Drain<'o> {
    running: Running,
    observer: Option<Box<dyn Observer + Send + 'o>>,
}

impl<'o> Drain<'o> {
    /// Starts the transfer. Sizes, source offsets and snapshots of the request concern
    /// the sources, and the idle limit and the handle concern this transfer.
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
    ) -> Result<Drain<'o>, Failure> {
        let request = Request {
            size: Size::Eof,
            source_offset: None,
            source_unshared: false,
            stable: false,
            ..request.clone()
        };
        let running = engine::start_with(channel, sink, request, control)?;
        Ok(Drain { running, observer })
    }

    pub(crate) fn status(&self) -> Status {
        self.running.status()
    }

    /// Reports the progress. `read`: the bytes taken from the sources.
    pub(crate) fn observe(&mut self, read: u64) {
        if let Some(observer) = &mut self.observer {
            let status = self.running.status();
            observer.progress(&Progress {
                read: read.max(status.written),
                written: status.written,
                pending_reads: status.pending_reads,
                pending_writes: status.pending_writes,
                path: status.path,
                elapsed: status.elapsed,
            });
        }
    }

    /// Returns the longest wait without a call of the observer.
    fn interval(&self) -> Option<Duration> {
        self.observer.as_ref().and_then(|its| its.interval())
    }

    /// Waits for `fds`, for the end of the transfer, and for the observer's interval.
    /// `fds` keeps its order.
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

    /// Waits until the sink has everything, and returns the outcome. The write end of
    /// the channel is closed. `read` as in [`Drain::observe`].
    pub(crate) fn finish(mut self, waiter: &mut dyn Waiter, read: u64) -> Outcome {
        while !self.running.status().ended {
            self.observe(read);
            if self.wait(waiter, &mut Vec::new(), None).is_err() {
                break;
            }
        }
        self.running.wait()
    }
}
