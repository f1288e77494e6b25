//! A few threads for what waits inside the kernel, started when there is work
//! and gone when there has been none for a while. No signal reaches any of them.

mod queue;

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::CStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use self::queue::{Pushed, Queue, Since};
use crate::errno::Errno;
use crate::guarded::guarded;
use crate::sys::{self, NoSignals, PerProcess, Spawned};

/// What the queue is made of. The model check (`crates/model`) compiles it
/// against its own.
mod sync {
    pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
}

/// How long a thread without work stays.
const LINGER: Duration = Duration::from_secs(10);
/// Work waits for so long while none is taken, before all threads count as held
/// up.
const HELD_UP: Duration = Duration::from_millis(50);

/// Something for a thread to do.
pub(crate) trait Work: Send + Sized + 'static {
    /// Does it; what is left of it goes behind the others.
    fn work(self) -> Option<Self>;
}

/// A call, done at once.
pub(crate) type Call = Box<dyn FnOnce() + Send>;

impl Work for Call {
    fn work(self) -> Option<Call> {
        self();
        None
    }
}

/// Who a pool's threads belong to: an engine's number, or nobody in particular.
pub(crate) const NOBODY: usize = 0;

/// A few threads.
pub(crate) struct ThreadPool<W> {
    queue: Queue<W>,
    threads: Mutex<Vec<Spawned>>,
    owner: usize,
}

thread_local! {
    static OWNER: Cell<usize> = const { Cell::new(NOBODY) };
}

/// This thread is that owner's.
pub(crate) fn is_of(owner: usize) -> bool {
    OWNER.get() == owner
}

/// Starts a thread that no signal ever reaches.
pub(crate) fn start(
    name: &'static CStr,
    owner: usize,
    body: impl FnOnce() + Send + 'static,
) -> Result<Spawned, Errno> {
    let signals = NoSignals::start();
    let started = sys::spawn(name, move || {
        OWNER.set(owner);
        body();
    });
    drop(signals);
    started
}

/// Gives the calling thread another name.
pub(crate) fn rename(name: &CStr) {
    let _ = rustix::thread::set_name(name);
}

impl<W: Work> ThreadPool<W> {
    /// With so many threads at most, not counting those that are blocked in the
    /// kernel.
    pub(crate) fn new(owner: usize, threads: usize) -> Arc<ThreadPool<W>> {
        Arc::new(ThreadPool {
            queue: Queue::new(threads),
            threads: Mutex::new(Vec::new()),
            owner,
        })
    }

    /// Puts work at the end. Gives back what no thread can be had for.
    #[must_use]
    pub(crate) fn submit(self: &Arc<Self>, work: W) -> VecDeque<W> {
        match self.queue.push(work) {
            Ok(Pushed::Queued) => VecDeque::new(),
            Ok(Pushed::StartOne) => self.start_one(),
            Ok(Pushed::Oversee) => {
                let pool = Arc::clone(self);
                if self
                    .start(c"cordboard-watch", move || pool.oversee())
                    .is_err()
                {
                    self.queue.not_overseen();
                }
                VecDeque::new()
            }
            Err(work) => VecDeque::from([work]),
        }
    }

    fn start(
        &self,
        name: &'static CStr,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<(), Errno> {
        let thread = start(name, self.owner, body)?;
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        Ok(())
    }

    /// Gives back all there is to do where it is the only thread, and can't be
    /// had.
    fn start_one(self: &Arc<Self>) -> VecDeque<W> {
        let pool = Arc::clone(self);
        match self.start(c"cordboard-work", move || pool.run()) {
            Ok(()) => VecDeque::new(),
            // EAGAIN: the limit of threads.
            Err(_) => self.queue.not_started(),
        }
    }

    fn run(&self) {
        let mut since = Since::default();
        while let Some(mut work) = self.queue.next(LINGER, &mut since) {
            // A panic takes the work along, and not the thread.
            while let Some(Some(rest)) = guarded(|| work.work()) {
                match self.queue.trade(rest, &mut since) {
                    Some(next) => work = next,
                    None => return,
                }
            }
        }
    }

    fn oversee(self: &Arc<Self>) {
        while self.queue.oversee(HELD_UP, LINGER) {
            for mut work in self.start_one() {
                while let Some(Some(rest)) = guarded(|| work.work()) {
                    work = rest;
                }
            }
        }
    }

    /// Waits until all is done that there is to do.
    pub(crate) fn close(&self) {
        self.queue.close();
        loop {
            // The monitor may have started one meanwhile.
            let threads =
                std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
            if threads.is_empty() {
                return;
            }
            for thread in threads {
                thread.join();
            }
        }
    }
}

/// Has a thread of the process's own do this, beside all engines: what waits in
/// the kernel on behalf of a transfer that must not. The call comes back where
/// no thread is to be had.
pub(crate) fn spawn(call: Call) -> Result<(), Call> {
    /// As many reads and writes as a transfer may have on their way.
    const THREADS: usize = 8;
    static POOL: PerProcess<Arc<ThreadPool<Call>>> = PerProcess::new();
    let Ok(pool) =
        POOL.get(|_| Ok::<_, std::convert::Infallible>(ThreadPool::new(NOBODY, THREADS)));
    let own = address(&call);
    settle(pool.submit(call), own)
}

