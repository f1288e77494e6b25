//! A thread that waits for many transfers, and takes the steps of those that
//! are at home there: a step each, in turn. An engine has one for all that it
//! runs, which takes the steps of those that never wait inside the kernel; and
//! one for direct copies, which keep to one thread and do wait, at their heads
//! and tails, for a disk.

use std::collections::{HashMap, VecDeque};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::Event;

use super::core::Core;
use super::job::{Job, Role};
use super::message::Message;
use super::station::{BELL, Station};
use super::timers::Timers;
use super::workers::{Work, glance};
use crate::endpoint::Side;
use crate::errno::Errno;
use crate::sys;
use crate::transfer::{self, Awake, Clock, Need, Next, Place, Turn, What};

/// How long a thread that sleeps with transfers under way goes without a look
/// at its own descriptors.
const LONGEST: Duration = Duration::from_secs(60);
/// How long it takes them for its own without a look.
const FRESH: Duration = Duration::from_millis(1);
/// Events that are fetched at a time.
const EVENTS: usize = 256;

/// The reactor's own state, which nobody else sees.
pub(super) struct Reactor {
    core: Arc<Core>,
    station: Arc<Station>,
    /// The transfers that are here: asleep, or in the queue.
    jobs: HashMap<u64, Box<Job>>,
    queue: VecDeque<u64>,
    timers: Timers,
    messages: Vec<Message>,
    /// When it last found its descriptors to be its own.
    looked: Duration,
}

impl Reactor {
    pub(super) fn new(core: Arc<Core>, station: Arc<Station>) -> Result<Reactor, Errno> {
        // A filter may allow all else: better told here than found out there.
        fetch(
            station.epoll(),
            &mut [MaybeUninit::uninit()],
            Some(Duration::ZERO),
        )?;
        Ok(Reactor {
            core,
            station,
            jobs: HashMap::new(),
            queue: VecDeque::new(),
            timers: Timers::default(),
            messages: Vec::new(),
            looked: Duration::ZERO,
        })
    }

