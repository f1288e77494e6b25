//! Cancelling or pausing a transfer from another thread, and observing it.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use super::pace::{Load, Need, Pacers, Returned, Step};
use crate::errno::Errno;
use crate::report::Dropped;
use crate::request::{DataPath, Schedule};
use crate::sys::{Lock, WakeFd};

/// A handle by which another thread, or a signal handler, cancels, pauses or
/// resumes a transfer.
///
/// Clones share one state. A transfer that waits is woken immediately; one that is
/// inside a system call on a file stops when that bounded piece is done.
///
/// The wakeup is a descriptor in the table of the thread that creates the handle. A
/// transfer that runs where its number refers to another file (`unshare(2)`,
/// `CLONE_FILES`) checks every 20 ms. A thread whose descriptor table was unshared
/// before the handle was created cannot wake the transfer, which then notices at
/// its next step.
#[derive(Debug, Clone)]
pub struct Control {
    shared: Arc<Shared>,
    interrupting: bool,
    /// On the thread of the transfer, the wakeup's numbers refer to other files; or
    /// the wakeup cannot be cleared.
    cannot_wake: bool,
    /// No two transfers use it at the same time.
    is_exclusive: bool,
    listening: Listening,
}

/// A transfer that uses the wakeup, until it is dropped. A clone of its handle is not one.
#[derive(Debug, Default)]
struct Listening(Option<Arc<Shared>>);

