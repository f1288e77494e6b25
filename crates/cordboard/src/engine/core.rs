//! What the threads of one engine share.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use rustix::event::epoll;

use super::inbox::Inbox;
use super::job::Job;
use super::message::Message;
use super::workers::{Pool, Work};
use crate::errno::Errno;
use crate::transfer::{Next, Poll, Turn};

/// The state of one engine.
pub(super) struct Core {
    epoll: OwnedFd,
    inbox: Arc<Inbox<Message>>,
    pool: Arc<Pool>,
    start: Instant,
    ids: AtomicU64,
    /// Transfers whose end has not been told.
    active: AtomicUsize,
    stopping: AtomicBool,
    process: u32,
}

impl Core {
    pub(super) fn new(workers: usize) -> Result<Core, Errno> {
        Ok(Core {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            inbox: Arc::new(Inbox::new()?),
            pool: Pool::new(workers),
            start: Instant::now(),
            ids: AtomicU64::new(0),
            active: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            process: std::process::id(),
        })
    }

    pub(super) fn epoll(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    pub(super) fn inbox(&self) -> &Arc<Inbox<Message>> {
        &self.inbox
    }

    pub(super) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// It was inherited over `fork(2)`: its threads are the parent's.
    pub(super) fn is_inherited(&self) -> bool {
        self.process != std::process::id()
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
            let _ = self.inbox.push(Message::Stop);
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Every transfer is to end.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        let _ = self.inbox.push(Message::Stop);
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
        let next = catch_unwind(AssertUnwindSafe(|| match job.need.take() {
            Some(need) => course.resume(transfer, need, awake, &mut clock),
            None => course.step(transfer, cancelled, &mut clock),
        }));
        job.ticket.shared.live.show(&job.transfer);
        next.unwrap_or(Next::End(Turn::Failed(None, Some(Errno::ECANCELED))))
    }

    /// Has the workers do it. Where no thread is to be had, here and now.
    pub(super) fn submit(self: &Arc<Self>, work: Work) {
        for work in self.pool.submit(work) {
            if let Some(Work::Piece(job)) = work.work() {
                // Not before the others have had their turn.
                let _ = self.inbox.push(Message::Run(job));
            }
        }
    }
}
