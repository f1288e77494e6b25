//! The end of a transfer, with every way to wait for it.

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use crate::completion::{Completion, Ending, Taken};
use crate::scheduler::sync::atomic::{AtomicUsize, Ordering};
use crate::scheduler::{in_every_order, thread};
use crate::sync::WakeFd;

#[derive(Debug, PartialEq)]
struct Outcome(u32);

impl Ending for Outcome {
    type Report = u32;

    fn report(&self) -> &u32 {
        &self.0
    }
}

type Shared = Arc<Completion<Outcome>>;

fn ends(completion: &Shared) -> thread::JoinHandle<()> {
    let completion = Arc::clone(completion);
    thread::spawn(move || completion.end(Outcome(7)))
}

fn is_whole(taken: &Taken<Outcome>) -> bool {
    match taken {
        Taken::Whole(outcome) => outcome.0 == 7,
        Taken::Again(report) => {
            assert_eq!(*report, 7);
            false
        }
    }
}

fn waits_for_end(completion: &Shared) {
    assert!(completion.wait_for_end(|| Some(Duration::MAX)));
}

fn waited(completion: &Shared) -> Taken<Outcome> {
    waits_for_end(completion);
    completion.taken().unwrap()
}

struct Flag(WakeFd);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.signal();
    }
}

/// Polls until it has ended, and sleeps in between.
fn polled(completion: &Shared) -> Taken<Outcome> {
    let flag = Arc::new(Flag(WakeFd::new().unwrap()));
    let waker = Waker::from(Arc::clone(&flag));
    loop {
        if let Some(taken) = completion.poll(&waker) {
            return taken;
        }
        flag.0.wait();
        flag.0.clear();
    }
}

#[test]
fn a_waiting_thread_is_woken() {
    in_every_order(|| {
        let completion: Shared = Arc::new(Completion::new());
        let end = ends(&completion);
        assert!(is_whole(&waited(&completion)));
        end.join().unwrap();
    });
}

#[test]
fn waiting_does_not_take_the_outcome() {
    in_every_order(|| {
        let completion: Shared = Arc::new(Completion::new());
        let waits = Arc::clone(&completion);
        let other = thread::spawn(move || waits_for_end(&waits));
        let end = ends(&completion);
        waits_for_end(&completion);
        assert_eq!(completion.try_take(), Some(Outcome(7)));
        // A taken outcome has ended too.
        waits_for_end(&completion);
        for thread in [other, end] {
            thread.join().unwrap();
        }
    });
}

/// A thread can give up waiting: in a child of a signal handler's `fork(2)`, the
/// transfer never ends.
#[test]
fn a_wait_can_be_given_up() {
    in_every_order(|| {
        let completion: Shared = Arc::new(Completion::new());
        let end = ends(&completion);
        let mut sleeps = 2;
        let ended = completion.wait_for_end(|| {
            sleeps -= 1;
            (sleeps > 0).then_some(Duration::MAX)
        });
        assert!(!ended || completion.has_ended());
        end.join().unwrap();
        assert!(completion.has_ended());
    });
}

#[test]
fn a_task_is_woken() {
    in_every_order(|| {
        let completion: Shared = Arc::new(Completion::new());
        let end = ends(&completion);
        assert!(is_whole(&polled(&completion)));
        end.join().unwrap();
    });
}

#[test]
fn the_last_registered_waker_is_woken() {
    in_every_order(|| {
        let completion: Shared = Arc::new(Completion::new());
        let end = ends(&completion);
        let before = Waker::from(Arc::new(Flag(WakeFd::new().unwrap())));
        if completion.poll(&before).is_none() {
            assert!(is_whole(&polled(&completion)));
        }
        end.join().unwrap();
    });
}