impl Clone for Listening {
    fn clone(&self) -> Listening {
        Listening::default()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.listeners.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[derive(Debug)]
struct Shared {
    cancelled: AtomicBool,
    paused: AtomicBool,
    /// The number of pauses.
    pauses: AtomicU32,
    /// There is a schedule or a limit.
    paced: AtomicBool,
    /// The schedule depends on the cost of steps.
    metered: AtomicBool,
    pacers: Lock<Pacers>,
    /// The number of transfers that use the wakeup.
    listeners: AtomicU32,
    /// `None`: a waiting transfer polls.
    wake: Option<WakeFd>,
}

/// The interval at which a transfer polls if nothing can wake it.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The interval at which a paused transfer checks whether it was resumed, if no other
/// shares its handle.
const UNSHARED: Duration = Duration::from_secs(1);

impl Control {
    /// Creates a handle, which uses two descriptors. Since Linux 2.6.27
    /// (`pipe2(2)`).
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`: no descriptor for the wakeup is available.
    /// `EPERM`, `ENOSYS`, or another errno of a seccomp filter: it refuses
    /// `pipe2(2)` and `eventfd2(2)`, or `write(2)` and `writev(2)`, or `read(2)`
    /// and `readv(2)`.
    pub fn new() -> Result<Control, Errno> {
        Ok(Control::with(Some(WakeFd::distinct()?)))
    }

    /// Creates a handle that uses one descriptor, for a program that closes no
    /// unknown descriptors: another anonymous file under its number could not be
    /// distinguished from it.
    ///
    /// Public for the command only; not part of the interface.
    #[doc(hidden)]
    pub fn of_one_descriptor() -> Result<Control, Errno> {
        Ok(Control::with(Some(WakeFd::new()?)))
    }

    /// Creates a handle without a descriptor, for use when none is available. A
    /// waiting transfer checks every 20 ms whether it was cancelled or woken,
    /// unless it is [interrupted](Control::interrupting).
    pub fn without_descriptor() -> Control {
        Control::with(None)
    }

    fn with(wake: Option<WakeFd>) -> Control {
        Control {
            shared: Arc::new(Shared {
                cancelled: AtomicBool::new(false),
                paused: AtomicBool::new(false),
                pauses: AtomicU32::new(0),
                paced: AtomicBool::new(false),
                metered: AtomicBool::new(false),
                pacers: Lock::default(),
                listeners: AtomicU32::new(0),
                wake,
            }),
            interrupting: false,
            cannot_wake: false,
            is_exclusive: false,
            listening: Listening::default(),
        }
    }

    /// Declares that no two transfers use this handle or a clone of it at the same time. A
    /// paused one then sleeps until it is woken.
    pub(crate) fn exclusive(mut self) -> Control {
        self.is_exclusive = true;
        self
    }

    /// Declares that the caller also interrupts the transfer's thread when it
    /// cancels or wakes: by a signal whose handler does not restart system calls
    /// (no `SA_RESTART`), sent repeatedly until the transfer has noticed. A
    /// transfer between blocking descriptors may then sleep inside its system calls
    /// instead of in `poll(2)`, which saves one call per step.
    #[must_use]
    pub fn interrupting(mut self) -> Control {
        self.interrupting = true;
        self
    }

    pub(crate) fn interrupts(&self) -> bool {
        self.interrupting
    }

    /// Ends the transfer with [`Ended::Cancelled`](crate::Ended::Cancelled). A
    /// transfer that has already found its end keeps that result, unless its
    /// `fsync(2)` is interrupted (`EINTR`). One that has not been run yet moves
    /// nothing. Async-signal-safe: one atomic store and one `write(2)`.
    pub fn cancel(&self) {
        self.shared.cancelled.store(true, Ordering::Release);
        self.wake();
    }

    /// Returns whether [`Control::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.shared.cancelled.load(Ordering::Acquire)
    }

    /// Pauses the transfer: it reads nothing more from its source until it is
    /// [resumed](Control::resume). Bytes that it has read are written to the sink,
    /// and blocks in flight on the direct path complete. A system call that is in
    /// progress ends first. The idle limit does not run while the transfer is
    /// paused, and restarts when it is resumed. A paused transfer can be cancelled.
    ///
    /// Async-signal-safe: two atomic operations and one `write(2)`.
    pub fn pause(&self) {
        self.shared.pauses.fetch_add(1, Ordering::Relaxed);
        self.shared.paused.store(true, Ordering::Release);
        self.wake();
    }

    /// Resumes a paused transfer. Transfers that share this handle with another one
    /// may notice up to 20 ms later, and up to a second later if the other one has
    /// started since the pause. Async-signal-safe, as [`Control::pause`].
    pub fn resume(&self) {
        self.shared.paused.store(false, Ordering::Release);
        self.wake();
    }

    /// Returns whether [`Control::pause`] was called, and not [`Control::resume`]
    /// since.
    pub fn is_paused(&self) -> bool {
        self.shared.paused.load(Ordering::Acquire)
    }

    /// Sets the schedule of the transfer, at any time. A running transfer follows it from
    /// its next step, and waits for the rest of a wait no longer than the new schedule
    /// requires. Transfers that share this handle share the schedule: together they move
    /// no more than it permits. A wait for the schedule does not count as idle.
    ///
    /// Must not be called by a signal handler. In a child of `fork(2)` it may have no
    /// effect.
    pub fn set_schedule(&self, schedule: Schedule) {
        self.pace(|pacers| pacers.set(schedule));
    }

    /// Returns the schedule that was set last, [`Schedule::Unlimited`] if none was.
    pub fn schedule(&self) -> Schedule {
        let pacers = self.shared.pacers.lock();
        pacers.map_or(Schedule::Unlimited, |pacers| pacers.schedule())
    }

    /// Limits all schedules that are set before or after: the transfer follows both.
    /// A block of the limit has `block` bytes, whatever the request says. A limit can
    /// only be tightened: of two rates the lower one applies, and of two schedules of
    /// blocks the fewer and shorter blocks and the longer rest. [`Schedule::Unlimited`] and
    /// [`Schedule::Auto`] are no limits, and have no effect.
    pub fn limit_schedule(&self, schedule: Schedule, block: u64) {
        self.pace(|pacers| pacers.limit(schedule, block));
    }

    /// Returns the limits of [`Control::limit_schedule`]: that of the rate, and that of
    /// blocks. [`Schedule::Unlimited`] if there is none.
    pub fn schedule_limits(&self) -> (Schedule, Schedule) {
        let pacers = self.shared.pacers.lock();
        pacers.map_or_else(Default::default, |pacers| pacers.limits())
    }

    fn pace(&self, change: impl FnOnce(&mut Pacers)) {
        let Some(mut pacers) = self.shared.pacers.lock() else {
            return;
        };
        change(&mut pacers);
        (self.shared.paced).store(pacers.is_limited(), Ordering::Release);
        (self.shared.metered).store(pacers.is_metered(), Ordering::Release);
        drop(pacers);
        self.wake();
    }

    /// Returns whether a schedule or a limit is set.
    pub(crate) fn is_paced(&self) -> bool {
        self.shared.paced.load(Ordering::Acquire)
    }

    /// Takes bytes from the schedule for a step: [`Pacers::grant`]. Returns also
    /// [`Pacers::changes`]. The step ends with [`Control::give_back`].
    pub(super) fn grant(&self, now: Duration, need: Need) -> Result<(u64, u64), Duration> {
        match self.shared.pacers.lock() {
            Some(mut pacers) => {
                let granted = pacers.grant(now, need)?;
                if granted > 0 {
                    pacers.begin_step();
                }
                Ok((granted, pacers.changes()))
            }
            // A child of fork(2), in which no transfer of this handle runs.
            None => Ok((u64::MAX, 0)),
        }
    }

    /// Returns whether the schedule depends on the cost of steps.
    pub(super) fn is_metered(&self) -> bool {
        self.shared.metered.load(Ordering::Acquire)
    }

    /// Returns whether it is time to observe the machine.
    pub(super) fn needs_load(&self, now: Duration) -> bool {
        let pacers = self
            .is_metered()
            .then(|| self.shared.pacers.lock())
            .flatten();
        pacers.is_some_and(|pacers| pacers.needs_load(now))
    }

    /// Adapts the schedule to the load of the machine: [`Pacers::observe`].
    pub(super) fn observe(&self, now: Duration, load: Option<&Load>) {
        if let Some(mut pacers) = self.shared.pacers.lock() {
            pacers.observe(now, load);
        }
    }

    /// Records the end of a step: [`Pacers::stepped`].
    pub(super) fn stepped(&self, now: Duration, step: Step) {
        if let Some(mut pacers) = self.shared.pacers.lock() {
            pacers.stepped(now, step);
        }
    }

    /// Returns bytes to the schedule: [`Pacers::give_back`].
    pub(super) fn give_back(&self, returned: Returned) {
        if let Some(mut pacers) = self.shared.pacers.lock() {
            pacers.give_back(returned);
        }
    }

    /// Makes a waiting transfer call its observer now. Of several that share this
    /// handle it wakes only the first to notice; to wake all, give each its own
    /// handle. Async-signal-safe.
    pub fn wake(&self) {
        if let Some(wake_fd) = &self.shared.wake {
            wake_fd.signal();
        }
    }

    /// Registers a transfer that begins on the calling thread.
    pub(crate) fn listen(&mut self) {
        self.shared.listeners.fetch_add(1, Ordering::Relaxed);
        self.listening = Listening(Some(Arc::clone(&self.shared)));
        self.cannot_wake = !self.shared.wake.as_ref().is_some_and(WakeFd::is_here);
    }

    pub(crate) fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        let wake = self.shared.wake.as_ref();
        wake.filter(|_| !self.cannot_wake).map(AsFd::as_fd)
    }

