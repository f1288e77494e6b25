//! What the threads of one engine share.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::ends::Ends;
use super::handle::ReactorHandle;
use super::inbox::Inbox;
use super::job::{EngineForJob, Job};
use super::message::Message;
use super::running::EngineForHandle;
use super::slab::Numbers;
use super::workers::Task;
use crate::errno::Errno;
use crate::sys::{Event, Lock, Spawned, Stamp, Thread};
use crate::threads::{self, ThreadPool, Work as _};
use crate::transfer::{Next, Poll, ThreadKind, Turn};

/// How long a step of the main thread's may take, and twice that, before
/// another one takes over.
pub(super) const BLOCKED_AFTER: Duration = Duration::from_millis(20);

/// A station of which there is none before it is needed, and its thread.
pub(super) type Disk = Option<(Arc<ReactorHandle>, Spawned)>;

/// The state of one engine.
pub(super) struct Core {
    /// Of this process's engines, this one.
    pub(super) number: usize,
    main: Arc<ReactorHandle>,
    /// The thread of that one by now; the others have its descriptors, as they
    /// are started by it or by each other.
    thread: Lock<Option<Thread>>,
    begun: Event,
    /// Those that watch over it or have taken over.
    watchdogs: Mutex<Vec<Spawned>>,
    /// For transfers whose steps must all be taken on one thread, and wait now
    /// and then for a disk.
    disk: Mutex<Disk>,
    pool: Arc<ThreadPool<Task>>,
    ends: Arc<Ends>,
    start: Instant,
    numbers: Numbers,
    /// Transfers whose end has not been told.
    active: AtomicUsize,
    stopping: AtomicBool,
    /// The host has closed its descriptors.
    lost: AtomicBool,
    process: Stamp,
}

impl Core {
    pub(super) fn new(workers: usize) -> Result<Core, Errno> {
        static NUMBERS: AtomicUsize = AtomicUsize::new(threads::NO_OWNER + 1);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Ok(Core {
            number,
            main: ReactorHandle::new(ThreadKind::Reactor)?,
            thread: Lock::default(),
            begun: Event::new(),
            watchdogs: Mutex::new(Vec::new()),
            disk: Mutex::new(None),
            pool: ThreadPool::new(number, workers),
            ends: Arc::default(),
            start: Instant::now(),
            numbers: Numbers::default(),
            active: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            process: Stamp::here(),
        })
    }

    /// The one that all transfers come to first.
    pub(super) fn main(&self) -> &Arc<ReactorHandle> {
        &self.main
    }

    /// Called by the main one's thread, first of all.
    pub(super) fn set_thread(&self) {
        if let Some(mut known) = self.thread.lock() {
            *known = Some(Thread::this());
        }
        self.begun.happen();
    }

    /// The main one's thread. It has been started, and this is the first that it
    /// tells. `None` in a child of `fork(2)`, which it does not come to tell.
    pub(super) fn thread(&self) -> Option<Thread> {
        let begun = self.begun.has_happened() || self.begun.wait_in(self.process);
        begun.then(|| *self.thread.lock()?).flatten()
    }

    pub(super) fn watchdogs(&self) -> MutexGuard<'_, Vec<Spawned>> {
        self.watchdogs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What comes there.
    pub(super) fn inbox(&self) -> &Arc<Inbox<Message>> {
        self.main.inbox()
    }

    pub(super) fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The other one, if there is one by now.
    pub(super) fn disk_reactor(&self) -> Option<Arc<ReactorHandle>> {
        self.disk().as_ref().map(|(handle, _)| Arc::clone(handle))
    }

    /// The host has closed the descriptors that wake the engine's threads. The
    /// watch ends the transfers of the sleeping thread; the other threads end
    /// theirs by themselves.
    pub(super) fn end_without_waking(&self) {
        while self.is_active() && !self.is_inherited() {
            self.main.takeover().recheck();
            std::thread::sleep(BLOCKED_AFTER);
        }
    }

    /// Waits for this to happen; not in a child of `fork(2)`.
    pub(super) fn waits_for(&self, event: &Event) -> bool {
        event.wait_in(self.process)
    }

    /// Waits for all threads but the first one, which has ended. A child of
    /// `fork(2)`, which has none, waits for none.
    pub(super) fn join(&self) {
        while !self.is_inherited() {
            // A thread that takes over gets a watch of its own.
            let watchdogs = std::mem::take(&mut *self.watchdogs());
            if watchdogs.is_empty() {
                break;
            }
            for thread in watchdogs {
                thread.join();
            }
        }
        if self.is_inherited() {
            return;
        }
        let disk = self.disk().take();
        if let Some((_, thread)) = disk {
            thread.join();
        }
        self.pool.close();
    }

    /// The threads are the parent's, and not a child's to let go of.
    pub(super) fn forget(&self) {
        // Held at the moment of the fork, it is nobody's any more.
        if let Ok(mut disk) = self.disk.try_lock() {
            std::mem::forget(disk.take());
        }
        if let Ok(mut watchdogs) = self.watchdogs.try_lock() {
            std::mem::forget(std::mem::take(&mut *watchdogs));
        }
    }

    /// What its transfers have, for a child of `fork(2)`.
    pub(super) fn ends(&self) -> &Arc<Ends> {
        &self.ends
    }

