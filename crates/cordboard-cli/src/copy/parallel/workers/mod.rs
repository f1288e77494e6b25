//! Several files at once: what the threads of one command share.
//!
//! The walk appends batches to a queue. Threads take them, copy small files
//! themselves and hand large ones to the engine. A *slot* is the right to have
//! one file under way. A thread that takes a batch takes a slot with it. A file
//! that goes to the engine keeps the slot, and the rest of its batch returns to
//! the front of the queue until another slot is free.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use cordboard::{Errno, Report, poll_for};
use rustix::event::{EventfdFlags, Timespec, eventfd};

use super::batch::Batch;
use super::engine::{EngineCopies, EngineCopy, FileRef};
use super::ledger::BatchTotals;
use crate::copy::job::Job;
use crate::copy::one_file::{CopyObserver, NoObserver, OpenError, OpenMode, Opened};
use crate::copy::outcome::{Message, Outcome};

use crate::polling::timespec;
use crate::problem::{Problem, result_of};
use crate::sys;

/// The walk's polling interval if it has no eventfd.
const EVERY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 5_000_000,
};

/// The stack of a thread in bytes: no path keeps a buffer there.
const STACK: usize = 512 << 10;

/// What the threads share.
#[derive(Debug)]
pub struct Workers {
    /// What all files have in common.
    pub job: Job,
    /// Files under way, at most.
    pub slots: usize,
    /// The copies on the engine.
    pub engine_copies: EngineCopies,
    state: Mutex<State>,
    more: Condvar,
    /// An eventfd that wakes the walk, which sleeps where signals reach it.
    /// `None`: the walk does everything itself, or no descriptor is available.
    wake: Option<OwnedFd>,
}

/// What one lock protects.
#[derive(Debug, Default)]
pub struct State {
    /// Batches, from their first file that was not started.
    queue: VecDeque<FileRef>,
    finished: VecDeque<(EngineCopy, Report)>,
    /// Files for the walk's own thread, with nothing else under way.
    pub postponed: VecDeque<FileRef>,
    /// Free slots.
    free: usize,
    /// Batches that have ended, and their totals.
    pub done: Vec<(u64, BatchTotals)>,
    /// Bytes written by all that has ended.
    pub written: u64,
    /// Files that have ended.
    pub files: u64,
    walk_sleeps: bool,
    closing: bool,
}

/// Work for a thread.
pub enum Task {
    /// Continue a batch, in a slot.
    Batch(FileRef),
    /// Finish a large file, in its slot.
    Finish(Box<EngineCopy>, Report),
}

/// The state of a file that a thread has taken.
enum FileState {
    /// It has ended.
    Ended,
    /// It is for the walk's own thread.
    Postponed,
    /// It is under way, in the slot.
    OnEngine,
}

/// Runs work for one file. A panic, which is a bug, would end the thread, and
/// the walk would wait for its slot forever. It is a failure of this file
/// instead, and the result is `None`.
pub fn catch_panic<T>(
    at: &FileRef,
    outcome: &mut Outcome,
    work: impl FnOnce(&mut Outcome) -> T,
) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(|| work(&mut *outcome)));
    let (from, to) = at.0.places(at.1);
    let mistake = |_| {
        let text = format!("bug in cordboard; {to} is left as it is");
        let problem = Problem::unsided(from.shown(), Errno::ENOTRECOVERABLE, text)
            .help("please report it with the output of this command");
        outcome.messages.push(Message::Problem(problem));
    };
    done.map_err(mistake).ok()
}

impl State {
    /// Returns the next task. Files that the engine has copied come first: they
    /// free a slot.
    pub fn next(&mut self) -> Option<Task> {
        if let Some((copy, report)) = self.finished.pop_front() {
            return Some(Task::Finish(Box::new(copy), report));
        }
        if self.free == 0 || !self.postponed.is_empty() {
            return None;
        }
        let at = self.queue.pop_front()?;
        self.free -= 1;
        Some(Task::Batch(at))
    }

