//! A pool of threads that take work from one queue.

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

    /// As [`Work::work`], on a thread that has other duties.
    fn work_at_once(self) -> Option<Self> {
        self.work()
    }
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

    /// Appends work. If no thread could be started, passes the work that no thread
    /// will take to `here`.
    pub(crate) fn submit(self: &Arc<Self>, work: W, mut here: impl FnMut(W)) {
        let started = match self.queue.push(work) {
            Ok(Pushed::Queued) => true,
            Ok(Pushed::StartOne) => self.start_one(),
            Ok(Pushed::Oversee) => self.start_monitor(),
            Err(work) => return here(work),
        };
        if !started {
            self.do_untaken(here);
        }
    }

    /// Returns whether work may wait on its thread for a few milliseconds. If so, `end_wait`
    /// follows.
    pub(crate) fn begin_wait(&self) -> bool {
        self.queue.begin_wait()
    }

    pub(crate) fn end_wait(&self) {
        self.queue.end_wait();
    }

    /// Passes the work that no thread will take to `here`, one piece at a time. A piece
    /// may block this thread: the others stay in the queue, since threads may be
    /// available again.
    fn do_untaken(self: &Arc<Self>, mut here: impl FnMut(W)) {
        while let Some(work) = self.queue.take_untaken() {
            here(work);
            if self.queue.needs_monitor() {
                self.start_monitor();
            }
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

    /// Starts a worker. Returns whether it could be started.
    fn start_one(self: &Arc<Self>) -> bool {
        let pool = Arc::clone(self);
        // EAGAIN: the limit of threads.
        let started = self.start(c"cordboard-work", move || pool.run()).is_ok();
        if !started {
            self.queue.not_started();
        }
        started
    }

    /// Starts the monitor. Returns whether it could be started.
    fn start_monitor(self: &Arc<Self>) -> bool {
        let pool = Arc::clone(self);
        let started = (self.start(c"cordboard-watch", move || pool.oversee())).is_ok();
        if !started {
            self.queue.not_overseen();
        }
        started
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
            if self.start_one() || !self.queue.ends_overseeing() {
                continue;
            }
            // The work may block this thread, which then monitors no other work.
            return self.do_untaken(|work| {
                if let Some(Some(rest)) = guarded(|| work.work_at_once()) {
                    self.queue.put_back(rest);
                }
            });
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
    use std::sync::mpsc::channel;

    use super::*;

    type Call = Box<dyn FnOnce() + Send>;

    impl Work for Call {
        fn work(self) -> Option<Call> {
            self();
            None
        }
    }

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
            queue.not_started();
            assert_eq!(queue.take_untaken(), None);
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
            match queue.push(2) {
                Ok(Pushed::StartOne) if most == 2 => queue.not_started(),
                Ok(Pushed::Oversee) if most == 1 => queue.not_overseen(),
                pushed => panic!("{pushed:?}"),
            }
            assert_eq!(queue.take_untaken(), Some(2));
            assert_eq!(queue.take_untaken(), None);
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
        queue.not_started();
        assert_eq!(queue.take_untaken(), Some(3));
        assert_eq!(queue.take_untaken(), None);
        assert_eq!(queue.next(Duration::ZERO, &mut first), Some(1));
        queue.has_a_slow_one();
        queue.not_started();
        assert_eq!(queue.take_untaken(), None);
        assert_eq!(queue.next(Duration::ZERO, &mut first), Some(2));
    }

    /// A thread waits within its work only if another one is free, and at most half of them do.
    #[test]
    fn further_work_finds_a_free_thread() {
        let queue: Queue<u8> = Queue::new(4);
        let mut threads = [Since::default(); 4];
        let take = |since: &mut Since| queue.next(Duration::ZERO, since);
        assert_eq!(queue.push(1), Ok(Pushed::StartOne));
        assert!(!queue.begin_wait(), "the work waits for its thread");
        assert_eq!(take(&mut threads[0]), Some(1));
        assert!(queue.begin_wait(), "a second one can be started");
        for thread in &mut threads[1..3] {
            assert_eq!(queue.push(1), Ok(Pushed::StartOne));
            assert_eq!(take(thread), Some(1));
        }
        assert!(queue.begin_wait());
        assert!(!queue.begin_wait(), "two of four wait");
        queue.end_wait();
        assert_eq!(queue.push(1), Ok(Pushed::StartOne));
        queue.not_started();
        assert_eq!(take(&mut threads[0]), Some(1));
        assert!(!queue.begin_wait(), "no thread can be started");
        assert_eq!(take(&mut threads[1]), None);
        assert_eq!(queue.push(1), Ok(Pushed::StartOne));
        assert_eq!(take(&mut threads[3]), Some(1));
        assert!(queue.begin_wait(), "one was started again");
        queue.end_wait();
        queue.end_wait();
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

    /// Work that waits while the thread that could start no other does a piece gets a
    /// monitor with the next work, and a thread if the queue is closed.
    #[test]
    fn work_that_was_left_gets_a_monitor() {
        let queue: Queue<u8> = Queue::new(1);
        assert_eq!(queue.push(1), Ok(Pushed::StartOne));
        assert_eq!(queue.push(2), Ok(Pushed::Oversee));
        queue.not_started();
        queue.not_overseen();
        assert_eq!(queue.take_untaken(), Some(1));
        assert_eq!(queue.push(3), Ok(Pushed::Oversee));
        queue.close();
        assert!(queue.oversee(LINGER, LINGER), "no thread exists");
        let mut first = Since::default();
        for n in [Some(2), Some(3), None] {
            assert_eq!(queue.next(LINGER, &mut first), n);
        }
        assert!(!queue.oversee(LINGER, LINGER));
    }

    /// A piece of work blocks the thread that could start no other, and ends when the
    /// next piece is done. Later another thread can be started: it takes the next piece.
    #[test]
    fn no_work_waits_behind_a_blocked_piece() {
        for monitors in [true, false] {
            assert!(testkit::child::in_a_child(|| waits_for_the_next(monitors)));
        }
    }

    /// Whether both pieces and a third are done. `monitors`: the blocked thread is the
    /// monitor, and not one that has submitted work.
    fn waits_for_the_next(monitors: bool) -> bool {
        let pool: Arc<ThreadPool<Call>> = ThreadPool::new(0, 1);
        let (begin, begun) = channel();
        let (release, released) = channel();
        let (tell, told) = channel();
        let first = Box::new({
            let tell = tell.clone();
            move || {
                begin.send(()).unwrap();
                tell.send(released.recv_timeout(LINGER).is_ok()).unwrap();
            }
        });
        assert_eq!(pool.queue.push(first).ok(), Some(Pushed::StartOne));
        let second = Box::new(move || release.send(()).unwrap());
        assert_eq!(pool.queue.push(second).ok(), Some(Pushed::Oversee));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                testkit::refuse::refuse(&[libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN);
                pool.queue.not_started();
                match monitors {
                    true => pool.oversee(),
                    false => {
                        pool.queue.not_overseen();
                        pool.do_untaken(|call| call());
                    }
                }
            });
            begun.recv().unwrap();
            let third = Box::new(move || tell.send(true).unwrap());
            pool.submit(third, |_| panic!("a thread can be started"));
        });
        pool.close();
        told.iter().eq([true, true])
    }
}
