//! A thread that waits for many transfers, and takes the steps of those that
//! are at home there: a step each, in turn. An engine has one for all that it
//! runs, which takes the steps of those that never wait inside the kernel; and
//! one for direct copies, which keep to one thread and do wait, at their heads
//! and tails, for a disk.
//!
//! A step between pipes and sockets can still block, on a pipe's lock. Before
//! each step the thread puts its state into its station's seat, from which the
//! watch takes it if the step does not end: the blocked thread then sends its
//! transfer to the new reactor, and ends. It is there too while the thread sleeps
//! on descriptors, which the host may close (`close_range(2)`): the watch then
//! ends the transfers in its place.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::Event;

use super::core::Core;
use super::job::{Job, Role};
use super::message::Message;
use super::station::{BELL, Station};
use super::timers::Timers;
use super::workers::{Task, at_once};
use crate::endpoint::Side;
use crate::errno::Errno;
use crate::map::Map;
use crate::sys;
use crate::transfer::{Awake, Clock, Home, Need, Next, Turn, What};

/// How long a thread that sleeps with transfers under way goes without checking
/// that its descriptors are still its own.
const LONGEST: Duration = Duration::from_secs(60);
/// The same for the thread for direct copies, which has no watch. A block takes
/// less time.
const DISK: Duration = Duration::from_secs(1);
/// Events that are fetched at a time.
const EVENTS: usize = 256;
/// Messages that a reactor keeps room for while there are none.
const MESSAGES: usize = 256;

/// The reactor's own state, which nobody else sees.
pub(super) struct Reactor {
    core: Arc<Core>,
    station: Arc<Station>,
    /// The transfers that are here: asleep, or in the queue.
    jobs: Map<u64, Box<Job>>,
    queue: VecDeque<u64>,
    timers: Timers,
    messages: Vec<Message>,
}

impl Reactor {
    pub(super) fn new(core: Arc<Core>, station: Arc<Station>) -> Result<Reactor, Errno> {
        // A filter may allow all else: better told here than found out there.
        station.fetch(&mut [MaybeUninit::uninit()], Some(Duration::ZERO))?;
        Ok(Reactor {
            core,
            station,
            jobs: Map::default(),
            queue: VecDeque::new(),
            timers: Timers::default(),
            messages: Vec::new(),
        })
    }