    /// Until the engine has shut down.
    pub(super) fn run(mut self) {
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];
        while !self.core.is_done() {
            let nothing_new = self.read_messages();
            if self.station.place == Place::Disk {
                sys::keep_an_arena(!self.jobs.is_empty());
            }
            self.ring_alarms();
            // Those that are in the queue now; what they put there waits.
            for _ in 0..self.queue.len() {
                if let Some(id) = self.queue.pop_front() {
                    self.turn(id);
                }
            }
            let now = self.core.clock().now();
            let timeout = if !nothing_new || !self.queue.is_empty() {
                Some(Duration::ZERO)
            } else {
                let alarm = self.timers.next().map(|at| at.saturating_sub(now));
                // Where the host closes the bell nothing else would wake it.
                let look = self.core.is_active().then_some(LONGEST);
                alarm.into_iter().chain(look).min()
            };
            if let Err(errno) = self.wait(timeout, &mut events) {
                return self.give_up(errno);
            }
        }
    }

    /// True if there were none.
    fn read_messages(&mut self) -> bool {
        let mut messages = std::mem::take(&mut self.messages);
        self.station.inbox().take(&mut messages);
        let none = messages.is_empty();
        for message in messages.drain(..) {
            match message {
                Message::Run(job) => self.admit(job),
                Message::Look(id) => self.look(id),
                Message::Stop => {
                    let all: Vec<u64> = self.jobs.keys().copied().collect();
                    all.into_iter().for_each(|id| self.wake(id));
                }
            }
        }
        self.messages = messages;
        none
    }

    fn look(&mut self, id: u64) {
        if self.jobs.contains_key(&id) {
            self.wake(id);
        } else if self.station.place == Place::Reactor
            && let Some(disk) = self.core.disk_station()
        {
            let _ = disk.inbox().push(Message::Look(id));
        }
    }

    fn admit(&mut self, mut job: Box<Job>) {
        job.transfer.place = self.station.place;
        job.settle_at(&self.station);
        match job.need {
            Some(need) => self.park(job, need),
            None => self.enqueue(job),
        }
    }

    fn enqueue(&mut self, mut job: Box<Job>) {
        job.queued = true;
        self.queue.push_back(job.id());
        self.jobs.insert(job.id(), job);
    }

    /// Not to sleep on, for a reason that the transfer finds out.
    fn wake(&mut self, id: u64) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.awake.woken = true;
            self.rouse(id);
        }
    }

    /// Into the queue, if it is not there.
    fn rouse(&mut self, id: u64) {
        if let Some(job) = self.jobs.get_mut(&id)
            && !job.queued
        {
            job.queued = true;
            self.queue.push_back(id);
        }
    }

    fn ring_alarms(&mut self) {
        if self.timers.next().is_none() {
            return;
        }
        let now = self.core.clock().now();
        while let Some((entry, id)) = self.timers.pop(now) {
            if let Some(job) = self.jobs.get_mut(&id)
                && self.timers.is_due(id, &mut job.alarm, entry)
            {
                self.rouse(id);
            }
        }
    }

    /// One transfer's turn: what its wait has come to, and one step.
    fn turn(&mut self, id: u64) {
        let Some(mut job) = self.jobs.remove(&id) else {
            return;
        };
        job.queued = false;
        self.timers.arm(id, &mut job.alarm, None);
        if job.ending.is_some() {
            return self.end(job);
        }
        loop {
            let steps = job.need.is_none();
            let home = job.transfer.home();
            // What the kernel does for a transfer is told to one thread only.
            let movable = job.transfer.completions().is_none();
            if steps && movable {
                match self.send_home(job, home) {
                    Some(here) => job = here,
                    None => return,
                }
            }
            match self.core.advance(&mut job) {
                Next::Step if steps => return self.enqueue(job),
                Next::Step => {}
                Next::Wait(need) => return self.park(job, need),
                Next::Elsewhere => {}
                Next::End(turn) => {
                    job.ending = Some(turn);
                    return self.end(job);
                }
            }
        }
    }

    /// To the thread that takes its steps. Comes back where that is this one,
    /// or no other can be had.
    fn send_home(&mut self, mut job: Box<Job>, home: Place) -> Option<Box<Job>> {
        let other = match home {
            Place::Worker | Place::Anywhere => {
                self.timers.forget(job.id(), &mut job.alarm);
                self.core.submit(Work::Piece(job));
                return None;
            }
            _ if home == self.station.place => None,
            Place::Disk => self.core.open_disk_station(),
            Place::Reactor => Some(Arc::clone(self.core.main())),
        };
        let Some(station) = other else {
            job.transfer.place = home;
            return Some(job);
        };
        self.timers.forget(job.id(), &mut job.alarm);
        job.settle_at(&station);
        let _ = station.inbox().push(Message::Run(job));
        None
    }

    /// Puts a transfer to sleep until what it needs is there.
    fn park(&mut self, mut job: Box<Job>, need: Need) {
        job.need = Some(need);
        // A blocking descriptor is polled before each use, ready or not.
        if !job.transfer.tells_by_itself(&need)
            && let Some(awake) = glance(&mut job, &need)
        {
            job.awake = awake;
            return self.enqueue(job);
        }
        job.transfer.rest();
        let now = self.core.clock().now();
        let until = need.timeout.map(|timeout| now.saturating_add(timeout));
        self.timers.arm(job.id(), &mut job.alarm, until);
        self.watch(&mut job, &need);
        // It may have been cancelled on its way here, when nobody saw it.
        if job.is_cancelled() {
            job.awake.woken = true;
        }
        if job.awake == Awake::default() {
            self.jobs.insert(job.id(), job);
        } else {
            self.enqueue(job);
        }
    }

    fn watch(&mut self, job: &mut Job, need: &Need) {
        let interest = need.interest(&job.transfer);
        let (ready, watch) = (interest.ready.is_some(), interest.watch.is_some());
        let main = match need.what {
            What::Side(Side::Source) => Role::Source,
            What::Side(Side::Sink) => Role::Sink,
            What::Completions => Role::Completions,
            What::Rest(_) => Role::Wake,
        };
        if ready {
            match job.watch(main) {
                Ok(()) => {}
                // A file or a device without poll: always ready, as poll(2)
                // has it.
                Err(Errno::EPERM) => (job.awake.ready, job.awake.open) = (true, true),
                Err(_) => self.unwatched(job),
            }
        }
        if watch && job.watch(Role::Sink).is_err() {
            self.unwatched(job);
        }
        // One that is ending need not be told so again.
        let wakes = job.wake.is_some() && job.ending.is_none();
        if wakes && job.watch(Role::Wake).is_err() {
            self.unwatched(job);
        }
    }

    /// ENOSPC, the user's share of watches (`/proc/sys/fs/epoll`), or ENOMEM:
    /// it is looked at every so often instead.
    fn unwatched(&mut self, job: &mut Job) {
        const EVERY: Duration = Duration::from_millis(5);
        let soon = self.core.clock().now() + EVERY;
        let at = job.alarm.at.map_or(soon, |at| at.min(soon));
        self.timers.arm(job.id(), &mut job.alarm, Some(at));
    }

    /// Settles, here if that cannot take long.
    fn end(&mut self, mut job: Box<Job>) {
        self.timers.forget(job.id(), &mut job.alarm);
        if job.transfer.completions().is_some() {
            // Only this thread may ask for what is still on its way.
            if job.transfer.winds_down() {
                let need = Need {
                    what: What::Completions,
                    timeout: None,
                };
                job.need = Some(need);
                self.watch(&mut job, &need);
                self.jobs.insert(job.id(), job);
                return;
            }
        }
        self.settle(job);
    }

    /// Once nothing is on its way, for which a transfer that is not asked any
    /// more waits.
    fn settle(&self, mut job: Box<Job>) {
        if self.core.is_lost() {
            return job.let_go();
        }
        if job.transfer.completions().is_some() {
            job.transfer.quiesce();
        }
        if job.transfer.waits_at_the_end() {
            self.core.submit(Work::Settle(job));
        } else {
            job.finish();
        }
    }

    /// # Errors
    ///
    /// Whatever a filter says, that came after the start: it will always.
    fn wait(
        &mut self,
        timeout: Option<Duration>,
        events: &mut [MaybeUninit<Event>],
    ) -> Result<(), Errno> {
        let slept = timeout != Some(Duration::ZERO);
        let events = fetch(self.station.epoll(), events, timeout)?;
        if slept {
            let now = self.core.clock().now();
            if now.saturating_sub(self.looked) >= FRESH {
                self.looked = now;
                if !self.station.inbox().bell().is_here() {
                    return Err(Errno::EBADF);
                }
            }
        }
        let mut roused: Vec<u64> = Vec::new();
        for event in events.iter() {
            let (data, flags) = (event.data, event.flags);
            if data == BELL {
                self.station.inbox().bell().clear();
                continue;
            }
            let (id, role) = Role::from_token(data);
            if let Some(job) = self.jobs.get_mut(&id)
                && job.hears(role, flags)
            {
                roused.push(id);
            }
        }
        roused.into_iter().for_each(|id| self.rouse(id));
        Ok(())
    }

    /// Nothing can be waited for any more: whatever is here fails, and the
    /// engine shuts down, which ends what is elsewhere.
    fn give_up(mut self, errno: Errno) {
        if !self.station.is_intact() {
            self.core.lose();
        } else if self.station.place == Place::Reactor {
            self.core.stop();
        }
        let mut all: Vec<Box<Job>> = self.jobs.drain().map(|(_, job)| job).collect();
        for message in self.station.inbox().close() {
            if let Message::Run(job) = message {
                all.push(job);
            }
        }
        for mut job in all {
            job.ending.get_or_insert(Turn::Failed(None, Some(errno)));
            self.settle(job);
        }
    }
}

/// The events that have come by then; none where a signal has, of which only a
/// debugger's comes here.
fn fetch<'a>(
    epoll: BorrowedFd<'_>,
    events: &'a mut [MaybeUninit<Event>],
    timeout: Option<Duration>,
) -> Result<&'a [Event], Errno> {
    match transfer::fetch(epoll, events, timeout) {
        Err(Errno::EINTR) => Ok(&[]),
        done => done,
    }
}

impl Drop for Reactor {
    /// Nobody waits for what comes too late: it is told so at once.
    fn drop(&mut self) {
        drop(self.station.inbox().close());
    }
}