/// A waker that is cloned, dropped or called may ask for the status: none of that
/// happens under the lock.
#[test]
fn a_waker_asks_for_the_status() {
    use std::task::{RawWaker, RawWakerVTable};
    fn ask(data: *const ()) {
        // SAFETY: each of these pointers owns a count of the completion's.
        unsafe { &*data.cast::<Completion<Outcome>>() }.has_ended();
    }
    fn clone(data: *const ()) -> RawWaker {
        ask(data);
        // SAFETY: as above; the clone gets a count of its own.
        unsafe { Arc::increment_strong_count(data.cast::<Completion<Outcome>>()) };
        RawWaker::new(data, &TABLE)
    }
    fn forget(data: *const ()) {
        ask(data);
        // SAFETY: the count of the waker that is dropped or used up here.
        unsafe { Arc::decrement_strong_count(data.cast::<Completion<Outcome>>()) };
    }
    static TABLE: RawWakerVTable = RawWakerVTable::new(clone, forget, ask, forget);
    in_every_order(|| {
        let completion: Shared = Arc::new(Completion::new());
        let end = ends(&completion);
        for _ in 0..2 {
            let data = Arc::into_raw(Arc::clone(&completion)).cast();
            // SAFETY: the table's functions take what `into_raw` has given.
            let waker = unsafe { Waker::from_raw(RawWaker::new(data, &TABLE)) };
            let _ = completion.poll(&waker);
        }
        end.join().unwrap();
        assert!(completion.has_ended());
    });
}

#[test]
fn one_of_many_gets_the_outcome() {
    in_every_order(|| {
        let completion: Shared = Arc::new(Completion::new());
        let wholes = Arc::new(AtomicUsize::new(0));
        let waits = {
            let (completion, wholes) = (Arc::clone(&completion), Arc::clone(&wholes));
            thread::spawn(move || {
                wholes.fetch_add(
                    usize::from(is_whole(&waited(&completion))),
                    Ordering::SeqCst,
                );
            })
        };
        let tries = {
            let (completion, wholes) = (Arc::clone(&completion), Arc::clone(&wholes));
            thread::spawn(move || {
                let got = completion.try_take().is_some();
                wholes.fetch_add(usize::from(got), Ordering::SeqCst);
            })
        };
        let end = ends(&completion);
        let here = is_whole(&polled(&completion));
        wholes.fetch_add(usize::from(here), Ordering::SeqCst);
        for thread in [waits, tries, end] {
            thread.join().unwrap();
        }
        assert_eq!(wholes.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn the_descriptor_is_readable_whenever_it_was_made() {
    in_every_order(|| {
        let completion: Shared = Arc::new(Completion::new());
        let asks = Arc::clone(&completion);
        let other = thread::spawn(move || asks.wake_fd(|| Ok(())).unwrap().wait());
        let end = ends(&completion);
        completion.wake_fd(|| Ok(())).unwrap().wait();
        assert!(completion.has_ended(), "signalled before the end");
        assert!(completion.try_take().is_some());
        other.join().unwrap();
        end.join().unwrap();
        assert!(
            completion.wake_fd(|| Ok(())).unwrap().is_signalled(),
            "and stays readable"
        );
    });
}

#[test]
fn every_callback_is_called_once() {
    in_every_order(|| {
        let completion: Shared = Arc::new(Completion::new());
        let calls = Arc::new(AtomicUsize::new(0));
        let registers = |completion: &Shared| {
            let (completion, calls) = (Arc::clone(completion), Arc::clone(&calls));
            thread::spawn(move || {
                let within = Arc::clone(&completion);
                completion.on_end(Box::new(move |report| {
                    // A call from a callback does not deadlock.
                    within.has_ended();
                    calls.fetch_add(*report as usize, Ordering::SeqCst);
                }));
            })
        };
        let threads = [
            registers(&completion),
            registers(&completion),
            ends(&completion),
        ];
        let taken = is_whole(&waited(&completion));
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(taken);
        assert_eq!(calls.load(Ordering::SeqCst), 14);
    });
}

#[test]
fn only_the_first_cancel_returns_true() {
    in_every_order(|| {
        let completion: Shared = Arc::new(Completion::new());
        let other = Arc::clone(&completion);
        let cancels = thread::spawn(move || usize::from(other.cancel()));
        let end = ends(&completion);
        let firsts = usize::from(completion.cancel()) + cancels.join().unwrap();
        assert_eq!((firsts, completion.is_cancelled()), (1, true));
        // Dropped before or after the end: the last reference drops the outcome.
        drop(completion);
        end.join().unwrap();
    });
}
