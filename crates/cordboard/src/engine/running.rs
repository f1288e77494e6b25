//! The handle of a transfer that runs on an engine.

use std::future::Future;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use super::completion::{Completion, Ending, Taken};
use super::home::Home;
use super::status::{Awaits, Live, Status};
use crate::errno::Errno;
use crate::report::{Outcome, Report};
use crate::sys::Stamp;

impl Ending for Outcome {
    type Report = Report;

    fn report(&self) -> &Report {
        &self.report
    }
}

/// The operations of the engine that a handle uses.
pub(super) trait EngineForHandle: Send + Sync {
    /// Returns the process that the engine's threads belong to.
    fn process(&self) -> Stamp;

    /// Returns whether the calling thread's descriptor table differs from the
    /// engine's.
    fn has_other_descriptors(&self) -> bool;

    /// Makes the reactor of this number check a transfer that was cancelled, or whose source
    /// has become complete, or rests or no longer rests.
    fn recheck(&self, id: u64, home: usize);

    /// Makes the engine check whether the host has closed its descriptors: the
    /// thread that sleeps on them notices only within a minute.
    fn check(&self);

    /// In a child of `fork(2)`: closes the inherited descriptors.
    fn close_inherited(&self);
}

/// The state that a transfer on an engine shares with its handle.
pub(super) struct Shared {
    pub(super) id: u64,
    /// The process that the transfer runs in.
    process: Stamp,
    pub(super) live: Live,
    pub(super) completion: Completion<Outcome>,
    /// No more bytes are written to the source: it has ended once it is empty.
    source_is_complete: AtomicBool,
    /// No bytes are written to the source at present, because of a schedule; or the idle limit
    /// of the caller applies to the source.
    source_rests: AtomicBool,
    pub(super) home: Home,
    engine: Weak<dyn EngineForHandle>,
    /// When the engine's descriptors were last checked through this handle, in
    /// milliseconds since the start.
    checked: AtomicU64,
}

/// How long a thread waits for an end before it first checks that the engine's
/// descriptors are still its own.
const SOON: Duration = Duration::from_millis(20);
/// The longest such time: it doubles with each check.
const LATER: Duration = Duration::from_secs(60);

impl Shared {
    pub(super) fn new(
        id: u64,
        live: Live,
        source_rests: bool,
        engine: &Arc<impl EngineForHandle + 'static>,
    ) -> Arc<Shared> {
        let weak = Arc::downgrade(engine);
        Arc::new(Shared {
            id,
            // Not the current process: a signal handler may have forked during the
            // start.
            process: engine.process(),
            live,
            completion: Completion::new(),
            source_is_complete: AtomicBool::new(false),
            source_rests: AtomicBool::new(source_rests),
            home: Home::default(),
            engine: weak,
            checked: AtomicU64::new(0),
        })
    }

    pub(super) fn source_is_complete(&self) -> bool {
        self.source_is_complete.load(Ordering::Acquire)
    }

    pub(super) fn source_rests(&self) -> bool {
        self.source_rests.load(Ordering::Acquire)
    }

    /// Fails if the engine does not share the calling thread's descriptor table.
    fn check_table(&self) -> Result<(), Errno> {
        let engine = self.engine.upgrade();
        match engine.is_some_and(|engine| engine.has_other_descriptors()) {
            true => Err(Errno::EBADF),
            false => Ok(()),
        }
    }

    /// See [`EngineForHandle::check`].
    fn check(&self) {
        if let Some(engine) = self.engine.upgrade() {
            engine.check();
        }
    }

    /// Calls [`Shared::check`] if the last check through this handle is at least
    /// [`SOON`] ago.
    fn check_now_and_then(&self, elapsed: Duration) {
        let now = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        let before = self.checked.load(Ordering::Relaxed);
        if now.saturating_sub(before) >= SOON.as_millis() as u64 {
            self.checked.store(now, Ordering::Relaxed);
            self.check();
        }
    }

    /// Returns an outcome with the current counts, for a transfer whose thread
    /// reports none.
    pub(super) fn lost(&self, errno: Errno) -> Outcome {
        let status = self.live.snapshot(true);
        let mut report = Report::nothing(None, Some(errno));
        report.read = status.read;
        report.written = status.written;
        report.dropped = status.dropped;
        report.stranded = status.in_transit();
        report.elapsed = status.elapsed;
        Outcome {
            report,
            stranded: None,
        }
    }
}

