//! The state that the threads of one engine share.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::handle::ReactorHandle;
use super::home::MAIN;
use super::inbox::Inbox;
use super::inheritable::Inheritable;
use super::job::{EngineForJob, Job};
use super::message::Message;
use super::numbers::Numbers;
use super::running::EngineForHandle;
use super::workers::Task;
use crate::errno::Errno;
use crate::sys::{self, Event, ServedBy, Spawned, Stamp, Thread};
use crate::threads::{self, ThreadPool, Work as _};
use crate::transfer::{Next, Poll, ThreadKind, Turn};

/// The interval at which the watchdog checks the main thread: a step that lasts
/// longer than one to two intervals may be blocked.
pub(super) const BLOCKED_AFTER: Duration = Duration::from_millis(20);

/// The number of the reactor for direct copies.
pub(super) const DISK: usize = MAIN + 1;

/// The reactor for direct copies and its thread, if it has been started.
#[derive(Default)]
pub(super) struct Disk {
    /// Stays after the thread was joined: a late `Stop` still reaches it.
    pub(super) handle: Option<Arc<ReactorHandle>>,
    pub(super) thread: Option<Spawned>,
}

/// The state of one engine.
pub(super) struct Core {
    /// The number of this engine in this process.
    pub(super) number: usize,
    main: Arc<ReactorHandle>,
    /// The current thread of the main reactor. The engine's other threads share its
    /// descriptor table, since it or one of them starts them.
    served_by: ServedBy,
    /// Watchdog threads, including those that have taken over, and threads for direct
    /// copies that have given up.
    watchdogs: Mutex<Vec<Spawned>>,
    /// For transfers whose steps must all run on one thread, and may wait for a
    /// disk.
    disk: Mutex<Disk>,
    pool: Arc<ThreadPool<Task>>,
    inheritable: Arc<Inheritable>,
    numbers: Numbers,
    /// Transfers whose end has not been reported.
    ///
    /// This and `stopping` are sequentially consistent. With a weaker order, the
    /// thread that ends the last transfer may not see that the engine stops, while
    /// the reactor that has been told to stop still sees that transfer.
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
            main: ReactorHandle::new(MAIN, ThreadKind::Reactor)?,
            served_by: ServedBy::new(),
            watchdogs: Mutex::new(Vec::new()),
            disk: Mutex::default(),
            pool: ThreadPool::new(number, workers),
            inheritable: Arc::default(),
            numbers: Numbers::default(),
            active: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            process: Stamp::here(),
        })
    }

    /// Returns the reactor that receives all new transfers.
    pub(super) fn main(&self) -> &Arc<ReactorHandle> {
        &self.main
    }

    /// Registers the calling thread as the main reactor's. The first call of that
    /// thread.
    pub(super) fn set_thread(&self) {
        self.served_by.begin();
    }

    /// Waits until the main reactor's thread, which has been started, has
    /// registered itself, and returns it. `None` in a child of `fork(2)`, which
    /// does not have that thread.
    pub(super) fn thread(&self) -> Option<Thread> {
        self.served_by.thread()
    }

    fn watchdogs(&self) -> MutexGuard<'_, Vec<Spawned>> {
        self.watchdogs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the main reactor's inbox.
    pub(super) fn inbox(&self) -> &Arc<Inbox<Message>> {
        self.main.inbox()
    }

    pub(super) fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the reactor for direct copies, if it has been started.
    pub(super) fn disk_reactor(&self) -> Option<Arc<ReactorHandle>> {
        self.disk().handle.clone()
    }

    /// Returns the reactor of this number.
    fn reactor(&self, number: usize) -> Arc<ReactorHandle> {
        let disk = (number == DISK).then(|| self.disk_reactor()).flatten();
        disk.unwrap_or_else(|| Arc::clone(&self.main))
    }

    /// Ends all transfers after the host has closed the descriptors that wake the
    /// engine's threads. The watchdog ends the transfers of the sleeping thread;
    /// the other threads notice on their own.
    pub(super) fn end_without_waking(&self) {
        while self.is_active() && !self.is_inherited() {
            self.main.takeover().recheck();
            std::thread::sleep(BLOCKED_AFTER);
        }
    }

    /// Waits for the event; not in a child of `fork(2)`.
    pub(super) fn waits_for(&self, event: &Event) -> bool {
        event.wait_in(self.process)
    }

    /// Waits for all threads but the first, which has ended. A child of `fork(2)`
    /// has none and returns.
    pub(super) fn join(&self) {
        while !self.is_inherited() {
            // A watchdog that takes over starts another watchdog.
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
        // A worker that has ended the last transfer may still have to send `Stop`.
        let disk = self.disk().thread.take();
        if let Some(thread) = disk {
            thread.join();
        }
        self.pool.close();
    }

    /// Forgets the handles of the threads: a child of `fork(2)` must not detach
    /// threads of its parent.
    pub(super) fn forget(&self) {
        // A lock that was held at the fork is never released.
        if let Ok(mut disk) = self.disk.try_lock() {
            std::mem::forget(std::mem::take(&mut *disk));
        }
        if let Ok(mut watchdogs) = self.watchdogs.try_lock() {
            std::mem::forget(std::mem::take(&mut *watchdogs));
        }
    }

    /// Returns the descriptors that a child of `fork(2)` is to close.
    pub(super) fn inheritable(&self) -> &Arc<Inheritable> {
        &self.inheritable
    }

    /// Returns whether this is a child of the process that created the engine: the
    /// threads are the parent's.
    pub(super) fn is_inherited(&self) -> bool {
        !self.process.is_here()
    }

    pub(super) fn next_id(&self) -> u64 {
        self.numbers.take()
    }

    /// Returns whether the host has closed the engine's descriptors. The calling
    /// thread must share the engine's descriptor table.
    pub(super) fn is_closed(&self) -> bool {
        self.lost.load(Ordering::Acquire) || !self.main.poller().is_intact()
    }

    pub(super) fn mark_lost(&self) {
        self.lost.store(true, Ordering::Release);
        self.stop();
    }

    /// Returns whether any transfer's end has not been reported.
    pub(super) fn is_active(&self) -> bool {
        self.active.load(Ordering::SeqCst) > 0
    }

    /// Makes direct copies use another reactor from now on, or the main one: the
    /// thread of this one has given up. `join` still waits for that thread.
    pub(super) fn retire_disk_reactor(&self, given_up: &Arc<ReactorHandle>) {
        let mut disk = self.disk();
        let is_it = |handle: &mut Arc<ReactorHandle>| Arc::ptr_eq(handle, given_up);
        let thread = match disk.handle.take_if(is_it) {
            Some(_) => disk.thread.take(),
            None => None,
        };
        drop(disk);
        self.keep(thread);
    }

    /// Keeps a thread for `join`, and forgets those that have ended.
    pub(super) fn keep(&self, thread: Option<Spawned>) {
        let mut watchdogs = self.watchdogs();
        watchdogs.retain(|thread| !thread.is_finished());
        watchdogs.extend(thread);
    }

    /// Requests the end of all transfers.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.send_stop();
    }

    fn send_stop(&self) {
        let reactors = [Some(Arc::clone(&self.main)), self.disk_reactor()];
        for handle in reactors.into_iter().flatten() {
            let _ = handle.inbox().push(Message::Stop);
        }
    }

    /// Returns whether the engine shuts down and no transfer is left.
    pub(super) fn is_done(&self) -> bool {
        self.is_stopping() && !self.is_active()
    }

    /// Settles a transfer, after the operations in flight have completed.
    pub(super) fn settle(self: &Arc<Self>, mut job: Box<Job>) {
        if self.lost.load(Ordering::Acquire) {
            return job.end_without_close();
        }
        if job.has_completions() {
            // With the wake descriptor closed, nothing reports their completion.
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

    /// Returns a transfer whose step was blocked to the thread that has taken over.
    /// Workers take its steps from now on.
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
        if let Err(mut job) = self.send_to_reactor(job) {
            // That thread has given up.
            job.ending
                .get_or_insert(Turn::Failed(None, Some(Errno::ECANCELED)));
            self.settle(job);
        }
    }

    /// Submits work to the workers; runs it on this thread if no worker is
    /// available.
    pub(super) fn submit(self: &Arc<Self>, work: Task) {
        self.pool.submit(work, |work| {
            if let Some(Task::Piece(job)) = work.work_at_once() {
                // After the other transfers have had their turn.
                if let Err(job) = self.send_to_reactor(job) {
                    job.finish();
                }
            }
        });
    }
}

