//! The threads for what waits inside the kernel: anything with a file, a block
//! device or a terminal, and the end of a transfer that syncs.
//!
//! A piece of work is bounded and goes back behind the others, so that one huge
//! copy never holds up a small one.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::job::Job;
use super::message::Message;
use super::queue::{Pushed, Queue};
use crate::endpoint::Side;
use crate::sys::{NoSignals, PerProcess};
use crate::transfer::{Awake, Need, Next, Place, SPELL, Waiter, What};

/// How long a thread without work stays.
const LINGER: Duration = Duration::from_secs(10);
/// Bytes after which others have their turn.
const PIECE: u64 = 4 << 20;
/// The same, in steps.
const STEPS: u32 = 64;

/// Something for a worker to do.
pub(super) enum Work {
    /// Some steps of a transfer.
    Piece(Box<Job>),
    /// The end of one.
    Settle(Box<Job>),
    /// Anything else.
    Call(Box<dyn FnOnce() + Send>),
}

impl Work {
    /// Does it; what is left of it goes behind the others.
    pub(super) fn work(self) -> Option<Work> {
        match self {
            Work::Piece(job) => piece(job),
            Work::Settle(job) => {
                job.finish();
                None
            }
            Work::Call(call) => {
                call();
                None
            }
        }
    }
}

/// A few threads.
pub(super) struct Pool {
    queue: Queue<Work>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The engine whose they are.
    engine: usize,
}

thread_local! {
    static ENGINE: Cell<usize> = const { Cell::new(0) };
}

/// This thread is that engine's.
pub(super) fn is_inside(engine: usize) -> bool {
    ENGINE.get() == engine
}

/// Starts a thread of an engine, which no signal ever reaches.
pub(super) fn start_thread(
    name: &str,
    engine: usize,
    body: impl FnOnce() + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    let signals = NoSignals::start();
    let started = std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            ENGINE.set(engine);
            body();
        });
    drop(signals);
    started
}

impl Pool {
    pub(super) fn new(engine: usize, threads: usize) -> Arc<Pool> {
        Arc::new(Pool {
            queue: Queue::new(threads),
            threads: Mutex::new(Vec::new()),
            engine,
        })
    }

    /// Puts work at the end. Gives back what no thread can be had for.
    #[must_use]
    pub(super) fn submit(self: &Arc<Self>, work: Work) -> VecDeque<Work> {
        match self.queue.push(work) {
            Ok(Pushed::Queued) => VecDeque::new(),
            Ok(Pushed::StartOne) => {
                let pool = Arc::clone(self);
                match start_thread("cordboard-work", self.engine, move || pool.run()) {
                    Ok(thread) => {
                        let mut threads =
                            self.threads.lock().unwrap_or_else(PoisonError::into_inner);
                        threads.retain(|thread| !thread.is_finished());
                        threads.push(thread);
                        VecDeque::new()
                    }
                    // EAGAIN: the limit of threads.
                    Err(_) => self.queue.not_started(),
                }
            }
            Err(work) => VecDeque::from([work]),
        }
    }

    fn run(&self) {
        while let Some(mut work) = self.queue.next(LINGER) {
            // A panic takes the work along, and not the thread.
            while let Ok(Some(rest)) = catch_unwind(AssertUnwindSafe(|| work.work())) {
                work = self.queue.trade(rest);
            }
        }
    }

    /// Waits until all is done that there is to do.
    pub(super) fn close(&self) {
        self.queue.close();
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            let _ = thread.join();
        }
    }
}

/// Some steps of a transfer: until it waits, has ended, or has had its share.
fn piece(mut job: Box<Job>) -> Option<Work> {
    job.transfer.place = Place::Worker;
    let core = Arc::clone(&job.ticket.core);
    let moved = |job: &Job| job.transfer.counts().0 + job.transfer.counts().1;
    let enough = moved(&job).saturating_add(2 * PIECE);
    for _ in 0..STEPS {
        match core.advance(&mut job) {
            Next::Step if moved(&job) >= enough => break,
            Next::Step => {}
            Next::Wait(need) => {
                job.need = Some(need);
                match glance(&mut job, &need) {
                    Some(awake) => job.awake = awake,
                    None => {
                        job.transfer.rest();
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
    Some(Work::Piece(job))
}

/// To the reactor, which waits for it or goes on with it.
fn back(job: Box<Job>) -> Option<Work> {
    let inbox = Arc::clone(job.ticket.core.inbox());
    // It reads until the last transfer has ended, this one included.
    let _ = inbox.push(Message::Run(job));
    None
}

/// What is there already of what a transfer would wait for: a worker may look
/// for a short while before it gives the transfer back.
pub(super) fn glance(job: &mut Job, need: &Need) -> Option<Awake> {
    let What::Side(side) = need.what else {
        return None;
    };
    let mut clock = job.ticket.core.clock();
    let transfer = &mut job.transfer;
    let patient = transfer.place == Place::Worker
        && side == Side::Sink
        && transfer.patience.worth_it(&transfer.flow);
    let awake = if patient {
        let awake = clock.watch(&need.interest(transfer), SPELL).ok()?;
        transfer.patience.learn(awake.ready);
        awake
    } else {
        let at_once = Some(Duration::ZERO);
        clock.wait(&need.interest(transfer), at_once).ok()?
    };
    (awake != Awake::default()).then_some(awake)
}

/// Has a thread of the process's own do this, beside all engines: what waits in
/// the kernel on behalf of a transfer that must not. The call comes back where
/// no thread is to be had.
pub(crate) fn spawn(call: Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn FnOnce() + Send>> {
    /// As many reads and writes as a transfer may have on their way.
    const THREADS: usize = 8;
    static POOL: PerProcess<Arc<Pool>> = PerProcess::new();
    let Ok(pool) = POOL.get(|_| Ok::<_, std::convert::Infallible>(Pool::new(0, THREADS)));
    let mut refused = pool.submit(Work::Call(call));
    let last = refused.pop_back();
    // Others' calls that the thread which could not be started was to do.
    for work in refused {
        work.work();
    }
    match last {
        Some(Work::Call(call)) => Err(call),
        _ => Ok(()),
    }
}