/// A transfer that runs on an [`Engine`](super::Engine). It can be awaited as a
/// [`Future`] by any executor, waited for by [`Running::wait`], polled by
/// descriptor, queried, cancelled, or [detached](Running::detach).
///
/// Dropping it cancels the transfer: of the bytes that had been read, those that
/// the sink accepts without blocking are still written, a seekable source is
/// rewound, and the rest is lost with the outcome. [`Running::cancel`] followed by
/// [`Running::wait`] loses nothing.
///
/// It belongs to the process that started it. In a child of `fork(2)` the transfer
/// does not run (it continues in the parent), and every way of waiting returns
/// `ECHILD` immediately, with the counts at the time of the fork. The child
/// inherits the transfer's descriptors. While it has them, a reader in another
/// process sees no end of file. The child closes those of pipes and sockets when it
/// first starts a transfer on an engine or uses a handle or an engine of its
/// parent, and the others when it executes a program.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::io::{Read, Write};
/// let (source, mut feed) = std::io::pipe()?;
/// let (mut end, sink) = std::io::pipe()?;
/// let running = cordboard::start(&source, &sink, cordboard::Request::default())?;
/// feed.write_all(b"number, please")?;
/// drop((feed, sink));
/// let mut text = String::new();
/// end.read_to_string(&mut text)?;
/// assert_eq!(text, "number, please");
/// assert_eq!(running.wait().report.written, 14);
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping it cancels the transfer"]
pub struct Running {
    shared: Arc<Shared>,
    /// Dropping the handle does not cancel the transfer.
    released: bool,
}

impl Running {
    pub(super) fn new(shared: Arc<Shared>) -> Running {
        Running {
            shared,
            released: false,
        }
    }

    /// Returns whether another process runs the transfer.
    fn is_inherited(&self) -> bool {
        !self.shared.process.is_here()
    }

    /// In a child of `fork(2)`.
    fn close_inherited(&self) {
        if let Some(engine) = self.shared.engine.upgrade() {
            engine.close_inherited();
        }
    }

    fn inherited_outcome(&self) -> Outcome {
        self.close_inherited();
        self.shared.lost(Errno::ECHILD)
    }

    /// Returns a snapshot of the transfer.
    pub fn status(&self) -> Status {
        let is_inherited = self.is_inherited();
        if is_inherited {
            self.close_inherited();
        }
        let ended = is_inherited || self.shared.completion.has_ended();
        let status = self.shared.live.snapshot(ended);
        if !ended {
            self.shared.check_now_and_then(status.elapsed);
        }
        status
    }

    /// Ends the transfer with [`Ended::Cancelled`](crate::Ended::Cancelled), after
    /// the current piece of a file copy is finished. It does not wake a worker that waits
    /// for the other side of a transfer with a file (at most 5 ms) or for a schedule (at
    /// most 20 ms); [`Control::cancel`](crate::Control::cancel) does. Returns immediately;
    /// [`wait`](Running::wait) and the other ways to wait return the outcome. The
    /// result is [`Ended::Eof`](crate::Ended::Eof) if the transfer found the end of
    /// its source before the cancellation.
    ///
    /// Takes effect only after a system call that blocks and cannot be interrupted
    /// has returned, since the counts are exact only then. The same holds for
    /// [`Request::idle`](crate::Request::idle). Such calls are: reads and writes of
    /// a file system whose server does not answer (NFS, FUSE); calls on a pipe
    /// whose lock another process holds while it splices a silent socket or a slow
    /// file into the pipe (an empty pipe is not read); a write of up to 4096 bytes
    /// to a blocking serial line that accepts only a part of it; a write of any length
    /// to another blocking device that accepts only a part of it. Other transfers
    /// continue meanwhile.
    pub fn cancel(&self) {
        if !self.is_inherited()
            && self.shared.completion.cancel()
            // An engine that has been dropped has already ended it.
            && let Some(engine) = self.shared.engine.upgrade()
        {
            engine.recheck(self.shared.id, self.shared.home.after_change());
        }
    }

    /// Declares that no more bytes are written to the source, a private channel. The
    /// transfer ends once the source is empty, even if a child of `fork(2)` has its write
    /// end open.
    pub(crate) fn source_is_complete(&self) {
        if !self.is_inherited()
            && !self.shared.source_is_complete.swap(true, Ordering::AcqRel)
            && let Some(engine) = self.shared.engine.upgrade()
        {
            engine.recheck(self.shared.id, self.shared.home.after_change());
        }
    }

