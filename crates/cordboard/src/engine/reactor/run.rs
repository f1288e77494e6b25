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

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::Event;

use super::state::Reactor;
use crate::engine::core::{Core, HELD_UP};
use crate::engine::job::{Crew, Job, Role};
use crate::engine::message::Message;
use crate::engine::poller::WAKE;
use crate::engine::seat::Left;
use crate::engine::station::Station;
use crate::engine::workers::{Task, at_once};
use crate::errno::Errno;
use crate::sys;
use crate::threads;
use crate::transfer::{Clock, Home, Need, Next, Turn};

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

/// A thread at its station.
pub(in crate::engine) struct Shift {
    core: Arc<Core>,
    station: Arc<Station>,
}

impl Shift {
    pub(in crate::engine) fn new(core: &Arc<Core>, station: &Arc<Station>) -> Shift {
        Shift {
            core: Arc::clone(core),
            station: Arc::clone(station),
        }
    }

    /// What a new thread begins with.
    ///
    /// # Errors
    ///
    /// What a filter says of `epoll_pwait(2)`.
    pub(in crate::engine) fn begin(&self) -> Result<Box<Reactor>, Errno> {
        let poller = self.station.poller();
        // A filter may allow all else: it is reported here and not found out later.
        poller.fetch(&mut [MaybeUninit::uninit()], Some(Duration::ZERO))?;
        Ok(Box::new(Reactor::new(
            poller,
            self.station.inbox(),
            self.station.seat(),
        )))
    }

