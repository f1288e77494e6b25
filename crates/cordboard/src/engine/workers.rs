//! What an engine's threads do for what waits inside the kernel: anything with a file, a block
//! device or a terminal, and the end of a transfer that syncs.
//!
//! A piece of work is bounded and goes back behind the others, so that one huge
//! copy never holds up a small one.

use std::sync::Arc;
use std::time::Duration;

use super::job::Job;
use crate::endpoint::Side;
use crate::threads;
use crate::transfer::{Next, SPIN_TIME, ThreadKind, Wait, WaitFor, Waiter, Wakeup};

/// Bytes after which others have their turn.
const PIECE: u64 = 4 << 20;
/// The same, in steps.
const STEPS: u32 = 64;

/// Something for a worker to do.
pub(super) enum Task {
    /// Some steps of a transfer.
    Piece(Box<Job>),
    /// The end of one.
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

/// Some steps of a transfer: until it waits, has ended, or has had its share.
fn piece(mut job: Box<Job>) -> Option<Task> {
    job.transfer.runs_on = ThreadKind::Worker;
    let engine = Arc::clone(&job.ticket.engine);
    let moved = |job: &Job| job.transfer.counts().0 + job.transfer.counts().1;
    let enough = moved(&job).saturating_add(2 * PIECE);
    for _ in 0..STEPS {
        // Before each step: some take as long as a disk does.
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
                        return back(job);
                    }
                }
            }
            Next::Elsewhere => return back(job),
            Next::End(turn) => {
                job.ending = Some(turn);
                job.finish();
                return None;
            }
        }
    }
    Some(Task::Piece(job))
}

/// To the reactor, which waits for it or goes on with it.
fn back(job: Box<Job>) -> Option<Task> {
    let engine = Arc::clone(&job.ticket.engine);
    // It reads until the last transfer has ended, this one included, or has
    // given up.
    if let Err(job) = engine.take_back(job) {
        job.finish();
    }
    None
}

/// What there is already of what a transfer would wait for.
pub(super) fn ready_already(job: &mut Job, wait: &Wait) -> Option<Wakeup> {
    // A blocking descriptor is polled before each use, ready or not.
    match job.transfer.step_checked_readiness(wait) {
        true => None,
        false => poll_now(job, wait),
    }
}

/// The same, also of what would tell by itself: a worker may look
/// for a short while before it gives the transfer back.
fn poll_now(job: &mut Job, wait: &Wait) -> Option<Wakeup> {
    let WaitFor::Side(side) = wait.target else {
        return None;
    };
    let mut clock = job.ticket.engine.clock();
    let transfer = &mut job.transfer;
    let patient = transfer.runs_on == ThreadKind::Worker
        && side == Side::Sink
        && transfer.spin.worth_it(&transfer.flow);
    let wakeup = if patient {
        let wakeup = clock.spin(&wait.interest(transfer), SPIN_TIME).ok()?;
        transfer.spin.learn(wakeup.ready);
        wakeup
    } else {
        let no_wait = Some(Duration::ZERO);
        clock.wait(&wait.interest(transfer), no_wait).ok()?
    };
    (wakeup != Wakeup::default()).then_some(wakeup)
}
