//! Ending or pausing a transfer from elsewhere, and watching it.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::errno::Errno;
use crate::request::DataPath;
use crate::sys::EventFd;

/// The handle by which another thread, or a signal handler, ends, pauses or
/// resumes a transfer.
///
/// Clones share one state. A transfer that waits is woken at once; one that
/// is inside a system call on a file ends when that bounded piece is done.
///
/// The wake-up is a descriptor of the thread that makes the handle. A transfer
/// that runs where its number is another file (`unshare(2)`, `CLONE_FILES`)
/// checks every 20 ms. A thread that had descriptors of its own before the
/// handle was made cannot wake the transfer, which then ends at its next step.
#[derive(Debug, Clone)]
pub struct Control {
    shared: Arc<Shared>,
    interrupting: bool,
    /// The wake-up's numbers are other files where the transfer runs, or it cannot
    /// be read there.
    cannot_wake: bool,
}

#[derive(Debug)]
struct Shared {
    cancelled: AtomicBool,
    paused: AtomicBool,
    /// Transfers that have begun to listen.
    listeners: AtomicU32,
    /// `None`: a transfer that waits checks every so often.
    wake: Option<EventFd>,
}

/// How often that is.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

impl Control {
    /// A fresh handle, of two descriptors. Since Linux 2.6.27 (`pipe2(2)`).
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`: no descriptor for the wake-up was to be
    /// had. `EPERM`, `ENOSYS`, or what else a filter says: `pipe2(2)` and
    /// `eventfd2(2)` are refused, or `write(2)` and `writev(2)`, or `read(2)` and
    /// `readv(2)`.
    pub fn new() -> Result<Control, Errno> {
        Ok(Control::with(Some(EventFd::distinct()?)))
    }

    /// The same of one descriptor, for a program that closes none that it does
    /// not know: under its number, another anonymous file could not be told
    /// from it.
    ///
    /// Public for the command alone, and no part of the interface.
    #[doc(hidden)]
    pub fn of_one_descriptor() -> Result<Control, Errno> {
        Ok(Control::with(Some(EventFd::new()?)))
    }

    /// The same without a descriptor, for when none is available: a transfer
    /// that waits checks every 20 ms whether it was cancelled or woken, unless
    /// it is [interrupted](Control::interrupting).
    pub fn without_descriptor() -> Control {
        Control::with(None)
    }

    fn with(wake: Option<EventFd>) -> Control {
        Control {
            shared: Arc::new(Shared {
                cancelled: AtomicBool::new(false),
                paused: AtomicBool::new(false),
                listeners: AtomicU32::new(0),
                wake,
            }),
            interrupting: false,
            cannot_wake: false,
        }
    }

    /// Promises that the code that cancels or wakes also interrupts the
    /// transfer's thread by a signal whose handler does not restart system
    /// calls (no `SA_RESTART`), repeatedly until the transfer has noticed.
    /// Then a transfer between blocking descriptors may sleep inside its
    /// system calls instead of in `poll(2)`, which saves a call a step.
    #[must_use]
    pub fn interrupting(mut self) -> Control {
        self.interrupting = true;
        self
    }

    pub(crate) fn interrupts(&self) -> bool {
        self.interrupting
    }

    /// Ends the transfer with [`Ended::Cancelled`](crate::Ended::Cancelled).
    /// A transfer that has found its end by then ends as it would have, unless
    /// its `fsync(2)` is interrupted (`EINTR`); one that has not been run yet
    /// moves nothing.
    /// Async-signal-safe: one atomic store and one `write(2)`.
    pub fn cancel(&self) {
        self.shared.cancelled.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether [`Control::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.shared.cancelled.load(Ordering::Acquire)
    }

    /// Pauses the transfer: it takes nothing more from its source until it is
    /// [resumed](Control::resume). What it has taken goes to the sink, and blocks
    /// that are in flight on the direct path come home. A system call that is in
    /// progress ends first. The idle limit does not run while the transfer is
    /// paused, and begins anew when it is resumed. A paused transfer can be
    /// cancelled.
    ///
    /// Async-signal-safe: one atomic store and one `write(2)`.
    pub fn pause(&self) {
        self.shared.paused.store(true, Ordering::Release);
        self.wake();
    }

    /// Lets a paused transfer go on. Transfers that share this handle with another
    /// one may notice up to 20 ms later. Async-signal-safe, as
    /// [`Control::pause`].
    pub fn resume(&self) {
        self.shared.paused.store(false, Ordering::Release);
        self.wake();
    }

    /// Whether [`Control::pause`] was called, and not [`Control::resume`] since.
    pub fn is_paused(&self) -> bool {
        self.shared.paused.load(Ordering::Acquire)
    }

    /// Makes a waiting transfer call its observer now. Of several that share
    /// this handle it wakes one, whichever is first to notice; give each its
    /// own where all are to be woken. Async-signal-safe.
    pub fn wake(&self) {
        if let Some(eventfd) = &self.shared.wake {
            eventfd.signal();
        }
    }

    /// A transfer begins, on a thread with these descriptors.
    pub(crate) fn listen(&mut self) {
        self.shared.listeners.fetch_add(1, Ordering::Relaxed);
        self.cannot_wake = !self.shared.wake.as_ref().is_some_and(EventFd::is_here);
    }

    pub(crate) fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        let wake = self.shared.wake.as_ref();
        wake.filter(|_| !self.cannot_wake).map(AsFd::as_fd)
    }

    /// How often a transfer that waits looks at it, because nothing wakes it.
    pub(crate) fn interval(&self) -> Option<Duration> {
        let can_wake = self.shared.wake.is_some() && !self.cannot_wake;
        (!can_wake && !self.interrupting).then_some(POLL_INTERVAL)
    }

    /// How often a paused transfer checks whether it was resumed: the wake-up may
    /// reach only one of several that share this handle.
    pub(crate) fn pause_interval(&self) -> Option<Duration> {
        let shared = self.shared.listeners.load(Ordering::Relaxed) > 1;
        if shared {
            Some(POLL_INTERVAL)
        } else {
            self.interval()
        }
    }

    pub(crate) fn clear_wake(&mut self) {
        // Once cancelled it stays readable, for every transfer that shares it.
        if self.is_cancelled() {
            return;
        }
        // It would wake without a cause from here on, and no idle limit would end that.
        if let Some(eventfd) = &self.shared.wake
            && eventfd.clear().is_err()
        {
            self.cannot_wake = true;
        }
        // A cancel that came in between: its wake-up was for all who share it.
        if self.is_cancelled() {
            self.wake();
        }
    }
}