    /// It was inherited over `fork(2)`: its threads are the parent's.
    pub(super) fn is_inherited(&self) -> bool {
        !self.process.is_here()
    }

    pub(super) fn next_id(&self) -> u64 {
        self.numbers.take()
    }

    /// Whether the host has closed its descriptors, as the calling thread
    /// sees it: one of the engine's own, or one with the same descriptors.
    pub(super) fn is_closed(&self) -> bool {
        self.lost.load(Ordering::Acquire) || !self.main.poller().is_intact()
    }

    pub(super) fn mark_lost(&self) {
        self.lost.store(true, Ordering::Release);
        self.stop();
    }

    /// Some transfer's end has not been told.
    pub(super) fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire) > 0
    }

    /// Every transfer is to end.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.send_stop();
    }

    fn send_stop(&self) {
        let stations = [Some(Arc::clone(&self.main)), self.disk_reactor()];
        for handle in stations.into_iter().flatten() {
            let _ = handle.inbox().push(Message::Stop);
        }
    }

    /// It shuts down, and nothing is left to do.
    pub(super) fn is_done(&self) -> bool {
        self.is_stopping() && self.active.load(Ordering::Acquire) == 0
    }

    /// Ends it, once nothing is on its way, for which a transfer that is not
    /// asked any more waits.
    pub(super) fn settle(self: &Arc<Self>, mut job: Box<Job>) {
        if self.lost.load(Ordering::Acquire) {
            return job.end_without_close();
        }
        if job.transfer.completions().is_some() {
            // Nothing tells of their end where the bell is gone.
            if self.is_lost() {
                return job.end_without_close();
            }
            job.transfer.quiesce();
        }
        if job.transfer.end_may_block() {
            self.submit(Task::Settle(job));
        } else {
            job.finish();
        }
    }

    /// A step was blocked, and another thread is the reactor by now: it gets the
    /// transfer back, and gives it to the workers from now on.
    pub(super) fn return_late(self: &Arc<Self>, mut job: Box<Job>, next: Next) {
        job.transfer.was_blocked = true;
        match next {
            Next::Step | Next::Elsewhere => {}
            Next::Wait(wait) => {
                job.wait = Some(wait);
                job.release_idle();
            }
            Next::End(turn) => job.ending = Some(turn),
        }
        if let Err(mut job) = self.take_back(job) {
            // That one has given up.
            job.ending
                .get_or_insert(Turn::Failed(None, Some(Errno::ECANCELED)));
            self.settle(job);
        }
    }

    /// Has the workers do it. Where no thread is to be had, here and now.
    pub(super) fn submit(self: &Arc<Self>, work: Task) {
        for work in self.pool.submit(work) {
            if let Some(Task::Piece(job)) = work.work() {
                // Not before the others have had their turn.
                if let Err(job) = self.take_back(job) {
                    job.finish();
                }
            }
        }
    }
}

impl EngineForJob for Core {
    fn clock(&self) -> Poll {
        Poll::since(self.start)
    }

    /// Looked at once a millisecond: a look takes as long as a short step.
    fn is_lost(&self) -> bool {
        if !self.lost.load(Ordering::Acquire) && !self.main.poller().was_here(self.start.elapsed())
        {
            self.mark_lost();
        }
        self.lost.load(Ordering::Acquire)
    }

    fn is_lost_now(&self) -> bool {
        if !self.lost.load(Ordering::Acquire) && !self.main.poller().is_here(self.start.elapsed()) {
            self.mark_lost();
        }
        self.lost.load(Ordering::Acquire)
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    fn job_started(&self) {
        self.active.fetch_add(1, Ordering::AcqRel);
    }

    fn job_ended(&self, id: u64) {
        self.numbers.give_back(id);
        if self.active.fetch_sub(1, Ordering::AcqRel) == 1 && self.is_stopping() {
            self.send_stop();
        }
    }

    fn take_back(&self, job: Box<Job>) -> Result<(), Box<Job>> {
        match self.inbox().push(Message::Run(job)) {
            Err(Message::Run(job)) => Err(job),
            _ => Ok(()),
        }
    }
}

impl EngineForHandle for Core {
    fn process(&self) -> Stamp {
        self.process
    }

    /// Asked at each start, since `unshare(2)` may come at any time, and the files of
    /// another table would be read, written and closed.
    fn has_other_descriptors(&self) -> bool {
        let other = |thread: Thread| thread.shares_descriptors() == Some(false);
        self.thread().is_some_and(other)
    }

    fn recheck(&self, id: u64) {
        if self.inbox().push(Message::Recheck(id)).is_err() {
            // An engine that has shut down has ended it already.
            self.main.takeover().recheck();
        }
    }

    fn check(&self) {
        if !self.inbox().eventfd().is_still_open() {
            self.main.takeover().recheck();
        }
    }

    /// Not where the child has closed all descriptors, since the numbers are its own
    /// then; nor where it shares them with its parent (`clone(2)`, `CLONE_FILES`).
    fn close_inherited(&self) {
        let known = self.thread.try_lock().and_then(|known| *known);
        let Some(thread) = known else {
            return;
        };
        let shared = thread.shares_descriptors() == Some(true);
        if self.is_inherited() && !shared && self.inbox().eventfd().is_here() {
            self.ends.close();
        }
    }
}
