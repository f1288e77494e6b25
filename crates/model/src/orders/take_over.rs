//! A thread that blocks in a step, and a watchdog that takes over from it.

use std::sync::Arc;
use std::time::Duration;

use crate::inbox::Inbox;
use crate::scheduler::sync::Mutex;
use crate::scheduler::sync::atomic::{AtomicUsize, Ordering};
use crate::scheduler::{in_every_order, thread};
use crate::takeover::{TakenOver, Takeover};

const STEPS: usize = 3;

/// The state that one thread owns at a time.
#[derive(Default)]
struct Owned {
    steps: usize,
    /// Threads that have owned it so far.
    threads: usize,
}

#[derive(Default)]
struct Threads(Mutex<Vec<thread::JoinHandle<()>>>);

struct Shared {
    takeover: Takeover<Owned>,
    inbox: Inbox<()>,
    /// Steps that have begun.
    taken: AtomicUsize,
    /// Threads that own the state.
    owners: AtomicUsize,
    watchdogs: Threads,
}

/// As `engine/reactor/run.rs` does it: takes steps until there are enough,
/// including those that blocked threads send back. Any thread may count as blocked
/// here.
fn run(shared: &Arc<Shared>, mut state: Owned) {
    state.threads += 1;
    let this = state.threads;
    watch(shared);
    let mut messages = Vec::new();
    loop {
        assert_eq!(shared.owners.fetch_add(1, Ordering::SeqCst), 0);
        shared.inbox.take(&mut messages);
        let nothing_new = messages.is_empty();
        state.steps += messages.drain(..).count();
        let enough = state.steps == STEPS;
        let waits = !enough && shared.taken.load(Ordering::SeqCst) == STEPS;
        shared.owners.fetch_sub(1, Ordering::SeqCst);
        if enough {
            return shared.takeover.close();
        }
        if waits {
            if nothing_new {
                let sleep = shared.takeover.begin_sleep(state);
                shared.inbox.eventfd().wait();
                shared.inbox.eventfd().clear();
                // The watchdog takes no state from a thread that can be woken.
                state = shared.takeover.reclaim(sleep).unwrap();
            }
            continue;
        }
        shared.taken.fetch_add(1, Ordering::SeqCst);
        let step = shared.takeover.begin_step(state);
        thread::yield_now();
        match shared.takeover.reclaim(step) {
            Some(back) => {
                assert_eq!(back.threads, this, "another thread owns it");
                state = back;
            }
            None => {
                assert!(shared.inbox.push(()).is_ok());
                return;
            }
        }
        state.steps += 1;
    }
}

fn watch(shared: &Arc<Shared>) {
    let on = Arc::clone(shared);
    let thread = thread::spawn(move || {
        let second = Duration::from_secs(1);
        if let Some(TakenOver::Blocked(state)) = on.takeover.watch(second, || true, || false) {
            run(&on, state);
        }
    });
    shared.watchdogs.0.lock().unwrap().push(thread);
}

#[test]
fn one_thread_owns_the_state_and_no_step_is_lost() {
    in_every_order(|| {
        let shared = Arc::new(Shared {
            takeover: Takeover::new(),
            inbox: Inbox::new().unwrap(),
            taken: AtomicUsize::new(0),
            owners: AtomicUsize::new(0),
            watchdogs: Threads::default(),
        });
        let first = Arc::clone(&shared);
        let thread = thread::spawn(move || run(&first, Owned::default()));
        thread.join().unwrap();
        loop {
            let Some(thread) = shared.watchdogs.0.lock().unwrap().pop() else {
                break;
            };
            thread.join().unwrap();
        }
        assert_eq!(shared.taken.load(Ordering::SeqCst), STEPS);
    });
}

/// Another thread notices that the owner can no longer be woken, before it sleeps
/// or after: if it sleeps, the watchdog gets the state.
#[test]
fn the_state_of_an_unwakeable_sleeper_is_taken() {
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
        // The watchdog takes no state during this step.
        let step = takeover.begin_step(7);
        let state = takeover.reclaim(step).unwrap();
        let sleep = takeover.begin_sleep(state);
        notices.join().unwrap();
        let back = takeover.reclaim(sleep);
        if back.is_some() {
            takeover.close();
        }
        assert_eq!(watch.join().unwrap(), back.is_none());
    });
}
