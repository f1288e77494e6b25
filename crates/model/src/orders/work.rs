//! Work, and worker threads that start and exit with it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::queue::{Pushed, Queue, Since};
use crate::scheduler::sync::Mutex;
use crate::scheduler::sync::atomic::{AtomicUsize, Ordering};
use crate::scheduler::{by_chance, in_every_order, thread};
use crate::sync::EventFd;

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
        match self.queue.push(item).unwrap() {
            Pushed::Queued => {}
            Pushed::StartOne if fails && by_chance() => self.do_all(self.queue.not_started()),
            Pushed::StartOne => self.start(|pool| pool.run()),
            Pushed::Oversee if fails && by_chance() => self.do_all(self.queue.not_overseen()),
            Pushed::Oversee => self.start(move |pool| pool.oversee(fails)),
        }
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
                match self.queue.trade(item - 10, &mut since) {
                    Some(next) => item = next,
                    None => return,
                }
            }
            self.done.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Replaces a thread that takes long; here that may be any.
    fn oversee(self: &Arc<Self>, fails: bool) {
        let second = Duration::from_secs(1);
        while self.queue.oversee(second, second) {
            if !(fails && by_chance()) {
                self.start(|pool| pool.run());
                continue;
            }
            let mut left = self.queue.not_started();
            if !left.is_empty() {
                left.extend(self.queue.not_overseen());
                return self.do_all(left);
            }
        }
    }

    /// Does the work that no thread will take.
    fn do_all(&self, work: VecDeque<u32>) {
        self.done.fetch_add(work.len(), Ordering::SeqCst);
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
            let done = Arc::new(EventFd::new().unwrap());
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
            let back = match queue.push(2).unwrap() {
                Pushed::StartOne => queue.not_started(),
                Pushed::Oversee => queue.not_overseen(),
                Pushed::Queued => VecDeque::new(),
            };
            assert_eq!(back, [2]);
            done.signal();
            queue.close();
            blocked.join().unwrap();
        });
    }
}
