//! The waits of a worker.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use super::core::Core;
use super::job::Job;
use super::stopped::{engine_of, job_of, sent};
use super::workers::{PEER_WAIT, Task, piece, wait_here};
use crate::endpoint::Side;
use crate::request::{Request, Schedule};
use crate::threads::Work as _;
use crate::transfer::{Control, Transfer, Trials, Wait, WaitFor, Wakeup};

/// More than a socket holds.
const SIZE: usize = 4 << 20;
const LONG: Option<Duration> = Some(Duration::from_secs(3600));

/// An engine for two workers, without threads.
fn engine() -> Engine {
    engine_of(&Arc::new(Core::new(2).unwrap()))
}

/// A transfer from a file to a socket, and its peer.
fn to_a_socket() -> (Transfer<'static>, UnixStream) {
    let mut source = tempfile::tempfile().unwrap();
    source.write_all(&vec![7; SIZE]).unwrap();
    rustix::fs::seek(&source, rustix::fs::SeekFrom::Start(0)).unwrap();
    let (sink, peer) = UnixStream::pair().unwrap();
    peer.set_nonblocking(true).unwrap();
    let transfer = Transfer::owning(source.into(), sink.into(), Request::default()).unwrap();
    (transfer, peer)
}

/// Runs all pieces of the transfer, and returns it if the reactor is to get it.
fn run(
    engine: &Engine,
    transfer: Transfer<'static>,
    wait_here: impl Fn(&mut Job, &mut Wait) -> Option<Wakeup>,
) -> Option<Box<Job>> {
    let mut next = Some(Task::Piece(job_of(engine, transfer)));
    while let Some(Task::Piece(job)) = next {
        next = piece(job, &wait_here);
    }
    sent(&engine.core)
}

/// A sink whose peer reads soon is waited for without the reactor.
#[test]
fn a_worker_waits_for_a_fast_peer() {
    let engine = engine();
    let (transfer, mut peer) = to_a_socket();
    let got = std::cell::RefCell::new(Vec::new());
    let returned = run(&engine, transfer, |job, wait| {
        assert_eq!(wait.target, WaitFor::Side(Side::Sink));
        let mut part = vec![0; SIZE];
        while let Ok(n @ 1..) = (&peer).read(&mut part) {
            got.borrow_mut().extend_from_slice(&part[..n]);
        }
        wait_here(job, wait)
    });
    assert!(returned.is_none());
    assert!(!engine.core.is_active());
    let mut got = got.into_inner();
    let before = got.len();
    peer.read_to_end(&mut got).unwrap();
    assert!(before > 0, "it did not wait");
    assert_eq!(got, vec![7; SIZE]);
}

/// The reactor waits for a peer that does not read, for the rest of the timeout. After some
/// such waits the transfer is returned at once.
#[test]
fn a_slow_peer_is_left_to_the_reactor() {
    let engine = engine();
    let (transfer, _peer) = to_a_socket();
    let waits = std::cell::RefCell::new(Vec::new());
    let returned = run(&engine, transfer, |job, wait| {
        for _ in 0..64 {
            wait.timeout = LONG;
            assert_eq!(wait_here(job, wait), None);
            waits.borrow_mut().push(wait.timeout);
        }
        None
    });
    assert!(returned.is_some());
    let waits = waits.into_inner();
    let (here, left): (Vec<Option<Duration>>, Vec<_>) =
        waits.iter().copied().partition(|left| *left < LONG);
    assert!(
        here.iter()
            .all(|left| *left <= LONG.map(|long| long - PEER_WAIT))
    );
    assert_eq!((here.len(), left.len()), (5, 59), "{waits:?}");
}

/// The reactor's thread takes the step if no worker is available, and does not wait.
#[test]
fn the_reactor_does_not_wait_for_one_transfer() {
    let engine = engine();
    let (transfer, _peer) = to_a_socket();
    let job = job_of(&engine, transfer);
    assert!(Task::Piece(job).work_at_once().is_none());
    let job = sent(&engine.core).unwrap();
    assert_eq!(job.wait.unwrap().target, WaitFor::Side(Side::Sink));
    assert_eq!(job.worker_waits, Trials::default());
}

/// The grants of a schedule are waited for without the reactor.
#[test]
fn a_worker_waits_for_a_grant() {
    const LENGTH: usize = 30_000;
    let engine = engine();
    let source = tempfile::tempfile().unwrap();
    source.set_len(LENGTH as u64).unwrap();
    let (sink, mut peer) = UnixStream::pair().unwrap();
    let control = Control::new().unwrap();
    control.set_schedule(Schedule::rate(600_000));
    let transfer = Transfer::owning(source.into(), sink.into(), Request::default()).unwrap();
    let grants = std::cell::Cell::new(0);
    let returned = run(&engine, transfer.control(&control), |job, wait| {
        // A socket takes all of it.
        assert_eq!(wait.target, WaitFor::Grant);
        grants.set(grants.get() + 1);
        wait_here(job, wait)
    });
    assert!(returned.is_none());
    assert!(grants.get() > 0);
    let mut got = Vec::new();
    peer.read_to_end(&mut got).unwrap();
    assert_eq!(got.len(), LENGTH);
}

/// A cancellation during a step is not followed by a wait.
#[test]
fn a_worker_does_not_wait_after_a_cancellation() {
    let engine = engine();
    let (transfer, _peer) = to_a_socket();
    let returned = run(&engine, transfer, |job, wait| {
        job.reporter.shared.completion.cancel();
        assert_eq!(wait_here(job, wait), None);
        None
    });
    assert_eq!(returned.unwrap().worker_waits, Trials::default());
}
