//! The work of an engine's worker threads, which may block in the kernel: steps of
//! transfers with a file, a block device or a terminal, and the settling of
//! transfers that sync.
//!
//! A piece of work is bounded and is queued again behind the others, so a large
//! copy does not delay a small one.

use std::sync::Arc;
use std::time::Duration;

use super::job::Job;
use super::table::Scheduled as _;
use crate::endpoint::Side;
use crate::threads::Work;
use crate::transfer::{Clock, Next, SPIN_TIME, ThreadKind, Wait, WaitFor, Waiter, Wakeup};

/// Bytes per piece.
const PIECE: u64 = 4 << 20;
/// Steps per piece.
const STEPS: u32 = 64;

/// The longest wait of a worker for a descriptor: a connection of 1 GB/s takes a few
/// milliseconds to empty a socket buffer.
pub(super) const PEER_WAIT: Duration = Duration::from_millis(5);
/// The longest wait of a worker for the next grant of a schedule. A rate has a grant every
/// 10 ms.
const GRANT_WAIT: Duration = Duration::from_millis(20);

/// A task for a worker.
pub(super) enum Task {
    /// Take some steps of a transfer.
    Piece(Box<Job>),
    /// Settle a transfer.
    Settle(Box<Job>),
}

impl Work for Task {
    fn work(self) -> Option<Task> {
        match self {
            Task::Piece(job) => piece(job, wait_here),
            settle => settle.work_at_once(),
        }
    }

    /// Does not wait for one transfer: the thread may be the reactor's.
    fn work_at_once(self) -> Option<Task> {
        match self {
            Task::Piece(job) => piece(job, |_, _| None),
            Task::Settle(job) => {
                job.finish();
                None
            }
        }
    }
}

/// Takes steps of a transfer until it ends, the piece is complete, or it waits and `wait_here`
/// returns `None`.
pub(super) fn piece(
    mut job: Box<Job>,
    wait_here: impl Fn(&mut Job, &mut Wait) -> Option<Wakeup>,
) -> Option<Task> {
    job.transfer.runs_on = ThreadKind::Worker;
    let engine = Arc::clone(&job.reporter.engine);
    let moved = |job: &Job| job.transfer.counts().0 + job.transfer.counts().1;
    let enough = moved(&job).saturating_add(2 * PIECE);
    for _ in 0..STEPS {
        // Before each step, since a step may take long.
        if engine.is_lost() {
            job.end_without_close();
            return None;
        }
        match job.advance() {
            Next::Step if moved(&job) >= enough => break,
            Next::Step => {}
            Next::Wait(mut wait) => {
                let wakeup = poll_now(&mut job, &wait).or_else(|| wait_here(&mut job, &mut wait));
                job.wait = Some(wait);
                match wakeup {
                    Some(wakeup) => job.wakeup = wakeup,
                    None => {
                        job.release_idle();
                        return return_to_reactor(job);
                    }
                }
            }
            Next::Elsewhere => return return_to_reactor(job),
            Next::End(turn) => {
                job.ending = Some(turn);
                job.finish();
                return None;
            }
        }
    }
    Some(Task::Piece(job))
}

/// Returns the transfer to the reactor, which waits for it or continues it.
fn return_to_reactor(job: Box<Job>) -> Option<Task> {
    let engine = Arc::clone(&job.reporter.engine);
    // The reactor reads messages until the last transfer has ended, this one
    // included, or until it gives up.
    if let Err(job) = engine.send_to_reactor(job) {
        job.finish();
    }
    None
}

/// Polls before a sleep, unless the step has just found the descriptor not ready.
pub(super) fn poll_before_sleep(job: &mut Job, wait: &Wait) -> Option<Wakeup> {
    // A step does not use a blocking descriptor that was not polled ready, so such
    // a step has checked nothing.
    match job.transfer.step_checked_readiness(wait) {
        true => None,
        false => poll_now(job, wait),
    }
}

/// Polls without sleeping. A worker that waits for the sink may spin for a short
/// time before it returns the transfer.
fn poll_now(job: &mut Job, wait: &Wait) -> Option<Wakeup> {
    let side = match wait.target {
        WaitFor::Side(side) => Some(side),
        WaitFor::Resume | WaitFor::Grant if wait.interest(&job.transfer).watch.is_some() => None,
        _ => return None,
    };
    let mut clock = job.reporter.engine.clock();
    let transfer = &mut job.transfer;
    let patient = transfer.runs_on == ThreadKind::Worker
        && side == Some(Side::Sink)
        && transfer.spin.should_spin(&transfer.flow);
    let wakeup = if patient {
        let wakeup = clock.spin(&wait.interest(transfer), SPIN_TIME).ok()?;
        transfer.spin.record(wakeup.ready);
        wakeup
    } else {
        let no_wait = Some(Duration::ZERO);
        clock.wait(&wait.interest(transfer), no_wait).ok()?
    };
    (wakeup != Wakeup::default()).then_some(wakeup)
}

/// Waits on this worker for a short time, if another worker is free: a return through the
/// reactor wakes two threads more. `None`: the reactor is to wait for the rest of the timeout.
///
/// [`Running::cancel`](super::Running::cancel) takes effect after the wait: it wakes only the
/// reactor.
pub(super) fn wait_here(job: &mut Job, wait: &mut Wait) -> Option<Wakeup> {
    let longest = match wait.target {
        WaitFor::Side(_) => PEER_WAIT,
        WaitFor::Grant => GRANT_WAIT,
        WaitFor::Backoff(_) | WaitFor::Completions | WaitFor::Resume => return None,
    };
    // The message of a change may have come while no table had the transfer.
    if job.needs_step() || job.reporter.engine.is_stopping() {
        return None;
    }
    let limit = wait.timeout.map_or(longest, |timeout| timeout.min(longest));
    let is_last = wait.timeout == Some(limit);
    let is_due = match wait.target {
        WaitFor::Side(_) => job.worker_waits.is_due(),
        _ => is_last,
    };
    let interest = wait.interest(&job.transfer);
    // A wait for a change needs an epoll instance.
    let polls = !interest.always_ready && interest.edge_triggered == [false; 2];
    let engine = &job.reporter.engine;
    if !is_due || !polls || !engine.begin_wait() {
        return None;
    }
    let mut clock = engine.clock();
    let start = clock.now();
    let here = Wait {
        timeout: Some(limit),
        ..*wait
    };
    let wakeup = here.take(&job.transfer, &mut clock);
    engine.end_wait();
    let wakeup = wakeup.ok()?;
    if let WaitFor::Side(_) = wait.target {
        job.worker_waits.record(wakeup.ready);
    }
    if wakeup == Wakeup::default() && !is_last {
        let elapsed = clock.now().saturating_sub(start);
        wait.timeout = wait.timeout.map(|timeout| timeout.saturating_sub(elapsed));
        return None;
    }
    Some(wakeup)
}
