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
use crate::transfer::{Awake, Home, Need, Next, SPELL, Waiter, What};

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
    job.transfer.runs_on = Home::Worker;
    let crew = Arc::clone(&job.ticket.crew);
    let moved = |job: &Job| job.transfer.counts().0 + job.transfer.counts().1;
    let enough = moved(&job).saturating_add(2 * PIECE);
    for _ in 0..STEPS {
        // Before each step: some take as long as a disk does.
        if crew.is_lost() {
            job.let_go();
            return None;
        }
        match job.advance() {
            Next::Step if moved(&job) >= enough => break,
            Next::Step => {}
            Next::Wait(need) => {
                job.need = Some(need);
                match glance(&mut job, &need) {
                    Some(awake) => job.awake = awake,
                    None => {
                        job.rest();
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
    let crew = Arc::clone(&job.ticket.crew);
    // It reads until the last transfer has ended, this one included, or has
    // given up.
    if let Err(job) = crew.take_back(job) {
        job.finish();
    }
    None
}

/// What there is already of what a transfer would wait for.
pub(super) fn at_once(job: &mut Job, need: &Need) -> Option<Awake> {
    // A blocking descriptor is polled before each use, ready or not.
    match job.transfer.tells_by_itself(need) {
        true => None,
        false => glance(job, need),
    }
}

/// The same, also of what would tell by itself: a worker may look
/// for a short while before it gives the transfer back.
fn glance(job: &mut Job, need: &Need) -> Option<Awake> {
    let What::Side(side) = need.what else {
        return None;
    };
    let mut clock = job.ticket.crew.clock();
    let transfer = &mut job.transfer;
    let patient = transfer.runs_on == Home::Worker
        && side == Side::Sink
        && transfer.spin.worth_it(&transfer.flow);
    let awake = if patient {
        let awake = clock.watch(&need.interest(transfer), SPELL).ok()?;
        transfer.spin.learn(awake.ready);
        awake
    } else {
        let at_once = Some(Duration::ZERO);
        clock.wait(&need.interest(transfer), at_once).ok()?
    };
    (awake != Awake::default()).then_some(awake)
}