    /// Sets whether the source, a private channel, gets no bytes at present because of a
    /// schedule. The idle limit does not run while the transfer waits for such a source, and
    /// restarts afterwards.
    pub(crate) fn source_rests(&self, rests: bool) {
        if !self.is_inherited()
            && self.shared.source_rests.swap(rests, Ordering::AcqRel) != rests
            && let Some(engine) = self.shared.engine.upgrade()
        {
            engine.recheck(self.shared.id, self.shared.home.after_change());
        }
    }

    /// Returns what the transfer waits for at present.
    pub(crate) fn awaits(&self) -> Awaits {
        self.shared.live.awaits()
    }

    /// Returns the outcome once, if the transfer has ended.
    pub fn try_wait(&self) -> Option<Outcome> {
        if self.is_inherited() {
            return Some(self.inherited_outcome());
        }
        let outcome = self.shared.completion.try_take();
        if outcome.is_none() {
            // The caller may poll in a loop: `status` checks the descriptors.
            self.status();
        }
        outcome
    }

    /// Waits for the end. If [`Running::try_wait`] has already returned the
    /// outcome, this one has no stranded bytes.
    pub fn wait(mut self) -> Outcome {
        self.released = true;
        let ended = self.waited();
        let taken = ended.then(|| self.shared.completion.taken()).flatten();
        taken.map_or_else(|| self.inherited_outcome(), whole)
    }

    /// Waits for the end without taking the outcome, which [`Running::try_wait`]
    /// then returns. Any number of threads that share a handle may wait. Needs no
    /// descriptor, unlike [`Running::fd`].
    pub fn wait_for_end(&self) {
        self.waited();
    }

    /// Waits for the end. `false`: this is another process, perhaps because a
    /// signal handler has forked.
    fn waited(&self) -> bool {
        let mut next = SOON;
        self.shared.completion.wait_for_end(|| {
            if self.is_inherited() {
                return None;
            }
            // A handler may fork between that check and the sleep: the child then
            // does not sleep. (Before Linux 4.14 it sleeps no longer than the wait
            // has taken so far.)
            let most = next;
            next = (2 * next).min(LATER);
            if most > SOON {
                self.shared.check();
            }
            Some(most)
        }) && !self.is_inherited()
    }

    /// Returns a descriptor for an event loop: it polls readable (`POLLIN`) once
    /// the transfer has ended. The caller must not read from it or write to it. The
    /// first call creates it and uses two descriptors (`pipe2(2)`).
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`: no descriptor or memory is available.
    /// `ECHILD`: the parent process runs the transfer. `EBADF`: the host has closed
    /// the descriptor; or the calling thread has a descriptor table of its own
    /// (`unshare(2)`, `CLONE_FILES`), in which the number refers to another file or
    /// to none.
    pub fn fd(&self) -> Result<BorrowedFd<'_>, Errno> {
        if self.is_inherited() {
            return Err(Errno::ECHILD);
        }
        let wake_fd = self
            .shared
            .completion
            .wake_fd(|| self.shared.check_table())?;
        match wake_fd.is_here() {
            true => Ok(wake_fd.as_fd()),
            false => Err(Errno::EBADF),
        }
    }

    /// Calls `callback` at the end, before waiters are woken: on one of the
    /// engine's threads, which it must not block; or immediately on the calling
    /// thread, if the transfer has ended. Callbacks run in the order of their
    /// registration. A child of `fork(2)` that returns from a callback on a thread of the
    /// engine ends with status 1. The same holds for observers, stages and wakers.
    pub fn on_end(&self, callback: impl FnOnce(&Report) + Send + 'static) {
        if self.is_inherited() {
            callback(&self.inherited_outcome().report);
        } else {
            self.shared.completion.on_end(Box::new(callback));
        }
    }

    /// Lets the transfer continue without a handle. Callbacks of
    /// [`Running::on_end`] are still called.
    pub fn detach(mut self) {
        self.released = true;
    }
}

fn whole(taken: Taken<Outcome>) -> Outcome {
    match taken {
        Taken::Whole(outcome) => outcome,
        Taken::Again(report) => Outcome {
            report,
            stranded: None,
        },
    }
}

impl Future for Running {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        if self.is_inherited() {
            return Poll::Ready(self.inherited_outcome());
        }
        match self.shared.completion.poll(context.waker()) {
            Some(taken) => Poll::Ready(whole(taken)),
            None => Poll::Pending,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.released && !self.is_inherited() && !self.shared.completion.has_ended() {
            self.cancel();
        }
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Running").field(&self.status()).finish()
    }
}
