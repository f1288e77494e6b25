//! Work, and worker threads that start and exit with it.

use std::sync::Arc;
use std::time::Duration;

use crate::queue::{Pushed, Queue, Since};
use crate::scheduler::sync::Mutex;
use crate::scheduler::sync::atomic::{AtomicUsize, Ordering};
use crate::scheduler::{by_chance, in_every_order, thread};
use crate::sync::WakeFd;

struct Pool {
    queue: Queue<u32>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
    done: AtomicUsize,
}

impl Pool {
    fn new(most: usize) -> Arc<Pool> {
        Arc::new(Pool {
            queue: Queue::new(most),
            threads: Mutex::new(Vec::new()),
            done: AtomicUsize::new(0),
        })
    }

    /// As `threads/pool.rs` does it. `fails`: starting a thread may fail.
    fn submit(self: &Arc<Self>, item: u32, fails: bool) {
        let started = match self.queue.push(item).unwrap() {
            Pushed::Queued => true,
            Pushed::StartOne => self.start_one(fails),
            Pushed::Oversee => self.start_monitor(fails),
        };
        if !started {
            self.do_untaken(fails, |pool, _| pool.count());
        }
    }

    fn start_one(self: &Arc<Self>, fails: bool) -> bool {
        if fails && by_chance() {
            self.queue.not_started();
            return false;
        }
        self.start(|pool| pool.run());
        true
    }

    fn start_monitor(self: &Arc<Self>, fails: bool) -> bool {
        if fails && by_chance() {
            self.queue.not_overseen();
            return false;
        }
        self.start(move |pool| pool.oversee(fails));
        true
    }

    /// Does the work that no thread will take.
    fn do_untaken(self: &Arc<Self>, fails: bool, here: impl Fn(&Pool, u32)) {
        while let Some(item) = self.queue.take_untaken() {
            here(self, item);
            if self.queue.needs_monitor() {
                self.start_monitor(fails);
            }
        }
    }

    fn count(&self) {
        self.done.fetch_add(1, Ordering::SeqCst);
    }

    fn start(self: &Arc<Self>, body: impl FnOnce(&Arc<Pool>) + Send + 'static) {
        let pool = Arc::clone(self);
        let thread = thread::spawn(move || body(&pool));
        self.threads.lock().unwrap().push(thread);
    }

    fn run(&self) {
        let mut since = Since::default();
        while let Some(mut item) = self.queue.next(Duration::from_secs(1), &mut since) {
            // Takes a piece and queues the rest behind the others.
            while item >= 10 {
                if self.queue.begin_wait() {
                    self.queue.end_wait();
                }
                match self.queue.trade(item - 10, &mut since) {
                    Some(next) => item = next,
                    None => return,
                }
            }
            self.count();
        }
    }

    /// Replaces a thread that takes long; here that may be any.
    fn oversee(self: &Arc<Self>, fails: bool) {
        let second = Duration::from_secs(1);
        while self.queue.oversee(second, second) {
            if self.start_one(fails) || !self.queue.ends_overseeing() {
                continue;
            }
            return self.do_untaken(fails, |pool, item| match item {
                10.. => pool.queue.put_back(item - 10),
                _ => pool.count(),
            });
        }
    }

    /// Waits for the threads, which exit once there is nothing to do.
    fn finish(&self) {
        self.queue.close();
        loop {
            let Some(thread) = self.threads.lock().unwrap().pop() else {
                return;
            };
            thread.join().unwrap();
        }
    }
}

fn all_is_done(most: usize, fails: bool) {
    in_every_order(move || {
        let pool = Pool::new(most);
        let other = Arc::clone(&pool);
        let submits = thread::spawn(move || {
            other.submit(1, fails);
            other.submit(21, fails);
        });
        pool.submit(12, fails);
        submits.join().unwrap();
        pool.finish();
        assert_eq!(pool.done.load(Ordering::SeqCst), 3);
    });
}

#[test]
fn by_one_thread_that_may_exit() {
    all_is_done(1, false);
}

#[test]
fn by_two_threads() {
    all_is_done(2, false);
}

#[test]
fn where_starting_a_thread_may_fail() {
    all_is_done(2, true);
}

/// A thread is blocked until the second piece of work is done, and no other thread can
/// be started. If the piece waited for that thread, both would wait forever.
#[test]
fn where_the_only_thread_is_blocked() {
    for most in [1, 2] {
        in_every_order(move || {
            let queue = Arc::new(Queue::new(most));
            let done = Arc::new(WakeFd::new().unwrap());
            assert_eq!(queue.push(1), Ok(Pushed::StartOne));
            let blocked = {
                let (queue, done) = (Arc::clone(&queue), Arc::clone(&done));
                thread::spawn(move || {
                    let mut since = Since::default();
                    let second = Duration::from_secs(1);
                    while let Some(item) = queue.next(second, &mut since) {
                        if item == 1 {
                            done.wait();
                        }
                    }
                })
            };
            match queue.push(2).unwrap() {
                Pushed::StartOne => queue.not_started(),
                Pushed::Oversee => queue.not_overseen(),
                Pushed::Queued => {}
            }
            assert_eq!(queue.take_untaken(), Some(2));
            done.signal();
            queue.close();
            blocked.join().unwrap();
        });
    }
}

/// A thread that could start no other is blocked in a piece of work until the next is done:
/// the monitor, or one that has submitted work. Another thread submits a third piece, and
/// can start threads. If the second piece waited for the blocked thread, both would wait
/// forever.
#[test]
fn where_a_thread_is_blocked_that_could_start_no_other() {
    for monitors in [true, false] {
        in_every_order(move || {
            let pool = Pool::new(1);
            let (begun, done) = (WakeFd::new().unwrap(), WakeFd::new().unwrap());
            let events = Arc::new((begun, done));
            assert_eq!(pool.queue.push(1), Ok(Pushed::StartOne));
            assert_eq!(pool.queue.push(2), Ok(Pushed::Oversee));
            pool.queue.not_started();
            match monitors {
                true => assert!(pool.queue.ends_overseeing()),
                false => pool.queue.not_overseen(),
            }
            let shared = Arc::clone(&events);
            pool.start(move |pool| {
                let (begun, done) = &*shared;
                pool.do_untaken(false, |pool, item| {
                    if item == 1 {
                        begun.signal();
                        done.wait();
                    }
                    pool.count();
                });
            });
            let (begun, done) = &*events;
            begun.wait();
            pool.submit(3, false);
            pool.queue.close();
            while pool.done.load(Ordering::SeqCst) < 2 {
                thread::yield_now();
            }
            done.signal();
            pool.finish();
            assert_eq!(pool.done.load(Ordering::SeqCst), 3);
        });
    }
}
