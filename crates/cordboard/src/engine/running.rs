//! The handle of one transfer that runs on an engine.

use std::future::Future;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use super::completion::{Completion, Ending, Taken};
use super::status::{Live, Status};
use crate::errno::Errno;
use crate::report::{Outcome, Report};
use crate::sys::Stamp;

impl Ending for Outcome {
    type Report = Report;

    fn report(&self) -> &Report {
        &self.report
    }
}

/// What a handle asks of the engine that runs its transfer.
pub(super) trait EngineForHandle: Send + Sync {
    /// The process that its threads belong to.
    fn process(&self) -> Stamp;

    /// Numbers of descriptors refer to other files in the calling thread than in
    /// the engine's.
    fn has_other_descriptors(&self) -> bool;

    /// Has this transfer looked at again: it was cancelled.
    fn recheck(&self, id: u64);

    /// Has the engine find out whether the host has closed its descriptors: the
    /// thread that sleeps on them does so within a minute only.
    fn check(&self);

    /// In a child of `fork(2)`: closes what the child has inherited.
    fn close_inherited(&self);
}

/// What a transfer on an engine and its handle have in common.
pub(super) struct Shared {
    pub(super) id: u64,
    /// The process that it runs in.
    process: Stamp,
    pub(super) live: Live,
    pub(super) completion: Completion<Outcome>,
    engine: Weak<dyn EngineForHandle>,
    /// When the engine's descriptors were last checked through this handle, in
    /// milliseconds since the start.
    checked: AtomicU64,
}

/// How long a thread waits for an end before it checks that the engine's
/// descriptors are still its own.
const SOON: Duration = Duration::from_millis(20);
/// The longest such time: it doubles with each check.
const LATER: Duration = Duration::from_secs(60);

impl Shared {
    pub(super) fn new(
        id: u64,
        live: Live,
        engine: &Arc<impl EngineForHandle + 'static>,
    ) -> Arc<Shared> {
        let weak = Arc::downgrade(engine);
        Arc::new(Shared {
            id,
            // Not the one that this is in by now: a signal's handler may have
            // forked in the midst of the start.
            process: engine.process(),
            live,
            completion: Completion::new(),
            engine: weak,
            checked: AtomicU64::new(0),
        })
    }

    /// Whether the engine has the descriptors that the calling thread opens.
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

    /// The same, if the last time is long ago.
    fn check_now_and_then(&self, elapsed: Duration) {
        let now = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        let before = self.checked.load(Ordering::Relaxed);
        if now.saturating_sub(before) >= SOON.as_millis() as u64 {
            self.checked.store(now, Ordering::Relaxed);
            self.check();
        }
    }

    /// The counts, for an outcome that no thread reports.
    pub(super) fn lost(&self, errno: Errno) -> Outcome {
        let status = self.live.snapshot(true);
        let mut report = Report::nothing(None, Some(errno));
        report.read = status.read;
        report.written = status.written;
        report.stranded = status.in_transit();
        report.elapsed = status.elapsed;
        Outcome {
            report,
            stranded: None,
        }
    }
}

/// One transfer that runs on an [`Engine`](super::Engine): to be waited for, as
/// a [`Future`] by any executor or by [`Running::wait`], polled by descriptor,
/// looked at, cancelled, or [let go](Running::detach).
///
/// Dropped, it cancels the transfer: what the sink takes at once of what had
/// been read is still written, a seekable source is rewound, and the rest is
/// lost with the outcome. [`Running::cancel`] followed by [`Running::wait`]
/// loses nothing.
///
/// It belongs to the process that started it. In a child of `fork(2)` the
/// transfer does not run (it goes on in the parent), and every way of waiting
/// says so at once: `ECHILD`, with the counts at the moment of the fork. The
/// child inherits the transfer's descriptors. While it has them, a reader in
/// another process does not see the end. It closes those of pipes and sockets
/// when it first starts a transfer on an engine or uses a handle or an engine of
/// its parent's, and the others when it executes a program.
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
    /// Its end is not the transfer's.
    released: bool,
}

impl Running {
    pub(super) fn new(shared: Arc<Shared>) -> Running {
        Running {
            shared,
            released: false,
        }
    }

    /// It is not this process that runs the transfer.
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

