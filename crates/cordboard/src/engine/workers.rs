//! The work of an engine's worker threads, which may block in the kernel: steps of
//! transfers with a file, a block device or a terminal, and the settling of
//! transfers that sync.
//!
//! A piece of work is bounded and is queued again behind the others, so a large
//! copy does not delay a small one.

use std::sync::Arc;
use std::time::Duration;

use super::job::Job;
use crate::endpoint::Side;
use crate::threads;
use crate::transfer::{Next, SPIN_TIME, ThreadKind, Wait, WaitFor, Waiter, Wakeup};

/// Bytes per piece.
const PIECE: u64 = 4 << 20;
/// Steps per piece.
const STEPS: u32 = 64;

/// A task for a worker.
pub(super) enum Task {
    /// Take some steps of a transfer.
    Piece(Box<Job>),
    /// Settle a transfer.
    Settle(Box<Job>),
}

impl threads::Work for Task {
    fn work(self) -> Option<Task> {
        match self {
            Task::Piece(job) => piece(job),
            Task::Settle(job) => {
                job.finish();
                None
            }
        }
    }
}

/// Takes steps of a transfer until it waits or ends, or the piece is complete.
fn piece(mut job: Box<Job>) -> Option<Task> {
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
            Next::Wait(wait) => {
                job.wait = Some(wait);
                match poll_now(&mut job, &wait) {
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