/// A transfer's state while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes taken from the source so far. Where blocks are carried in any order
    /// ([`DataPath::Direct`]), a block counts as read and as written once it and
    /// all blocks before it are in the sink.
    pub read: u64,
    /// Bytes the sink accepted so far.
    pub written: u64,
    /// Reads that are on their way at this moment.
    pub pending_reads: u32,
    /// Writes that are on their way.
    pub pending_writes: u32,
    /// The path in use.
    pub path: DataPath,
    /// Since the start.
    pub elapsed: Duration,
}

impl Progress {
    /// Bytes taken from the source that the sink has not accepted yet: `read -
    /// written`; none, where a stage makes more bytes of fewer. The two are not
    /// the same bytes then.
    pub fn in_transit(&self) -> u64 {
        self.read.saturating_sub(self.written)
    }
}

/// Told of a transfer's progress, on the transfer's own thread.
pub trait Observer {
    /// Called after steps that moved bytes, and on every wake-up.
    fn progress(&mut self, progress: &Progress);

    /// How long the transfer may wait without a call. `None`: for ever.
    fn interval(&self) -> Option<Duration> {
        None
    }
}

impl<O: Observer + ?Sized> Observer for &mut O {
    fn progress(&mut self, progress: &Progress) {
        (**self).progress(progress);
    }

    fn interval(&self) -> Option<Duration> {
        (**self).interval()
    }
}