/// Tells one call from another, if it captures anything.
fn address(call: &Call) -> *const () {
    std::ptr::from_ref(&**call).cast()
}

/// Makes the calls that no thread can be had for, except this caller's own, which
/// it gives back. The last caller whose thread could not be started gets the calls
/// of all.
fn settle(refused: VecDeque<Call>, own: *const ()) -> Result<(), Call> {
    let mut mine = None;
    for call in refused {
        match address(&call) == own {
            true => mine = Some(call),
            false => call(),
        }
    }
    mine.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One thread is blocked, others have left, and none is available at the
    /// moment: the monitor tries again, because no other thread will.
    #[test]
    fn work_that_no_thread_was_to_be_had_for_is_seen_to() {
        const MOMENT: Duration = Duration::from_millis(10);
        let queue: Arc<Queue<u8>> = Arc::new(Queue::new(2));
        let mut threads = [Since::default(); 3];
        let take = |since: &mut Since| queue.next(Duration::ZERO, since);
        for (n, since) in (1..).zip(&mut threads[..2]) {
            assert_eq!(queue.push(n), Ok(Pushed::StartOne));
            assert_eq!(take(since), Some(n));
        }
        assert_eq!(queue.push(3), Ok(Pushed::Oversee));
        let wanted = std::thread::scope(|scope| {
            let monitor = scope.spawn(|| {
                let first = queue.oversee(MOMENT, 100 * LINGER);
                let mut third = Since::default();
                assert_eq!(queue.next(Duration::ZERO, &mut third), Some(3));
                assert_eq!(queue.next(Duration::ZERO, &mut third), None);
                (first, queue.oversee(MOMENT, 100 * MOMENT))
            });
            // Asleep by then, since there is nothing that waits.
            while !queue.is_overseen_asleep() {
                std::thread::yield_now();
            }
            assert_eq!(take(&mut threads[1]), None);
            assert_eq!(queue.push(4), Ok(Pushed::StartOne));
            assert!(queue.not_started().is_empty());
            monitor.join().unwrap()
        });
        assert_eq!(wanted, (true, true));
        assert_eq!(take(&mut threads[2]), Some(4));
    }

    /// Two callers ask for a thread each, and none can be had: the one that
    /// learns it last gets its own call back, and does the other's.
    #[test]
    fn each_caller_gets_its_own_call_back() {
        for second_is_last in [false, true] {
            let queue: Queue<Call> = Queue::new(2);
            let (told, heard) = std::sync::mpsc::channel();
            let call = |n: usize| -> Call {
                let told = told.clone();
                Box::new(move || told.send(n).unwrap())
            };
            let calls = [call(0), call(1)];
            let owns = [&calls[0], &calls[1]].map(address);
            for call in calls {
                assert!(
                    queue
                        .push(call)
                        .is_ok_and(|pushed| pushed == Pushed::StartOne)
                );
            }
            let (first, last) = (usize::from(!second_is_last), usize::from(second_is_last));
            assert!(settle(queue.not_started(), owns[first]).is_ok());
            let back = settle(queue.not_started(), owns[last]).err();
            assert_eq!(heard.try_iter().collect::<Vec<_>>(), [first]);
            back.expect("its own")();
            assert_eq!(heard.try_iter().collect::<Vec<_>>(), [last]);
        }
    }

    /// A thread was told of work and has not begun: it takes one piece, and may
    /// block at it. Another thread that was replaced does not leave the rest of
    /// its work if no thread would come to it.
    #[test]
    fn a_replaced_thread_leaves_its_rest_to_another() {
        const MOMENT: Duration = Duration::from_millis(10);
        for overseen in [false, true] {
            let queue: Queue<u8> = Queue::new(1);
            let mut threads = [Since::default(); 3];
            let take = |since: &mut Since| queue.next(Duration::ZERO, since);
            assert_eq!(queue.push(1), Ok(Pushed::StartOne));
            assert_eq!(take(&mut threads[0]), Some(1));
            assert_eq!(queue.push(2), Ok(Pushed::Oversee));
            assert!(queue.oversee(MOMENT, MOMENT), "the first takes long");
            assert_eq!(take(&mut threads[1]), Some(2));
            queue.has_a_slow_one();
            let put_back = |since: &mut Since| {
                assert_eq!(queue.push(3), Ok(Pushed::Queued));
                queue.trade(10, since)
            };
            if !overseen {
                assert!(!queue.oversee(MOMENT, Duration::ZERO));
                assert_eq!(put_back(&mut threads[0]), Some(3), "it stays");
                continue;
            }
            let wanted = std::thread::scope(|scope| {
                let monitor = scope.spawn(|| queue.oversee(MOMENT, 100 * MOMENT));
                while !queue.is_overseen_asleep() {
                    std::thread::yield_now();
                }
                assert_eq!(put_back(&mut threads[0]), None);
                monitor.join().unwrap()
            });
            assert!(wanted, "another thread");
            assert_eq!(take(&mut threads[2]), Some(3));
        }
    }
}