impl EngineForJob for Core {
    fn clock(&self) -> Poll {
        Poll::new()
    }

    /// Checks at most once a millisecond: a check takes as long as a short step.
    fn is_lost(&self) -> bool {
        if !self.lost.load(Ordering::Acquire) && !self.main.poller().was_open(sys::monotonic()) {
            self.mark_lost();
        }
        self.lost.load(Ordering::Acquire)
    }

    fn is_lost_now(&self) -> bool {
        if !self.lost.load(Ordering::Acquire) && !self.main.poller().is_open(sys::monotonic()) {
            self.mark_lost();
        }
        self.lost.load(Ordering::Acquire)
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    fn job_started(&self) {
        self.active.fetch_add(1, Ordering::SeqCst);
    }

    fn job_ended(&self, id: u64) {
        self.numbers.give_back(id);
        if self.active.fetch_sub(1, Ordering::SeqCst) == 1 && self.is_stopping() {
            self.send_stop();
        }
    }

    fn begin_wait(&self) -> bool {
        self.pool.begin_wait()
    }

    fn end_wait(&self) {
        self.pool.end_wait();
    }

    fn send_to_reactor(&self, job: Box<Job>) -> Result<(), Box<Job>> {
        let home = self.reactor(job.poller.reactor);
        match home.inbox().push(Message::Run(job)) {
            Err(Message::Run(job)) => Err(job),
            _ => Ok(()),
        }
    }
}

impl EngineForHandle for Core {
    fn process(&self) -> Stamp {
        self.process
    }

    /// Called at each start: a thread may call `unshare(2)` at any time, and the
    /// engine would then read, write and close files of another descriptor table.
    fn has_other_descriptors(&self) -> bool {
        self.served_by.has_other_descriptors()
    }

    fn recheck(&self, id: u64, home: usize) {
        let home = self.reactor(home);
        if home.inbox().push(Message::Recheck(id)).is_err() {
            // An engine that has shut down has already ended the transfer.
            self.main.takeover().recheck();
        }
    }

    fn check(&self) {
        self.inbox().nudge();
        if !self.inbox().wake_fd().is_still_open() {
            self.main.takeover().recheck();
        }
    }

    /// Does nothing if the child has closed all descriptors, since it may have
    /// reused the numbers, or if it shares its descriptors with the parent
    /// (`clone(2)`, `CLONE_FILES`).
    fn close_inherited(&self) {
        let Some(thread) = self.served_by.known() else {
            return;
        };
        let shared = thread.shares_descriptors() == Some(true);
        if self.is_inherited() && !shared && self.inbox().wake_fd().is_here() {
            self.inheritable.close();
        }
    }
}
