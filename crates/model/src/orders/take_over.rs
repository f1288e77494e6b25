//! A thread that is held up in a step, and one that takes over from it.

use std::sync::Arc;
use std::time::Duration;

use crate::inbox::Inbox;
use crate::scheduler::sync::Mutex;
use crate::scheduler::sync::atomic::{AtomicUsize, Ordering};
use crate::scheduler::{in_every_order, thread};
use crate::takeover::{TakenOver, Takeover};

const STEPS: usize = 3;

/// What there is one of.
#[derive(Default)]
struct WithReactor {
    steps: usize,
    /// Threads that have had it so far.
    threads: usize,
}

#[derive(Default)]
struct Threads(Mutex<Vec<thread::JoinHandle<()>>>);

struct ReactorHandle {
    takeover: Takeover<WithReactor>,
    inbox: Inbox<()>,
    /// Steps that are being taken, or were.
    taken: AtomicUsize,
    /// Threads that are in charge.
    in_charge: AtomicUsize,
    engine: Threads,
}

/// As `engine/reactor.rs` does it: steps until there are enough, with those that
/// come back from whoever was held up. Anybody may be taken for that here.
fn run(handle: &Arc<ReactorHandle>, mut charge: WithReactor) {
    charge.threads += 1;
    let this = charge.threads;
    watch(handle);
    let mut messages = Vec::new();
    loop {
        assert_eq!(handle.in_charge.fetch_add(1, Ordering::SeqCst), 0);
        handle.inbox.take(&mut messages);
        let nothing_new = messages.is_empty();
        charge.steps += messages.drain(..).count();
        let enough = charge.steps == STEPS;
        let waits = !enough && handle.taken.load(Ordering::SeqCst) == STEPS;
        handle.in_charge.fetch_sub(1, Ordering::SeqCst);
        if enough {
            return handle.takeover.close();
        }
        if waits {
            if nothing_new {
                let sleep = handle.takeover.begin_sleep(charge);
                handle.inbox.eventfd().wait();
                handle.inbox.eventfd().clear();
                // Nobody takes it from a thread that can be woken.
                charge = handle.takeover.reclaim(sleep).unwrap();
            }
            continue;
        }
        handle.taken.fetch_add(1, Ordering::SeqCst);
        let step = handle.takeover.begin_step(charge);
        thread::yield_now();
        match handle.takeover.reclaim(step) {
            Some(back) => {
                assert_eq!(back.threads, this, "it is somebody else's by now");
                charge = back;
            }
            None => {
                assert!(handle.inbox.push(()).is_ok());
                return;
            }
        }
        charge.steps += 1;
    }
}

fn watch(handle: &Arc<ReactorHandle>) {
    let on = Arc::clone(handle);
    let thread = thread::spawn(move || {
        let second = Duration::from_secs(1);
        if let Some(TakenOver::Blocked(charge)) = on.takeover.watch(second, || true, || false) {
            run(&on, charge);
        }
    });
    handle.engine.0.lock().unwrap().push(thread);
}

#[test]
fn one_is_in_charge_and_no_step_is_lost() {
    in_every_order(|| {
        let handle = Arc::new(ReactorHandle {
            takeover: Takeover::new(),
            inbox: Inbox::new().unwrap(),
            taken: AtomicUsize::new(0),
            in_charge: AtomicUsize::new(0),
            engine: Threads::default(),
        });
        let first = Arc::clone(&handle);
        let thread = thread::spawn(move || run(&first, WithReactor::default()));
        thread.join().unwrap();
        loop {
            let Some(thread) = handle.engine.0.lock().unwrap().pop() else {
                break;
            };
            thread.join().unwrap();
        }
        assert_eq!(handle.taken.load(Ordering::SeqCst), STEPS);
    });
}

/// Somebody notices that the thread in charge cannot be woken any more, before
/// it sleeps or after: if it sleeps, the watch has what it had.
#[test]
fn what_a_sleeping_thread_has_is_taken_once_it_is_gone() {
    in_every_order(|| {
        let takeover = Arc::new(Takeover::new());
        let cannot_wake = Arc::new(AtomicUsize::new(0));
        let watch = {
            let (takeover, cannot_wake) = (Arc::clone(&takeover), Arc::clone(&cannot_wake));
            thread::spawn(move || {
                let cannot_wake = || cannot_wake.load(Ordering::SeqCst) == 1;
                let left = takeover.watch(Duration::from_secs(1), || false, cannot_wake);
                matches!(left, Some(TakenOver::Unwakeable(7)))
            })
        };
        let notices = {
            let takeover = Arc::clone(&takeover);
            thread::spawn(move || {
                takeover.recheck();
                cannot_wake.store(1, Ordering::SeqCst);
                takeover.recheck();
            })
        };
        // A step in between is nobody's to take.
        let step = takeover.begin_step(7);
        let charge = takeover.reclaim(step).unwrap();
        let sleep = takeover.begin_sleep(charge);
        notices.join().unwrap();
        let back = takeover.reclaim(sleep);
        if back.is_some() {
            takeover.close();
        }
        assert_eq!(watch.join().unwrap(), back.is_none());
    });
}