    /// Takes the first postponed file, in the order of the walk.
    pub fn first_postponed(&mut self) -> Option<FileRef> {
        let order = |i: &usize| (self.postponed[*i].0.number, self.postponed[*i].1);
        let first = (0..self.postponed.len()).min_by_key(order)?;
        self.postponed.remove(first)
    }

    /// Gives all slots to one file.
    pub fn begin_exclusive(&mut self) {
        self.free = 0;
    }

    /// The number of batches that no thread has taken.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }
}

impl Workers {
    /// Workers without threads.
    pub fn new(job: Job, slots: usize) -> Arc<Workers> {
        let wake = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok();
        Arc::new(Workers {
            job,
            slots,
            engine_copies: EngineCopies::default(),
            state: Mutex::new(State {
                free: slots,
                ..State::default()
            }),
            more: Condvar::new(),
            wake: (slots > 1).then(wake).flatten(),
        })
    }

    /// Starts a thread with all signals blocked. `None`: no thread is
    /// available.
    pub fn thread(self: &Arc<Self>) -> Option<JoinHandle<()>> {
        let pool = Arc::clone(self);
        let builder = std::thread::Builder::new().name("cordboard-copy".to_owned());
        let builder = builder.stack_size(STACK);
        sys::without_signals(|| builder.spawn(move || pool.serve())).ok()
    }

    /// Locks the state.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a batch.
    pub fn push(&self, batch: Batch) {
        self.lock().queue.push_back((Arc::new(batch), 0));
        self.more.notify_one();
    }

    /// Ends the threads that have no work.
    pub fn close(&self) {
        self.lock().closing = true;
        self.more.notify_all();
    }

    /// Whether no file is under way, and none has to be finished.
    pub fn is_idle(&self, state: &State) -> bool {
        state.free == self.slots && state.finished.is_empty()
    }

    /// Ends the file that had all slots.
    pub fn end_exclusive(&self) {
        self.lock().free = self.slots;
        self.more.notify_all();
    }

    /// Sleeps on the walk's thread until something changes, a signal arrives,
    /// or this time is over.
    pub fn sleep(&self, mut state: MutexGuard<'_, State>, longest: Option<Duration>) {
        use rustix::event::{PollFd, PollFlags};
        let longest = longest.map(timespec);
        state.walk_sleeps = true;
        drop(state);
        let slept = match &self.wake {
            Some(wake) => poll_for(&mut [PollFd::new(wake, PollFlags::IN)], longest.as_ref()),
            None => poll_for(&mut [], Some(&EVERY)),
        };
        // A filter refuses poll(2): the state is polled.
        if slept.is_err_and(|errno| errno != rustix::io::Errno::INTR) {
            let _ = rustix::thread::nanosleep(&EVERY);
        }
        let mut state = self.lock();
        state.walk_sleeps = false;
        if let Some(wake) = &self.wake {
            let _ = rustix::io::read(wake, &mut [0; 8]);
        }
    }

    fn serve(self: Arc<Self>) {
        loop {
            let mut state = self.lock();
            let work = loop {
                match state.next() {
                    Some(work) => break work,
                    None if state.closing => return,
                    None => {
                        let woken = self.more.wait(state);
                        state = woken.unwrap_or_else(PoisonError::into_inner);
                    }
                }
            };
            drop(state);
            self.work(work, &mut NoObserver);
        }
    }

    /// Runs a task. `watch` observes the files that are copied here.
    pub fn work(self: &Arc<Self>, work: Task, watch: &mut dyn CopyObserver) {
        match work {
            Task::Batch(at) => self.batch(at, watch),
            Task::Finish(copy, report) => self.finish(*copy, report, watch),
        }
    }

    /// Copies files of a batch until it ends or the slot is passed on.
    fn batch(self: &Arc<Self>, (batch, first): FileRef, watch: &mut dyn CopyObserver) {
        for index in first..batch.len() {
            let at = (Arc::clone(&batch), index);
            if self.file(at, watch) {
                let rest = index + 1;
                if rest < batch.len() {
                    self.lock().queue.push_front((batch, rest));
                    self.changed();
                }
                return;
            }
        }
        self.free();
    }