    /// Until the engine has shut down, or another thread has taken over.
    pub(super) fn run(self) {
        let core = Arc::clone(&self.core);
        if self.station.place == Home::Reactor {
            core.has_it_watched();
        }
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];
        let mut this = Box::new(self);
        while !core.is_done() {
            let nothing_new = this.read_messages();
            if this.station.place == Home::Disk {
                sys::keep_an_arena(!this.jobs.is_empty());
            }
            this.ring_alarms();
            // Those that are in the queue now; what they put there waits.
            for _ in 0..this.queue.len() {
                if let Some(id) = this.queue.pop_front() {
                    match this.turn(&core, id) {
                        Some(back) => this = back,
                        None => return,
                    }
                }
            }
            let now = core.clock().now();
            // Asked again rather than waited for in vain: that is no call.
            let nothing_new = nothing_new || this.queue.is_empty() && this.read_messages();
            let timeout = if !nothing_new || !this.queue.is_empty() {
                Some(Duration::ZERO)
            } else {
                let alarm = this.timers.next().map(|at| at.saturating_sub(now));
                // Where the host closes the bell nothing else may wake it.
                let disk = this.station.place == Home::Disk && !this.jobs.is_empty();
                let most = if disk { DISK } else { LONGEST };
                let look = core.is_active().then_some(most);
                alarm.into_iter().chain(look).min()
            };
            match this.pause(timeout, &mut events) {
                Some((back, Ok(()))) => this = back,
                Some((back, Err(errno))) => return back.give_up(errno),
                None => return,
            }
        }
    }

    /// Does something that may hold up this thread. `Err`: it has, and another
    /// one is in charge by now. `stays`: no other may be, because a ring belongs
    /// to its thread.
    fn aside<T>(
        self: Box<Self>,
        core: &Core,
        stays: bool,
        what: impl FnOnce() -> T,
    ) -> Result<Charge<T>, T> {
        if stays || self.station.place == Home::Disk {
            return Ok((self, what()));
        }
        let seat = core.main().seat();
        let step = seat.leave(self);
        let result = what();
        match seat.come_back(step) {
            Some(this) => Ok((this, result)),
            None => Err(result),
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
        // Many that have come at once leave no memory behind.
        messages.shrink_to(MESSAGES);
        self.messages = messages;
        none
    }

    fn look(&mut self, id: u64) {
        if self.jobs.contains_key(&id) {
            self.wake(id);
        } else if self.station.place == Home::Reactor
            && let Some(disk) = self.core.disk_station()
        {
            let _ = disk.inbox().push(Message::Look(id));
        }
    }

    fn admit(&mut self, mut job: Box<Job>) {
        job.transfer.runs_on = self.station.place;
        job.settle_at(&self.station);
        // It may have rung without effect, while a step was blocked.
        self.timers.forget(job.id(), &mut job.alarm);
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

    /// One transfer's turn: what its wait has come to, and one step. `None`:
    /// another thread is in charge.
    fn turn(self: Box<Self>, core: &Arc<Core>, id: u64) -> Option<Box<Self>> {
        let mut this = self;
        let Some(mut job) = this.jobs.remove(&id) else {
            return Some(this);
        };
        job.queued = false;
        this.timers.arm(id, &mut job.alarm, None);
        if job.ending.is_some() {
            return this.end(core, job);
        }
        loop {
            let steps = job.need.is_none();
            let home = job.transfer.home();
            // What the kernel does for a transfer is told to one thread only.
            let movable = job.transfer.completions().is_none();
            if steps && movable {
                if matches!(home, Home::Worker | Home::Anywhere) {
                    this.timers.forget(id, &mut job.alarm);
                    // If no worker is available, it is done here.
                    let done = this.aside(core, false, || core.submit(Task::Piece(job)));
                    return done.ok().map(|(this, ())| this);
                }
                match this.send_home(job, home) {
                    Some(here) => job = here,
                    None => return Some(this),
                }
            }
            let stays = home == Home::Disk;
            let next = match this.aside(core, stays, || core.advance(&mut job)) {
                Ok((back, next)) => {
                    this = back;
                    next
                }
                Err(next) => {
                    core.late(job, next);
                    return None;
                }
            };
            match next {
                Next::Step if steps => this.enqueue(job),
                Next::Step | Next::Elsewhere => continue,
                Next::Wait(need) => return this.lay_down(core, job, need),
                Next::End(turn) => {
                    job.ending = Some(turn);
                    return this.end(core, job);
                }
            }
            return Some(this);
        }
    }

    /// To the one of these threads that takes its steps. Comes back where that
    /// is this one, or no other can be had.
    fn send_home(&mut self, mut job: Box<Job>, home: Home) -> Option<Box<Job>> {
        let other = match home {
            _ if home == self.station.place => None,
            Home::Disk => self.core.open_disk_station(),
            _ => Some(Arc::clone(self.core.main())),
        };
        let Some(station) = other else {
            job.transfer.runs_on = home;
            return Some(job);
        };
        self.timers.forget(job.id(), &mut job.alarm);
        job.settle_at(&station);
        if let Err(Message::Run(job)) = station.inbox().push(Message::Run(job)) {
            job.finish();
        }
        None
    }

    /// Puts a transfer to sleep after a step. What it can do without meanwhile
    /// may be an end of a caller's pipe, whose lock closing it waits for.
    fn lay_down(
        mut self: Box<Self>,
        core: &Arc<Core>,
        mut job: Box<Job>,
        need: Need,
    ) -> Option<Box<Self>> {
        job.need = Some(need);
        if let Some(awake) = at_once(&mut job, &need) {
            job.awake = awake;
            self.enqueue(job);
            return Some(self);
        }
        let stays = job.transfer.home() == Home::Disk;
        match self.aside(core, stays, || core.rest(&mut job)) {
            Ok((mut this, ())) => {
                this.sleep(job, need);
                Some(this)
            }
            Err(()) => {
                core.late(job, Next::Wait(need));
                None
            }
        }
    }

    /// Puts one to sleep that comes from elsewhere, and has nothing that it can
    /// do without.
    fn park(&mut self, mut job: Box<Job>, need: Need) {
        match at_once(&mut job, &need) {
            Some(awake) => {
                job.awake = awake;
                self.enqueue(job);
            }
            None => self.sleep(job, need),
        }
    }

    fn sleep(&mut self, mut job: Box<Job>, need: Need) {
        if job.ends_for_want_of_its_own(&need) {
            return self.enqueue(job);
        }
        self.set_alarm(&mut job, &need);
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

    fn set_alarm(&mut self, job: &mut Job, need: &Need) {
        let now = self.core.clock().now();
        let until = need.timeout.map(|timeout| now.saturating_add(timeout));
        self.timers.arm(job.id(), &mut job.alarm, until);
    }

    fn watch(&mut self, job: &mut Job, need: &Need) {
        let interest = need.interest(&job.transfer);
        let (ready, watch) = (interest.ready.is_some(), interest.watch.is_some());
        let main = match need.what {
            What::Side(Side::Source) => Role::Source,
            What::Side(Side::Sink) => Role::Sink,
            What::Completions => Role::Completions,
            What::Rest(_) | What::Resume => Role::Wake,
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
    fn end(mut self: Box<Self>, core: &Arc<Core>, mut job: Box<Job>) -> Option<Box<Self>> {
        self.timers.forget(job.id(), &mut job.alarm);
        if job.transfer.completions().is_some() {
            // Only this thread may ask for what is still on its way.
            if job.transfer.winds_down() {
                let need = Need::completions(&job.transfer);
                job.need = Some(need);
                self.set_alarm(&mut job, &need);
                self.watch(&mut job, &need);
                self.jobs.insert(job.id(), job);
                return Some(self);
            }
        }
        let settled = self.aside(core, false, || core.settle(job));
        settled.ok().map(|(this, ())| this)
    }

    /// Waits for messages, and for descriptors where any transfer is here. The
    /// error is what a filter says, that came after the start: it will always;
    /// or `EBADF`. `None`: another thread is in charge.
    fn pause(
        mut self: Box<Self>,
        timeout: Option<Duration>,
        events: &mut [MaybeUninit<Event>],
    ) -> Option<Charge<Result<(), Errno>>> {
        // A busy thread never sleeps, and could take events of the host's epoll.
        if !self.is_here() {
            return Some((self, Err(Errno::EBADF)));
        }
        if timeout == Some(Duration::ZERO) {
            let events = self.station.fetch(events, timeout);
            let heard = events.and_then(|events| self.hear(events));
            return Some((self, heard));
        }
        if self.jobs.is_empty() && self.timers.next().is_none() {
            // Without a descriptor: no close can take this wake-up away.
            self.station.inbox().wait(timeout);
            let heard = self.hear(&[]);
            return Some((self, heard));
        }
        let station = Arc::clone(&self.station);
        let step = station.seat().rest(self);
        let events = station.fetch(events, timeout);
        let mut this = station.seat().come_back(step)?;
        let heard = events.and_then(|events| this.hear(events));
        Some((this, heard))
    }

    /// Its descriptors are its own, as of the last millisecond.
    fn is_here(&self) -> bool {
        match self.station.place {
            // Others ask too.
            Home::Reactor => !self.core.is_lost(),
            _ => self.station.was_here(self.core.clock().now()),
        }
    }

    fn hear(&mut self, events: &[Event]) -> Result<(), Errno> {
        if !self.is_here() {
            return Err(Errno::EBADF);
        }
        let mut roused: Vec<u64> = Vec::new();
        for event in events.iter() {
            let (data, flags) = (event.data, event.flags);
            if data == BELL {
                let _ = self.station.inbox().bell().clear();
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
    pub(super) fn give_up(mut self, errno: Errno) {
        if !self.station.is_intact() {
            self.core.lose();
        } else if self.station.place == Home::Reactor {
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
            self.core.settle(job);
        }
    }
}

/// The reactor again, and what was done aside.
type Charge<T> = (Box<Reactor>, T);

impl Drop for Reactor {
    /// Nobody waits for what comes too late: it is told so at once.
    fn drop(&mut self) {
        drop(self.station.inbox().close());
        self.station.seat().close();
    }
}

#[cfg(test)]
mod tests;
