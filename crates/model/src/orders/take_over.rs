//! A thread that is held up in a step, and one that takes over from it.

use std::sync::Arc;
use std::time::Duration;

use crate::inbox::Inbox;
use crate::scheduler::sync::Mutex;
use crate::scheduler::sync::atomic::{AtomicUsize, Ordering};
use crate::scheduler::{in_every_order, thread};
use crate::seat::{Left, Seat};

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
                let sleep = station.seat.rest(charge);
                station.inbox.bell().wait();
                station.inbox.bell().clear();
                // Nobody takes it from a thread that can be woken.
                charge = station.seat.come_back(sleep).unwrap();
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
        let second = Duration::from_secs(1);
        if let Some(Left::HeldUp(charge)) = on.seat.watch(second, || true, || false) {
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

/// Somebody notices that the thread in charge cannot be woken any more, before
/// it sleeps or after: if it sleeps, the watch has what it had.
#[test]
fn what_a_sleeping_thread_has_is_taken_once_it_is_gone() {
    in_every_order(|| {
        let seat = Arc::new(Seat::new());
        let gone = Arc::new(AtomicUsize::new(0));
        let watch = {
            let (seat, gone) = (Arc::clone(&seat), Arc::clone(&gone));
            thread::spawn(move || {
                let gone = || gone.load(Ordering::SeqCst) == 1;
                let left = seat.watch(Duration::from_secs(1), || false, gone);
                matches!(left, Some(Left::Gone(7)))
            })
        };
        let notices = {
            let seat = Arc::clone(&seat);
            thread::spawn(move || {
                seat.doubt();
                gone.store(1, Ordering::SeqCst);
                seat.doubt();
            })
        };
        // A step in between is nobody's to take.
        let step = seat.leave(7);
        let charge = seat.come_back(step).unwrap();
        let sleep = seat.rest(charge);
        notices.join().unwrap();
        let back = seat.come_back(sleep);
        if back.is_some() {
            seat.close();
        }
        assert_eq!(watch.join().unwrap(), back.is_none());
    });
}
