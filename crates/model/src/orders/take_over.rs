//! A thread that is held up in a step, and one that takes over from it.

use std::sync::Arc;
use std::time::Duration;

use crate::inbox::Inbox;
use crate::scheduler::sync::Mutex;
use crate::scheduler::sync::atomic::{AtomicUsize, Ordering};
use crate::scheduler::{in_every_order, thread};
use crate::seat::Seat;

const STEPS: usize = 3;

/// What there is one of.
#[derive(Default)]
struct Charge {
    steps: usize,
    /// Threads that have had it so far.
    threads: usize,
}

#[derive(Default)]
struct Threads(Mutex<Vec<thread::JoinHandle<()>>>);

struct Station {
    seat: Seat<Charge>,
    inbox: Inbox<()>,
    /// Steps that are being taken, or were.
    taken: AtomicUsize,
    /// Threads that are in charge.
    in_charge: AtomicUsize,
    crew: Threads,
}

/// As `engine/reactor.rs` does it: steps until there are enough, with those that
/// come back from whoever was held up. Anybody may be taken for that here.
fn run(station: &Arc<Station>, mut charge: Charge) {
    charge.threads += 1;
    let this = charge.threads;
    watch(station);
    let mut late = Vec::new();
    loop {
        assert_eq!(station.in_charge.fetch_add(1, Ordering::SeqCst), 0);
        station.inbox.take(&mut late);
        let nothing_new = late.is_empty();
        charge.steps += late.drain(..).count();
        let enough = charge.steps == STEPS;
        let waits = !enough && station.taken.load(Ordering::SeqCst) == STEPS;
        station.in_charge.fetch_sub(1, Ordering::SeqCst);
        if enough {
            return station.seat.close();
        }
        if waits {
            if nothing_new {
                station.inbox.bell().wait();
                station.inbox.bell().clear();
            }
            continue;
        }
        station.taken.fetch_add(1, Ordering::SeqCst);
        let step = station.seat.leave(charge);
        thread::yield_now();
        match station.seat.come_back(step) {
            Some(back) => {
                assert_eq!(back.threads, this, "it is somebody else's by now");
                charge = back;
            }
            None => {
                assert!(station.inbox.push(()).is_ok());
                return;
            }
        }
        charge.steps += 1;
    }
}

fn watch(station: &Arc<Station>) {
    let on = Arc::clone(station);
    let thread = thread::spawn(move || {
        if let Some(charge) = on.seat.watch(Duration::from_secs(1), || true) {
            run(&on, charge);
        }
    });
    station.crew.0.lock().unwrap().push(thread);
}

#[test]
fn one_is_in_charge_and_no_step_is_lost() {
    in_every_order(|| {
        let station = Arc::new(Station {
            seat: Seat::new(),
            inbox: Inbox::new().unwrap(),
            taken: AtomicUsize::new(0),
            in_charge: AtomicUsize::new(0),
            crew: Threads::default(),
        });
        let first = Arc::clone(&station);
        let thread = thread::spawn(move || run(&first, Charge::default()));
        thread.join().unwrap();
        loop {
            let Some(thread) = station.crew.0.lock().unwrap().pop() else {
                break;
            };
            thread.join().unwrap();
        }
        assert_eq!(station.taken.load(Ordering::SeqCst), STEPS);
    });
}
