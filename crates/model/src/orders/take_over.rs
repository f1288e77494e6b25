//! A thread that blocks in a step, and a watchdog that takes over from it.

use std::sync::Arc;
use std::time::Duration;

use super::reactor::{Engine, Job, Message};
use crate::scheduler::sync::atomic::{AtomicUsize, Ordering};
use crate::scheduler::{in_every_order, thread};
use crate::takeover::{TakenOver, Takeover};

const JOBS: usize = 2;
const STEPS: usize = 2;

/// The cycle asserts that one thread owns the state.
#[test]
fn no_transfer_and_no_step_is_lost() {
    in_every_order(|| {
        let engine = Engine::new(JOBS);
        engine.send(Message::Run(Job::new(0, STEPS)));
        let sender = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || engine.send(Message::Run(Job::new(1, STEPS))))
        };
        engine.run();
        sender.join().unwrap();
        assert_eq!(engine.steps.load(Ordering::SeqCst), JOBS * STEPS);
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
        let (state, ()) = takeover.step(7, || ()).unwrap();
        let back = takeover.sleep(state, || notices.join().unwrap());
        if back.is_some() {
            takeover.close();
        }
        assert_eq!(watch.join().unwrap(), back.is_none());
    });
}
