//! What the threads of one engine share.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::ends::Ends;
use super::inbox::Inbox;
use super::job::Job;
use super::message::Message;
use super::reactor::Reactor;
use super::seat::Left;
use super::station::Station;
use super::workers::Task;
use crate::errno::Errno;
use crate::guarded::guarded;
use crate::sys::{Event, Lock, Spawned, Stamp, Thread};
use crate::threads::{self, ThreadPool, Work as _};
use crate::transfer::{Home, Next, Poll, Turn};

/// How long a step of the main thread's may take, and twice that, before
/// another one takes over.
const HELD_UP: Duration = Duration::from_millis(20);

/// A station of which there is none before it is needed, and its thread.
type Disk = Option<(Arc<Station>, Spawned)>;

/// The state of one engine.
pub(super) struct Core {
    /// Of this process's engines, this one.
    pub(super) number: usize,
    main: Arc<Station>,
    /// The thread of that one by now; the others have its descriptors, as they
    /// are started by it or by each other.
    thread: Lock<Option<Thread>>,
    begun: Event,
    /// Those that watch over it or have taken over.
    watches: Mutex<Vec<Spawned>>,
    /// For transfers whose steps must all be taken on one thread, and wait now
    /// and then for a disk.
    disk: Mutex<Disk>,
    pool: Arc<ThreadPool<Task>>,
    ends: Ends,
    start: Instant,
    ids: AtomicU64,
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
            main: Station::new(Home::Reactor)?,
            thread: Lock::default(),
            begun: Event::new(),
            watches: Mutex::new(Vec::new()),
            disk: Mutex::new(None),
            pool: ThreadPool::new(number, workers),
            ends: Ends::default(),
            start: Instant::now(),
            ids: AtomicU64::new(0),
            active: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            process: Stamp::here(),
        })
    }

    /// The one that all transfers come to first.
    pub(super) fn main(&self) -> &Arc<Station> {
        &self.main
    }

    /// Called by the main one's thread, first of all.
    pub(super) fn begins(&self) {
        if let Some(mut known) = self.thread.lock() {
            *known = Some(Thread::this());
        }
        self.begun.happen();
    }

    /// The main one's thread. It has been started, and this is the first that it
    /// tells. `None` in a child of `fork(2)`, which it does not come to tell.
    fn thread(&self) -> Option<Thread> {
        let begun = self.begun.has_happened() || self.begun.wait_in(self.process);
        begun.then(|| *self.thread.lock()?).flatten()
    }

    /// Starts the watch, which takes over whenever the main thread is blocked in
    /// a step, or sleeps and cannot be woken any more. If no thread is available,
    /// there is no watch.
    pub(super) fn has_it_watched(self: &Arc<Self>) {
        let core = Arc::clone(self);
        let body = move || {
            let held_up = || core.thread().is_some_and(|thread| thread.waits());
            let gone = || !core.main.inbox().bell().is_still_open();
            match core.main.seat().watch(HELD_UP, held_up, gone) {
                Some(Left::HeldUp(reactor)) => {
                    threads::rename(c"cordboard");
                    core.begins();
                    reactor.run();
                }
                Some(Left::Gone(reactor)) => reactor.give_up(Errno::EBADF),
                None => {}
            }
        };
        if let Ok(thread) = threads::start(c"cordboard-watch", self.number, body) {
            let mut watches = self.watches();
            watches.retain(|thread| !thread.is_finished());
            watches.push(thread);
        }
    }

    fn watches(&self) -> MutexGuard<'_, Vec<Spawned>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Numbers of descriptors mean other files to the calling thread than to
    /// the engine's. Asked at each start, since `unshare(2)` may come at any
    /// time, and the files of somebody else would be read, written and closed.
    pub(super) fn has_other_descriptors(&self) -> bool {
        let other = |thread: Thread| thread.shares_descriptors() == Some(false);
        self.thread().is_some_and(other)
    }

    /// What comes there.
    pub(super) fn inbox(&self) -> &Arc<Inbox<Message>> {
        self.main.inbox()
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The other one, if there is one by now.
    pub(super) fn disk_station(&self) -> Option<Arc<Station>> {
        self.disk().as_ref().map(|(station, _)| Arc::clone(station))
    }

    /// The other one; `None` where no descriptors or no thread can be had.
    pub(super) fn open_disk_station(self: &Arc<Self>) -> Option<Arc<Station>> {
        let mut disk = self.disk();
        if disk.is_none() {
            let station = Station::new(Home::Disk).ok()?;
            let reactor = Reactor::new(Arc::clone(self), Arc::clone(&station)).ok()?;
            let thread =
                threads::start(c"cordboard-disk", self.number, move || reactor.run()).ok()?;
            *disk = Some((station, thread));
        }
        disk.as_ref().map(|(station, _)| Arc::clone(station))
    }

    /// The host has closed the descriptors that wake the engine's threads. The
    /// watch ends the transfers of the sleeping thread; the other threads end
    /// theirs by themselves.
    pub(super) fn end_without_waking(&self) {
        while self.is_active() && !self.is_inherited() {
            self.main.seat().doubt();
            std::thread::sleep(HELD_UP);
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
            let watches = std::mem::take(&mut *self.watches());
            if watches.is_empty() {
                break;
            }
            for thread in watches {
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
        if let Ok(mut watches) = self.watches.try_lock() {
            std::mem::forget(std::mem::take(&mut *watches));
        }
    }

    /// What its transfers have, for a child of `fork(2)`.
    pub(super) fn ends(&self) -> &Ends {
        &self.ends
    }

    /// In a child of `fork(2)`: closes what its transfers have. Not where the
    /// child has closed all descriptors, since the numbers are its own then; nor
    /// where it shares them with its parent (`clone(2)`, `CLONE_FILES`).
    pub(super) fn close_inherited(&self) {
        let known = self.thread.try_lock().and_then(|known| *known);
        let Some(thread) = known else {
            return;
        };
        let shared = thread.shares_descriptors() == Some(true);
        if self.is_inherited() && !shared && self.inbox().bell().is_here() {
            self.ends.close();
        }
    }

    /// Whose its threads are.
    pub(super) fn process(&self) -> Stamp {
        self.process
    }

    /// It was inherited over `fork(2)`: its threads are the parent's.
    pub(super) fn is_inherited(&self) -> bool {
        !self.process.is_here()
    }

    /// The time as all its transfers count it.
    pub(super) fn clock(&self) -> Poll {
        Poll::since(self.start)
    }

    pub(super) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn one_more(&self) {
        self.active.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn one_less(&self) {
        if self.active.fetch_sub(1, Ordering::AcqRel) == 1 && self.is_stopping() {
            self.tell_of_the_stop();
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Whether the host has closed its descriptors, as the calling thread
    /// sees it: one of the engine's own, or one with the same descriptors.
    pub(super) fn is_closed(&self) -> bool {
        self.lost.load(Ordering::Acquire) || !self.main.is_intact()
    }

    /// The same, asked by the engine's own threads only, and so for all of
    /// them: from then on transfers end, and what they have is not touched. Looked
    /// at once a millisecond: a look takes as long as a short step.
    pub(super) fn is_lost(&self) -> bool {
        if !self.lost.load(Ordering::Acquire) && !self.main.was_here(self.start.elapsed()) {
            self.lose();
        }
        self.lost.load(Ordering::Acquire)
    }

    /// The same, looked at now: before descriptors are closed by number.
    pub(super) fn is_lost_by_now(&self) -> bool {
        if !self.lost.load(Ordering::Acquire) && !self.main.is_here(self.start.elapsed()) {
            self.lose();
        }
        self.lost.load(Ordering::Acquire)
    }

    pub(super) fn lose(&self) {
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
        self.tell_of_the_stop();
    }

    fn tell_of_the_stop(&self) {
        let stations = [Some(Arc::clone(&self.main)), self.disk_station()];
        for station in stations.into_iter().flatten() {
            let _ = station.inbox().push(Message::Stop);
        }
    }

    /// It shuts down, and nothing is left to do.
    pub(super) fn is_done(&self) -> bool {
        self.is_stopping() && self.active.load(Ordering::Acquire) == 0
    }

    /// Goes on where the transfer is: after a wait, or with a step.
    pub(super) fn advance(&self, job: &mut Job) -> Next {
        let mut clock = self.clock();
        let cancelled = job.is_cancelled();
        let awake = std::mem::take(&mut job.awake);
        let (course, transfer) = (&mut job.course, &mut job.transfer);
        // A caller's observer may panic; the others' transfers go on.
        let looked = &mut job.looked;
        let next = guarded(|| match job.need.take() {
            Some(need) => {
                *looked = awake.ready;
                course.resume(transfer, need, awake, &mut clock)
            }
            None => {
                let looked = std::mem::take(looked) || cancelled;
                let look = (!looked).then(|| course.look_first(transfer, &mut clock));
                (look.flatten()).unwrap_or_else(|| course.step(transfer, cancelled, &mut clock))
            }
        });
        job.ticket.shared.live.show(&job.transfer);
        next.unwrap_or(Next::End(Turn::Failed(None, Some(Errno::ECANCELED))))
    }

    /// Has it give up what it can do without, which is closed by number.
    pub(super) fn rest(&self, job: &mut Job) {
        if !self.is_lost() {
            job.transfer.rest();
        }
    }

    /// Ends it, once nothing is on its way, for which a transfer that is not
    /// asked any more waits.
    pub(super) fn settle(self: &Arc<Self>, mut job: Box<Job>) {
        if self.lost.load(Ordering::Acquire) {
            return job.let_go();
        }
        if job.transfer.completions().is_some() {
            // Nothing tells of their end where the bell is gone.
            if self.is_lost() {
                return job.let_go();
            }
            job.transfer.quiesce();
        }
        if job.transfer.waits_at_the_end() {
            self.submit(Task::Settle(job));
        } else {
            job.finish();
        }
    }

    /// A step was blocked, and another thread is the reactor by now: it gets the
    /// transfer back, and gives it to the workers from now on.
    pub(super) fn late(self: &Arc<Self>, mut job: Box<Job>, next: Next) {
        job.transfer.was_held_up = true;
        match next {
            Next::Step | Next::Elsewhere => {}
            Next::Wait(need) => {
                job.need = Some(need);
                self.rest(&mut job);
            }
            Next::End(turn) => job.ending = Some(turn),
        }
        if let Err(Message::Run(mut job)) = self.inbox().push(Message::Run(job)) {
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
                if let Err(Message::Run(job)) = self.inbox().push(Message::Run(job)) {
                    job.finish();
                }
            }
        }
    }
}