    /// The transfer at this moment.
    pub fn status(&self) -> Status {
        let inherited_outcome = self.is_inherited();
        if inherited_outcome {
            self.close_inherited();
        }
        let ended = inherited_outcome || self.shared.completion.has_ended();
        let status = self.shared.live.snapshot(ended);
        if !ended {
            self.shared.check_now_and_then(status.elapsed);
        }
        status
    }

    /// Ends it with [`Ended::Cancelled`](crate::Ended::Cancelled), soon: a
    /// piece of a file copy that is under way is finished first. Returns at
    /// once; [`wait`](Running::wait) and the other ways to wait give the
    /// outcome. It is [`Ended::Eof`](crate::Ended::Eof) if the transfer found
    /// the end of its source before it was cancelled.
    ///
    /// A system call that blocks and cannot be interrupted returns first, since
    /// the counts are exact only then. The same holds for
    /// [`Request::idle`](crate::Request::idle). Such calls are: reads and writes
    /// of a file system whose server does not answer (NFS, FUSE); calls on a
    /// pipe into which another process splices a silent socket or a slow file,
    /// which holds the pipe's lock (an empty source is not read); a write of up
    /// to 4096 bytes to a blocking serial line that accepts only a part of it.
    /// Other transfers go on meanwhile.
    pub fn cancel(&self) {
        if !self.is_inherited()
            && self.shared.completion.cancel()
            // An engine that is gone has ended it already.
            && let Some(engine) = self.shared.engine.upgrade()
        {
            engine.recheck(self.shared.id);
        }
    }

    /// The outcome, once, if it has ended.
    pub fn try_wait(&self) -> Option<Outcome> {
        if self.is_inherited() {
            return Some(self.inherited_outcome());
        }
        let outcome = self.shared.completion.try_take();
        if outcome.is_none() {
            // It may be asked for in a loop.
            self.status();
        }
        outcome
    }

    /// Waits for its end. What [`Running::try_wait`] has given away comes
    /// without the stranded bytes.
    pub fn wait(mut self) -> Outcome {
        self.released = true;
        let ended = self.waited();
        let taken = ended.then(|| self.shared.completion.taken()).flatten();
        taken.map_or_else(|| self.inherited_outcome(), whole)
    }

    /// Waits for its end and leaves the outcome where it is, for
    /// [`Running::try_wait`]: for any number of threads that share a handle.
    /// It needs no descriptor, which [`Running::fd`] does.
    pub fn wait_for_end(&self) {
        self.waited();
    }

    /// Waits for its end. `false`: this is another process, perhaps since a
    /// `fork(2)` of a signal's handler.
    fn waited(&self) -> bool {
        let mut next = SOON;
        self.shared.completion.wait_for_end(|| {
            if self.is_inherited() {
                return None;
            }
            // A handler may fork between that look and the sleep: the child then
            // does not sleep. (Before Linux 4.14 it sleeps no longer than the
            // wait has taken so far.)
            let most = next;
            next = (2 * next).min(LATER);
            if most > SOON {
                self.shared.check();
            }
            Some(most)
        }) && !self.is_inherited()
    }

    /// A descriptor that polls readable (`POLLIN`) once it has ended, and stays
    /// so: for an event loop. Read nothing from it, and write nothing to it. It
    /// is made at the first call, and takes two descriptors (`pipe2(2)`).
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`: no descriptor or memory is available.
    /// `ECHILD`: it is the parent's. `EBADF`: the host has closed it; or it is
    /// another file, or none, in this thread, which has descriptors of its own
    /// (`unshare(2)`, `CLONE_FILES`).
    pub fn fd(&self) -> Result<BorrowedFd<'_>, Errno> {
        if self.is_inherited() {
            return Err(Errno::ECHILD);
        }
        let eventfd = self
            .shared
            .completion
            .eventfd(|| self.shared.check_table())?;
        match eventfd.is_here() {
            true => Ok(eventfd.as_fd()),
            false => Err(Errno::EBADF),
        }
    }

    /// Calls this at the end, before waiters are woken: on one of the engine's
    /// threads, which it must not block; or at once on the calling thread, if
    /// the transfer has ended. Several are called in their order.
    pub fn on_end(&self, callback: impl FnOnce(&Report) + Send + 'static) {
        if self.is_inherited() {
            callback(&self.inherited_outcome().report);
        } else {
            self.shared.completion.on_end(Box::new(callback));
        }
    }

    /// Lets it run on without a handle. What was registered with
    /// [`Running::on_end`] is still called.
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