    /// Until the engine has shut down, or another thread has taken over.
    pub(in crate::engine) fn run(&self, reactor: Box<Reactor>) {
        let core = &self.core;
        if self.home() == Home::Reactor {
            watch(core);
        }
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];
        let mut this = reactor;
        while !core.is_done() {
            let nothing_new = self.read_messages(&mut this);
            if self.home() == Home::Disk {
                sys::keep_an_arena(!this.jobs.is_empty());
            }
            this.ring_alarms(core.clock().now());
            // Those that are in the queue now; what they put there waits.
            for _ in 0..this.queue.len() {
                if let Some(id) = this.queue.pop_front() {
                    match self.turn(this, id) {
                        Some(back) => this = back,
                        None => return,
                    }
                }
            }
            // Asked again rather than waited for in vain: that is no call.
            let nothing_new = nothing_new || this.queue.is_empty() && self.read_messages(&mut this);
            let timeout = match !nothing_new || !this.queue.is_empty() {
                true => Some(Duration::ZERO),
                false => self.longest_sleep(&this),
            };
            match self.pause(this, timeout, &mut events) {
                Some((back, Ok(()))) => this = back,
                Some((back, Err(errno))) => return self.give_up(*back, errno),
                None => return,
            }
        }
    }

    fn home(&self) -> Home {
        self.station.poller().home
    }

    fn longest_sleep(&self, this: &Reactor) -> Option<Duration> {
        let now = self.core.clock().now();
        let alarm = this.timers.next().map(|at| at.saturating_sub(now));
        // Where the host closes the wake-up nothing else may wake it.
        let disk = self.home() == Home::Disk && !this.jobs.is_empty();
        let most = if disk { DISK } else { LONGEST };
        let look = self.core.is_active().then_some(most);
        alarm.into_iter().chain(look).min()
    }

    /// Does something that may hold up this thread. `Err`: it has, and another
    /// one is in charge by now. `stays`: no other may be, because a ring belongs
    /// to its thread.
    fn aside<T>(
        &self,
        this: Box<Reactor>,
        stays: bool,
        what: impl FnOnce() -> T,
    ) -> Result<Charge<T>, T> {
        if stays || self.home() == Home::Disk {
            return Ok((this, what()));
        }
        let seat = self.station.seat();
        let step = seat.leave(this);
        let result = what();
        match seat.come_back(step) {
            Some(this) => Ok((this, result)),
            None => Err(result),
        }
    }

    /// True if there were none.
    fn read_messages(&self, this: &mut Reactor) -> bool {
        let mut messages = std::mem::take(&mut this.messages);
        this.inbox.take(&mut messages);
        let none = messages.is_empty();
        for message in messages.drain(..) {
            match message {
                Message::Run(job) => this.admit(job),
                Message::Look(id) => self.look(this, id),
                Message::Stop => {
                    let all = this.jobs.numbers();
                    all.into_iter().for_each(|id| this.wake(id));
                }
            }
        }
        // Many that have come at once leave no memory behind.
        messages.shrink_to(MESSAGES);
        this.messages = messages;
        this.jobs.rest();
        none
    }

    fn look(&self, this: &mut Reactor, id: u64) {
        if this.jobs.get_mut(id).is_some() {
            this.wake(id);
        } else if self.home() == Home::Reactor
            && let Some(disk) = self.core.disk_station()
        {
            let _ = disk.inbox().push(Message::Look(id));
        }
    }

    /// One transfer's turn: what its wait has come to, and one step. `None`:
    /// another thread is in charge.
    fn turn(&self, mut this: Box<Reactor>, id: u64) -> Option<Box<Reactor>> {
        let core = &self.core;
        let Some(mut job) = this.jobs.take(id) else {
            return Some(this);
        };
        job.queued = false;
        this.timers.arm(id, &mut job.alarm, None);
        if job.ending.is_some() {
            return self.end(this, job);
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
                    let done = self.aside(this, false, || core.submit(Task::Piece(job)));
                    return done.ok().map(|(this, ())| this);
                }
                match self.send_home(&mut this, job, home) {
                    Some(here) => job = here,
                    None => return Some(this),
                }
            }
            let stays = home == Home::Disk;
            let next = match self.aside(this, stays, || job.advance()) {
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
                Next::Wait(need) => return self.lay_down(this, job, need),
                Next::End(turn) => {
                    job.ending = Some(turn);
                    return self.end(this, job);
                }
            }
            return Some(this);
        }
    }

    /// To the one of these threads that takes its steps. Comes back where that
    /// is this one, or no other can be had.
    fn send_home(&self, this: &mut Reactor, mut job: Box<Job>, home: Home) -> Option<Box<Job>> {
        let other = match home {
            _ if home == self.home() => None,
            Home::Disk => open_disk_station(&self.core),
            _ => Some(Arc::clone(self.core.main())),
        };
        let Some(station) = other else {
            job.transfer.runs_on = home;
            return Some(job);
        };
        this.timers.forget(job.id(), &mut job.alarm);
        job.settle_at(station.poller());
        if let Err(Message::Run(job)) = station.inbox().push(Message::Run(job)) {
            job.finish();
        }
        None
    }

    /// Puts a transfer to sleep after a step. What it can do without meanwhile
    /// may be an end of a caller's pipe, whose lock closing it waits for.
    fn lay_down(
        &self,
        mut this: Box<Reactor>,
        mut job: Box<Job>,
        need: Need,
    ) -> Option<Box<Reactor>> {
        job.need = Some(need);
        if let Some(awake) = at_once(&mut job, &need) {
            job.awake = awake;
            this.enqueue(job);
            return Some(this);
        }
        let stays = job.transfer.home() == Home::Disk;
        match self.aside(this, stays, || job.rest()) {
            Ok((mut this, ())) => {
                this.sleep(job, need);
                Some(this)
            }
            Err(()) => {
                self.core.late(job, Next::Wait(need));
                None
            }
        }
    }

    /// Settles, here if that cannot take long.
    fn end(&self, mut this: Box<Reactor>, mut job: Box<Job>) -> Option<Box<Reactor>> {
        this.timers.forget(job.id(), &mut job.alarm);
        // Only this thread may ask for what is still on its way.
        if job.transfer.completions().is_some() && job.transfer.winds_down() {
            let need = Need::completions(&job.transfer);
            job.need = Some(need);
            this.set_alarm(&mut job, &need);
            this.watch(&mut job, &need);
            this.jobs.put(job.id(), job);
            return Some(this);
        }
        let settled = self.aside(this, false, || self.core.settle(job));
        settled.ok().map(|(this, ())| this)
    }

    /// Waits for messages, and for descriptors where any transfer is here. The
    /// error is what a filter says, that came after the start: it will always;
    /// or `EBADF`. `None`: another thread is in charge.
    pub(super) fn pause(
        &self,
        mut this: Box<Reactor>,
        timeout: Option<Duration>,
        events: &mut [MaybeUninit<Event>],
    ) -> Option<Charge<Result<(), Errno>>> {
        let station = &self.station;
        // A busy thread never sleeps, and could take events of the host's epoll.
        if !self.is_here() {
            return Some((this, Err(Errno::EBADF)));
        }
        if timeout == Some(Duration::ZERO) {
            let events = station.poller().fetch(events, timeout);
            let heard = events.and_then(|events| self.hear(&mut this, events));
            return Some((this, heard));
        }
        if this.jobs.is_empty() && this.timers.next().is_none() {
            // Without a descriptor: no close can take this wake-up away.
            station.inbox().wait(timeout);
            let heard = self.hear(&mut this, &[]);
            return Some((this, heard));
        }
        let step = station.seat().rest(this);
        let events = station.poller().fetch(events, timeout);
        let mut this = station.seat().come_back(step)?;
        let heard = events.and_then(|events| self.hear(&mut this, events));
        Some((this, heard))
    }

    /// Its descriptors are its own, as of the last millisecond.
    fn is_here(&self) -> bool {
        match self.home() {
            // Others ask too.
            Home::Reactor => !self.core.is_lost(),
            _ => self.station.poller().was_here(self.core.clock().now()),
        }
    }

    fn hear(&self, this: &mut Reactor, events: &[Event]) -> Result<(), Errno> {
        if !self.is_here() {
            return Err(Errno::EBADF);
        }
        let mut roused: Vec<u64> = Vec::new();
        for event in events {
            let (data, flags) = (event.data, event.flags);
            if data == WAKE {
                self.station.poller().clear_wake();
                continue;
            }
            let (id, role) = Role::from_token(data);
            if let Some(job) = this.jobs.get_mut(id)
                && job.hears(role, flags)
            {
                roused.push(id);
            }
        }
        roused.into_iter().for_each(|id| this.rouse(id));
        Ok(())
    }

    /// Nothing can be waited for any more: whatever is here fails, and the
    /// engine shuts down, which ends what is elsewhere.
    pub(in crate::engine) fn give_up(&self, mut this: Reactor, errno: Errno) {
        if !self.station.poller().is_intact() {
            self.core.lose();
        } else if self.home() == Home::Reactor {
            self.core.stop();
        }
        let mut all = this.jobs.drain();
        for message in this.inbox.close() {
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

/// Starts the watch, which takes over whenever the main thread is blocked in a
/// step, or sleeps and cannot be woken any more. If no thread is available, there is
/// no watch.
fn watch(core: &Arc<Core>) {
    let body = {
        let core = Arc::clone(core);
        move || {
            let main = core.main();
            let held_up = || core.thread().is_some_and(|thread| thread.waits());
            let gone = || !main.inbox().bell().is_still_open();
            let shift = Shift::new(&core, main);
            match main.seat().watch(HELD_UP, held_up, gone) {
                Some(Left::HeldUp(reactor)) => {
                    threads::rename(c"cordboard");
                    core.begins();
                    shift.run(reactor);
                }
                Some(Left::Gone(reactor)) => shift.give_up(*reactor, Errno::EBADF),
                None => {}
            }
        }
    };
    if let Ok(thread) = threads::start(c"cordboard-watch", core.number, body) {
        let mut watches = core.watches();
        watches.retain(|thread| !thread.is_finished());
        watches.push(thread);
    }
}

/// The station for direct copies; `None` if no descriptors or no thread are
/// available.
fn open_disk_station(core: &Arc<Core>) -> Option<Arc<Station>> {
    let mut disk = core.disk();
    if disk.is_none() {
        let station = Station::new(Home::Disk).ok()?;
        let shift = Shift::new(core, &station);
        let reactor = shift.begin().ok()?;
        let body = move || shift.run(reactor);
        let thread = threads::start(c"cordboard-disk", core.number, body).ok()?;
        *disk = Some((station, thread));
    }
    disk.as_ref().map(|(station, _)| Arc::clone(station))
}

/// The reactor again, and what was done aside.
type Charge<T> = (Box<Reactor>, T);
