//! A pool of threads that take work from one queue.

use std::collections::VecDeque;
use std::ffi::CStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::queue::{Pushed, Queue, Since};
use super::thread;
use crate::errno::Errno;
use crate::guarded::guarded;
use crate::sys::Spawned;

/// How long a thread without work waits before it exits.
const LINGER: Duration = Duration::from_secs(10);
/// If work waits, and none is taken for this long, all threads count as
/// blocked.
const HELD_UP: Duration = Duration::from_millis(50);

/// A piece of work for a thread.
pub(crate) trait Work: Send + Sized + 'static {
    /// Does the work. The rest, if it returns one, is queued again behind other
    /// work.
    fn work(self) -> Option<Self>;
}

/// A pool of threads.
pub(crate) struct ThreadPool<W> {
    queue: Queue<W>,
    threads: Mutex<Vec<Spawned>>,
    owner: usize,
}

impl<W: Work> ThreadPool<W> {
    /// Makes a pool of at most `threads` threads, not counting those that are
    /// blocked in the kernel.
    pub(crate) fn new(owner: usize, threads: usize) -> Arc<ThreadPool<W>> {
        Arc::new(ThreadPool {
            queue: Queue::new(threads),
            threads: Mutex::new(Vec::new()),
            owner,
        })
    }

    /// Appends work. Returns the work that no thread could be started for.
    #[must_use]
    pub(crate) fn submit(self: &Arc<Self>, work: W) -> VecDeque<W> {
        match self.queue.push(work) {
            Ok(Pushed::Queued) => VecDeque::new(),
            Ok(Pushed::StartOne) => self.start_one(),
            Ok(Pushed::Oversee) => {
                let pool = Arc::clone(self);
                match self.start(c"cordboard-watch", move || pool.oversee()) {
                    Ok(()) => VecDeque::new(),
                    Err(_) => self.queue.not_overseen(),
                }
            }
            Err(work) => VecDeque::from([work]),
        }
    }

    fn start(
        &self,
        name: &'static CStr,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<(), Errno> {
        let thread = thread::start(name, self.owner, body)?;
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        Ok(())
    }

    /// Returns the work that no thread will take, if none can be started.
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
            // A panic ends this piece of work, not the thread.
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
            let mut left = self.start_one();
            if left.is_empty() {
                continue;
            }
            // The work may block this thread, which then monitors no other work.
            left.extend(self.queue.not_overseen());
            for mut work in left {
                while let Some(Some(rest)) = guarded(|| work.work()) {
                    work = rest;
                }
            }
            return;
        }
    }

    /// Waits until all queued work is done.
    pub(crate) fn close(&self) {
        self.queue.close();
        loop {
            // The monitor may have started another thread meanwhile.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// One thread is blocked, the others have exited, and no thread can be
    /// started: the monitor tries again, because no other thread will.
    #[test]
    fn work_is_retried_if_no_thread_could_be_started() {
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
            // The monitor is asleep by then, since no work waits.
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

    /// One thread is blocked, and neither another one nor the monitor can be started:
    /// the thread that has submitted the work gets it back.
    #[test]
    fn no_work_waits_for_a_blocked_thread() {
        for most in [1, 2] {
            let queue: Queue<u8> = Queue::new(most);
            let mut blocked = Since::default();
            assert_eq!(queue.push(1), Ok(Pushed::StartOne));
            assert_eq!(queue.next(Duration::ZERO, &mut blocked), Some(1));
            let back = match queue.push(2) {
                Ok(Pushed::StartOne) if most == 2 => queue.not_started(),
                Ok(Pushed::Oversee) if most == 1 => queue.not_overseen(),
                pushed => panic!("{pushed:?}"),
            };
            assert_eq!(back, [2]);
        }
    }

    /// Work for which a thread is being started, or is idle, is not given back.
    #[test]
    fn work_that_a_thread_will_take_stays() {
        let queue: Queue<u8> = Queue::new(3);
        let mut first = Since::default();
        for n in 1..=3 {
            assert_eq!(queue.push(n), Ok(Pushed::StartOne));
        }
        assert_eq!(queue.not_started(), [3]);
        assert_eq!(queue.next(Duration::ZERO, &mut first), Some(1));
        queue.has_a_slow_one();
        assert!(queue.not_started().is_empty());
        assert_eq!(queue.next(Duration::ZERO, &mut first), Some(2));
    }

    /// A thread that was woken for work and has not begun takes one piece, and
    /// may block in it. A thread that was replaced keeps the rest of its work
    /// if no other thread would take that.
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
