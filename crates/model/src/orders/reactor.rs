//! The reactor's cycle, with transfers that only count their steps.

use std::sync::Arc;
use std::time::Duration;

use crate::cycle::{self, Cycle};
use crate::inbox::Inbox;
use crate::scheduler::sync::Mutex;
use crate::scheduler::sync::atomic::{AtomicUsize, Ordering};
use crate::scheduler::thread;
use crate::sync::{AtomicBool, Errno};
use crate::table::{Scheduled, Table};
use crate::takeover::{TakenOver, Takeover};

/// A transfer.
#[derive(Debug)]
pub(super) struct Job {
    id: u64,
    /// Steps until its end.
    steps: usize,
    /// It waits for a descriptor that is never ready.
    waits: bool,
    queued: bool,
    woken: bool,
    cancelled: Arc<AtomicBool>,
}

impl Job {
    pub(super) fn new(id: u64, steps: usize) -> Box<Job> {
        Box::new(Job {
            id,
            steps,
            waits: false,
            queued: false,
            woken: false,
            cancelled: Arc::default(),
        })
    }

    /// A transfer that ends only if it is cancelled.
    pub(super) fn waiting(id: u64, cancelled: &Arc<AtomicBool>) -> Box<Job> {
        let mut job = Job::new(id, 0);
        job.waits = true;
        job.cancelled = Arc::clone(cancelled);
        job
    }

    fn has_ended(&self) -> bool {
        match self.waits {
            true => self.needs_step(),
            false => self.steps == 0,
        }
    }
}

impl Scheduled for Job {
    fn id(&self) -> u64 {
        self.id
    }

    fn queued(&mut self) -> &mut bool {
        &mut self.queued
    }

    fn needs_step(&self) -> bool {
        self.cancelled.load(std::sync::atomic::Ordering::Acquire)
    }

    fn wake(&mut self) {
        self.woken = true;
    }

    fn is_awake(&self) -> bool {
        self.woken
    }
}

pub(super) enum Message {
    Run(Box<Job>),
    Recheck(u64),
    Stop,
}

/// The state that one thread owns at a time.
#[derive(Default)]
struct Owned {
    table: Table<Job>,
    /// Threads that have owned it so far.
    threads: usize,
}

/// What the threads of one engine share.
pub(super) struct Engine {
    takeover: Takeover<Owned>,
    pub(super) inbox: Inbox<Message>,
    /// Transfers that have not ended.
    active: AtomicUsize,
    /// Steps that have begun.
    pub(super) steps: AtomicUsize,
    watchdogs: Mutex<Vec<thread::JoinHandle<()>>>,
}

impl Engine {
    pub(super) fn new(active: usize) -> Arc<Engine> {
        Arc::new(Engine {
            takeover: Takeover::new(),
            inbox: Inbox::new().unwrap(),
            active: AtomicUsize::new(active),
            steps: AtomicUsize::new(0),
            watchdogs: Mutex::new(Vec::new()),
        })
    }

    pub(super) fn send(&self, message: Message) {
        assert!(self.inbox.push(message).is_ok());
    }

    /// Runs a reactor on this thread, and its watchdogs on others, until all
    /// transfers have ended.
    pub(super) fn run(self: &Arc<Self>) {
        self.run_from(Owned::default());
        loop {
            let Some(thread) = self.watchdogs.lock().unwrap().pop() else {
                break;
            };
            thread.join().unwrap();
        }
        assert_eq!(self.active.load(Ordering::SeqCst), 0);
    }

    fn run_from(self: &Arc<Self>, mut state: Owned) {
        state.threads += 1;
        let watch = {
            let engine = Arc::clone(self);
            move || engine.watch()
        };
        self.watchdogs.lock().unwrap().push(thread::spawn(watch));
        let thread = Thread {
            engine: self,
            number: state.threads,
        };
        cycle::run(&thread, state, &mut ());
    }

    /// Any thread may count as blocked here.
    fn watch(self: &Arc<Self>) {
        let second = Duration::from_secs(1);
        if let Some(TakenOver::Blocked(state)) = self.takeover.watch(second, || true, || false) {
            self.run_from(state);
        }
    }

    fn end_one(&self) {
        if self.active.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.takeover.close();
            // A thread that has been taken over ends the last transfer only by way
            // of a message, so a reactor is there to read this one.
            self.send(Message::Stop);
        }
    }
}

/// A thread that runs the cycle.
struct Thread<'a> {
    engine: &'a Engine,
    number: usize,
}

impl Thread<'_> {
    fn check_owner(&self, state: &Owned) {
        assert_eq!(state.threads, self.number, "another thread owns the state");
    }
}

impl Cycle for Thread<'_> {
    type State = Owned;
    type Message = Message;
    type Events = ();
    type Ready<'a> = ();

    fn inbox(&self) -> &Inbox<Message> {
        &self.engine.inbox
    }

    fn takeover(&self) -> &Takeover<Owned> {
        &self.engine.takeover
    }

    fn is_done(&self) -> bool {
        self.engine.active.load(Ordering::SeqCst) == 0
    }

    fn handle_message(&self, state: &mut Owned, message: Message) {
        self.check_owner(state);
        match message {
            Message::Run(job) if job.waits => state.table.sleep(job),
            Message::Run(job) => state.table.enqueue(job),
            Message::Recheck(id) => state.table.wake(id),
            Message::Stop => state.table.wake_all(),
        }
    }

    fn prepare(&self, state: &mut Owned) {
        self.check_owner(state);
        state.table.shrink();
    }

    fn queued(&self, state: &Owned) -> usize {
        state.table.queued()
    }

    fn turn(&self, mut state: Owned) -> Option<Owned> {
        let Some(mut job) = state.table.dequeue() else {
            return Some(state);
        };
        if job.has_ended() {
            self.engine.end_one();
            return Some(state);
        }
        let step = self.engine.takeover.step(state, || {
            self.engine.steps.fetch_add(1, Ordering::SeqCst);
            thread::yield_now();
        });
        job.steps -= 1;
        match step {
            Ok((mut state, ())) => {
                self.check_owner(&state);
                state.table.enqueue(job);
                Some(state)
            }
            Err(()) => {
                self.engine.send(Message::Run(job));
                None
            }
        }
    }

    fn waits_for_messages_only(&self, state: &Owned) -> bool {
        state.table.is_empty()
    }

    fn longest_sleep(&self, _: &Owned) -> Option<Duration> {
        None
    }

    fn check(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn check_now(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn fetch(&self, (): &mut (), timeout: Option<Duration>) -> Result<(), Errno> {
        if timeout.is_none() {
            self.engine.inbox.wake_fd().wait();
        }
        Ok(())
    }

    fn handle_events(&self, state: &mut Owned, (): ()) -> Result<(), Errno> {
        self.check_owner(state);
        self.engine.inbox.wake_fd().clear();
        Ok(())
    }

    fn fail_all(&self, _: Owned, errno: Errno) {
        match errno {}
    }
}