    /// Copies one file. `true`: it is under way, in the slot.
    fn file(self: &Arc<Self>, at: FileRef, watch: &mut dyn CopyObserver) -> bool {
        let mut outcome = Outcome::default();
        match catch_panic(&at, &mut outcome, |outcome| {
            self.start_file(&at, watch, outcome)
        }) {
            None | Some(FileState::Ended) => self.end(&at, outcome),
            Some(FileState::OnEngine) => return true,
            Some(FileState::Postponed) => {
                self.lock().postponed.push_back(at);
                self.changed();
            }
        }
        false
    }

    fn start_file(
        self: &Arc<Self>,
        at: &FileRef,
        watch: &mut dyn CopyObserver,
        outcome: &mut Outcome,
    ) -> FileState {
        let (from, to) = at.0.places(at.1);
        let top = at.0.is_top();
        if let Some(left) = self.job.reason_to_skip() {
            outcome.messages.push(left);
            return FileState::Ended;
        }
        match self
            .job
            .open((&from, &to), top, OpenMode::Concurrent, outcome)
        {
            Ok(opened) if EngineCopies::accepts(&opened, &self.job.staging) => {
                return self.start_large(Box::new(opened), at, watch, outcome);
            }
            Ok(mut opened) => {
                let moved = self.job.copy_bytes(&mut opened, (&from, &to), watch);
                let ended = (outcome, watch);
                self.job.settle(opened, (&from, &to), top, moved, ended);
            }
            Err(OpenError::Postponed) => return FileState::Postponed,
            Err(OpenError::Problem(problem)) => {
                outcome.messages.push(self.job.failed_at(problem, &to));
            }
        }
        FileState::Ended
    }

    /// Hands a large file over, or copies it here.
    fn start_large(
        self: &Arc<Self>,
        opened: Box<Opened>,
        at: &FileRef,
        watch: &mut dyn CopyObserver,
        outcome: &mut Outcome,
    ) -> FileState {
        let pool = Arc::clone(self);
        let finished = move |copy, report| {
            pool.lock().finished.push_back((copy, report));
            pool.changed();
        };
        let at = (Arc::clone(&at.0), at.1);
        let Err((mut opened, at)) =
            self.engine_copies
                .start((&self.job, self.slots), opened, at, finished)
        else {
            return FileState::OnEngine;
        };
        // If the transfer is refused, this copy reports why.
        let (from, to) = at.0.places(at.1);
        let moved = self.job.copy_bytes(&mut opened, (&from, &to), watch);
        let ended = (outcome, watch);
        (self.job).settle(*opened, (&from, &to), at.0.is_top(), moved, ended);
        FileState::Ended
    }

    /// Finishes a large file.
    fn finish(&self, copy: EngineCopy, report: Report, watch: &mut dyn CopyObserver) {
        let mut outcome = Outcome::default();
        let EngineCopy { number, at, opened } = copy;
        catch_panic(&at, &mut outcome, |outcome| {
            let (from, to) = at.0.places(at.1);
            let (source, sink) = opened.ends();
            let done = result_of(&report, (source, &from), (sink, &to));
            let moved = (Some(report), done);
            self.job.settle(
                *opened,
                (&from, &to),
                at.0.is_top(),
                moved,
                (outcome, watch),
            );
        });
        self.end(&at, outcome);
        self.engine_copies.remove(number);
        self.free();
    }

    /// Ends a file.
    pub fn end(&self, (batch, index): &FileRef, outcome: Outcome) {
        let written = outcome.report.as_ref().map_or(0, |report| report.written);
        let through = batch.ended(*index, outcome);
        let mut state = self.lock();
        state.written = state.written.saturating_add(written);
        state.files += 1;
        if let Some(totals) = through {
            state.done.push((batch.number, totals));
            self.wake_walk(&mut state);
        }
    }

    /// Frees a slot.
    fn free(&self) {
        self.lock().free += 1;
        self.changed();
    }

    /// Wakes one thread and the walk.
    fn changed(&self) {
        self.more.notify_one();
        self.wake_walk(&mut self.lock());
    }

    fn wake_walk(&self, state: &mut State) {
        if std::mem::take(&mut state.walk_sleeps)
            && let Some(wake) = &self.wake
        {
            let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests;