    /// Returns the interval at which a waiting transfer polls this handle because
    /// nothing wakes it.
    pub(crate) fn interval(&self) -> Option<Duration> {
        let can_wake = self.shared.wake.is_some() && !self.cannot_wake;
        (!can_wake && !self.interrupting).then_some(POLL_INTERVAL)
    }

    /// Returns the number of pauses so far. A whole pause may pass in one wait, because another
    /// transfer that shares the handle takes the wakeups, or the wait has none.
    pub(crate) fn pauses(&self) -> u32 {
        self.shared.pauses.load(Ordering::Relaxed)
    }

    /// Returns the interval at which a paused transfer checks whether it was
    /// resumed: the wakeup may reach only one of several that share this handle.
    /// Another one may share it later. `None`: the handle is [exclusive](Control::exclusive).
    pub(crate) fn pause_interval(&self) -> Option<Duration> {
        let shared = self.shared.listeners.load(Ordering::Relaxed) > 1;
        if shared || self.interval().is_some() {
            Some(POLL_INTERVAL)
        } else {
            (!self.is_exclusive).then_some(UNSHARED)
        }
    }

    pub(crate) fn clear_wake(&mut self) {
        // After a cancellation the wakeup stays readable, for all transfers that
        // share it.
        if self.is_cancelled() {
            return;
        }
        // If it cannot be cleared, or its number is closed or refers to another file, it would
        // wake the transfer again and again, and no idle limit would end that.
        if let Some(wake_fd) = &self.shared.wake
            && (wake_fd.clear().is_err() || !wake_fd.is_here())
        {
            self.cannot_wake = true;
        }
        // `cancel` may have been called in between: its wakeup is for all transfers
        // that share the handle.
        if self.is_cancelled() {
            self.wake();
        }
    }
}

/// The progress of a running transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes taken from the source so far. If blocks move in any order
    /// ([`DataPath::Direct`]), a block counts as read and as written once it and
    /// all blocks before it are in the sink.
    pub read: u64,
    /// Bytes that the sink has accepted so far.
    pub written: u64,
    /// Datagrams dropped so far, which were longer than the sink accepts. They count as read.
    pub dropped: Dropped,
    /// Reads in flight.
    pub pending_reads: u32,
    /// Writes in flight.
    pub pending_writes: u32,
    /// The path in use.
    pub path: DataPath,
    /// The time since the start.
    pub elapsed: Duration,
    /// The number of attached sinks. Of a fan-out, these are the sinks that have not failed
    /// and were not detached. Of other transfers it is 1.
    pub sinks: u32,
}

impl Progress {
    /// Returns the bytes taken from the source that the sink has not accepted yet, without
    /// dropped datagrams: `read - written - dropped.bytes`, or 0 if a stage has produced more
    /// bytes than were read. With such a stage, `read` and `written` count different bytes.
    pub fn in_transit(&self) -> u64 {
        let left = self.read.saturating_sub(self.written);
        left.saturating_sub(self.dropped.bytes)
    }
}

/// Receives the progress of a transfer, on the transfer's own thread.
pub trait Observer {
    /// Called after steps that moved bytes, and on every wakeup.
    fn progress(&mut self, progress: &Progress);

    /// Returns the longest time between two calls while the transfer waits. `None`:
    /// no limit.
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
