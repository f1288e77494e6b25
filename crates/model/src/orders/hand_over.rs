//! A transfer moves between the reactor and a worker while another thread cancels
//! it: the reactor does not sleep on it forever.

use std::sync::Arc;
use std::time::Duration;

use super::reactor::{Engine, Job, Message};
use crate::home::{Home, MAIN};
use crate::inbox::Inbox;
use crate::scheduler::{in_every_order, thread};
use crate::sync::{AtomicBool, Ordering, WakeFd};

#[test]
fn a_cancel_meets_a_transfer_on_its_way_back() {
    in_every_order(|| {
        let engine = Engine::new(2);
        let cancelled = Arc::new(AtomicBool::new(false));
        let worker = {
            let (engine, cancelled) = (Arc::clone(&engine), Arc::clone(&cancelled));
            thread::spawn(move || engine.send(Message::Run(Job::waiting(0, &cancelled))))
        };
        let canceller = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                cancelled.store(true, Ordering::Release);
                engine.send(Message::Recheck(0));
            })
        };
        // Another one keeps the reactor in steps, from which a watchdog takes over.
        engine.send(Message::Run(Job::new(1, 1)));
        engine.run();
        worker.join().unwrap();
        canceller.join().unwrap();
    });
}

/// The message of a cancel goes to the reactor that the transfer leaves, which
/// ignores it, or to the one that it moves to.
#[test]
fn a_cancel_meets_a_transfer_that_moves_to_another_reactor() {
    in_every_order(|| {
        let engine = Engine::new(1);
        let (cancelled, home) = (Arc::new(AtomicBool::new(false)), Arc::new(Home::default()));
        let mover = {
            let (engine, cancelled) = (Arc::clone(&engine), Arc::clone(&cancelled));
            let home = Arc::clone(&home);
            thread::spawn(move || {
                home.set(MAIN + 1);
                engine.send(Message::Run(Job::waiting(0, &cancelled)));
            })
        };
        let canceller = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                cancelled.store(true, Ordering::Release);
                if home.after_change() != MAIN {
                    engine.send(Message::Recheck(0));
                }
            })
        };
        engine.run();
        mover.join().unwrap();
        canceller.join().unwrap();
    });
}

#[test]
fn every_message_arrives_and_none_comes_after_the_last() {
    in_every_order(|| {
        let inbox = Arc::new(Inbox::<u32>::new().unwrap());
        let senders: Vec<_> = (0..2)
            .map(|sender| {
                let inbox = Arc::clone(&inbox);
                thread::spawn(move || {
                    assert!(inbox.push(sender * 10).is_ok());
                    assert!(inbox.push(sender * 10 + 1).is_ok());
                })
            })
            .collect();
        let (mut all, mut some) = (Vec::new(), Vec::new());
        while all.len() < 4 {
            inbox.take(&mut some);
            if some.is_empty() {
                inbox.wake_fd().wait();
                inbox.wake_fd().clear();
            }
            all.append(&mut some);
        }
        for sender in senders {
            sender.join().unwrap();
        }
        assert!(inbox.close().is_empty());
        assert_eq!(inbox.push(99), Err(99));
        // Each sender's messages are in order.
        let of = |sender| all.iter().copied().filter(move |m| m / 10 == sender);
        assert!(of(0).eq([0, 1]) && of(1).eq([10, 11]), "{all:?}");
    });
}

/// A reader that waits for messages only uses no wake descriptor, and one otherwise; here
/// it alternates.
#[test]
fn every_message_wakes_a_reader_that_waits_for_messages_only() {
    in_every_order(|| {
        let inbox = Arc::new(Inbox::<u32>::new().unwrap());
        let senders: Vec<_> = (0..2)
            .map(|sender| {
                let inbox = Arc::clone(&inbox);
                thread::spawn(move || {
                    for message in 0..2 {
                        assert!(inbox.push(sender * 10 + message).is_ok());
                        inbox.nudge();
                    }
                })
            })
            .collect();
        let (mut all, mut some) = (Vec::new(), Vec::new());
        while all.len() < 4 {
            inbox.take(&mut some);
            match (some.is_empty(), all.len()) {
                (false, _) => {}
                (true, 2) => {
                    inbox.wake_fd().wait();
                    inbox.wake_fd().clear();
                }
                (true, 3) => assert!(!inbox.wait(Some(Duration::MAX))),
                (true, _) => assert!(!inbox.wait(None)),
            }
            all.append(&mut some);
        }
        for sender in senders {
            sender.join().unwrap();
        }
        let of = |sender| all.iter().copied().filter(move |m| m / 10 == sender);
        assert!(of(0).eq([0, 1]) && of(1).eq([10, 11]), "{all:?}");
    });
}

/// The host closes the wake descriptor. The next message does not arrive, but ends the sleep of a
/// reader that waits for messages only.
#[test]
fn a_closed_wake_descriptor_wakes_a_reader_that_waits_for_messages_only() {
    in_every_order(|| {
        let inbox = Arc::new(Inbox::<u32>::new().unwrap());
        let sender = {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || {
                inbox.wake_fd().close();
                assert_eq!(inbox.push(1), Err(1));
            })
        };
        let mut some = Vec::new();
        inbox.take(&mut some);
        assert!(some.is_empty() && inbox.wait(None));
        sender.join().unwrap();
    });
}

/// A message that arrives while the reader closes is either read or returned.
#[test]
fn a_message_is_never_lost_at_the_end() {
    in_every_order(|| {
        let inbox = Arc::new(Inbox::<u32>::new().unwrap());
        let done = Arc::new(WakeFd::new().unwrap());
        let sender = {
            let (inbox, done) = (Arc::clone(&inbox), Arc::clone(&done));
            thread::spawn(move || {
                let given_back = inbox.push(1).is_err();
                done.signal();
                given_back
            })
        };
        let last = inbox.close().len();
        let given_back = sender.join().unwrap();
        assert!(done.is_signalled());
        assert_eq!(last + usize::from(given_back), 1);
    });
}
