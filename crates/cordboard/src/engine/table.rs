//! The transfers of one reactor thread: sleeping, or in the queue. `crates/model`
//! tries the interleavings of a cancel and a hand-over.

use std::collections::VecDeque;

use super::slab::Slab;

/// The capacity of the queue that an idle thread keeps.
const KEPT: usize = 256;

/// A transfer that the table schedules.
pub(crate) trait Scheduled {
    fn id(&self) -> u64;

    /// Returns the mark that it is in the queue.
    fn queued(&mut self) -> &mut bool;

    /// Returns whether it was cancelled, or must take a step for another reason.
    fn needs_step(&self) -> bool;

    /// Marks it to be resumed. The transfer then checks for the reason.
    fn wake(&mut self);

    /// Returns whether it is to be resumed.
    fn is_awake(&self) -> bool;
}

/// Transfers by number, and the numbers of those whose turn comes.
#[derive(Debug)]
pub(crate) struct Table<J> {
    jobs: Slab<Box<J>>,
    queue: VecDeque<u64>,
}

impl<J> Default for Table<J> {
    fn default() -> Table<J> {
        Table {
            jobs: Slab::default(),
            queue: VecDeque::new(),
        }
    }
}

impl<J: Scheduled> Table<J> {
    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Returns the length of the queue.
    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut J> {
        self.jobs.get_mut(id).map(|job| &mut **job)
    }

    /// Inserts a transfer at the end of the queue.
    pub(crate) fn enqueue(&mut self, mut job: Box<J>) {
        *job.queued() = true;
        self.queue.push_back(job.id());
        self.jobs.put(job.id(), job);
    }

    /// Removes the first transfer of the queue.
    pub(crate) fn dequeue(&mut self) -> Option<Box<J>> {
        let mut job = self.jobs.take(self.queue.pop_front()?)?;
        *job.queued() = false;
        Some(job)
    }

    /// Queues a transfer of the table, unless it is queued already.
    pub(crate) fn schedule(&mut self, id: u64) {
        if let Some(job) = self.jobs.get_mut(id)
            && !std::mem::replace(job.queued(), true)
        {
            self.queue.push_back(id);
        }
    }

    /// Resumes a sleeping transfer, if the table has it.
    pub(crate) fn wake(&mut self, id: u64) {
        if let Some(job) = self.jobs.get_mut(id) {
            job.wake();
            self.schedule(id);
        }
    }

    pub(crate) fn wake_all(&mut self) {
        for id in self.jobs.numbers() {
            self.wake(id);
        }
    }

    /// Inserts a transfer that sleeps, or queues it if it was woken or cancelled on
    /// its way here.
    pub(crate) fn sleep(&mut self, mut job: Box<J>) {
        // The message of a cancel may have come while no table had the transfer.
        if job.needs_step() {
            job.wake();
        }
        match job.is_awake() {
            true => self.enqueue(job),
            false => self.put(job),
        }
    }

    /// Inserts a transfer that sleeps even if it was cancelled.
    pub(crate) fn put(&mut self, job: Box<J>) {
        self.jobs.put(job.id(), job);
    }

    pub(crate) fn drain(&mut self) -> Vec<Box<J>> {
        self.queue.clear();
        self.jobs.drain()
    }

    /// Frees the memory that a burst of transfers has taken.
    pub(crate) fn shrink(&mut self) {
        if self.queue.is_empty() {
            self.queue.shrink_to(KEPT);
        }
        self.jobs.shrink();
    }
}
