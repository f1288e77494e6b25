//! Tests of when a transfer measures, and that a change of its path loses no byte.

use std::io::{Read, Write};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use testkit::needs::{Need, missing};
use testkit::pattern::noise;
use testkit::refuse::{SENDFILE, apart, refuse};

use super::LONG;
use super::ways::Tuning;
use crate::request::{Backend, DataPath, Request, Switches, Tune};
use crate::stage::Stage;
use crate::transfer::stepper::Stepper;
use crate::transfer::turn::{Next, Turn};
use crate::transfer::{Poll, ThreadKind, Transfer};
use crate::tune::{Found, Key, Search};
use crate::{Chosen, Ended, Outcome};

const MIB: usize = 1 << 20;

pub(super) fn request() -> Request {
    Request {
        switches: Some(Switches::all()),
        tune: Some(Tune::On),
        ..Request::default()
    }
}

fn file_with(bytes: &[u8]) -> OwnedFd {
    testkit::file::file_with(bytes).into()
}

/// Reads all bytes on another thread.
fn reader(mut socket: UnixStream) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        socket.read_to_end(&mut all).unwrap();
        all
    })
}

#[test]
fn only_streams_with_a_choice_are_measured() {
    let file = file_with(b"abc");
    let (socket, other) = UnixStream::pair().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let tunes = |source: &dyn AsFd, sink: &dyn AsFd, request: Request| {
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        transfer.tunes
    };
    assert!(tunes(&file, &socket, request()));
    assert!(tunes(&reader, &socket, request()));
    assert!(tunes(&other, &writer, request()));
    // No socket; a file as the sink.
    assert!(!tunes(&file, &writer, request()));
    assert!(!tunes(&socket, &file, request()));
    let off = Request {
        tune: Some(Tune::Off),
        ..request()
    };
    let block = Request {
        block: NonZeroUsize::new(4096),
        ..request()
    };
    let one_path = Request {
        switches: Some(Switches::only(&[DataPath::ReadWrite])),
        ..request()
    };
    for request in [off, block, one_path] {
        assert!(!tunes(&file, &socket, request));
    }
}

/// The next transfer between two kinds begins with what was found. The key is that of a goal which
/// no other test of this process has.
#[test]
fn what_was_found_is_the_first_choice_of_the_next() {
    let request = || Request {
        tune: Some(Tune::Processor),
        ..request()
    };
    if missing(
        "what_was_found_is_the_first_choice_of_the_next",
        &[Need::Splice],
    ) {
        return;
    }
    let file = file_with(&noise(MIB));
    let (sink, peer) = UnixStream::pair().unwrap();
    sink.set_nonblocking(true).unwrap();
    let mut transfer = Transfer::new(file.as_fd(), sink.as_fd(), request()).unwrap();
    let (before, key) = (transfer.route.choices[0].path, transfer.key());
    let other = match before {
        DataPath::Splice => DataPath::ReadWrite,
        _ => DataPath::Splice,
    };
    let found = Found {
        path: other,
        piece: 0,
    };
    // A transfer of another test may hold the lock at this moment.
    while Found::recall(&key, crate::sys::monotonic()) != Some(found) {
        found.remember(key, crate::sys::monotonic());
    }
    while transfer.recalled.is_none() {
        transfer.recall();
    }
    let got = reader(peer);
    loop {
        match transfer.step() {
            Turn::Done(ended) => break assert_eq!(ended, Ended::Eof),
            Turn::Failed(side, errno) => panic!("{side:?} {errno:?}"),
            _ => {}
        }
        let (path, step) = transfer.current.as_ref().unwrap();
        assert_eq!((*path, step.piece()), (other, Some(64 << 10)));
    }
    let used = transfer.by_path();
    assert_eq!((used[0].path, used[0].chosen), (other, Chosen::Remembered));
    assert_eq!(used[0].piece, Some(64 << 10));
    drop(transfer);
    drop(sink);
    assert!(got.join().unwrap() == noise(MIB));
}

/// A transfer that ends before its search does leaves the measurements to the next one.
#[test]
fn a_search_is_left_to_the_next_transfer() {
    let _dog = testkit::watchdog::watch("a_search_is_left_to_the_next_transfer");
    let file = file_with(&noise(32 * MIB));
    // A transfer of another test may hold the lock at the end.
    loop {
        let (sink, peer) = UnixStream::pair().unwrap();
        let got = reader(peer);
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).unwrap();
        let mut transfer = Transfer::new(file.as_fd(), sink.as_fd(), request()).unwrap();
        transfer.flow.set_may_sleep(true);
        let (key, measures) = (transfer.key(), transfer.route.measures);
        assert_eq!(transfer.run().report.written, 32 * MIB as u64);
        drop(sink);
        assert_eq!(got.join().unwrap().len(), 32 * MIB);
        if !measures || Search::recall(&key, crate::sys::monotonic()).is_some() {
            break;
        }
    }
}

/// Lets a transfer measure its settings, which are equally fast.
pub(super) fn measured(transfer: &Transfer<'_>) -> Tuning {
    let mut now = Duration::from_secs(1000);
    let mut tuning = transfer.start_tuning(now).unwrap();
    while !tuning.controller.is_settled() {
        now += Duration::from_millis(10);
        assert!(now < Duration::from_secs(2000), "it finds none");
        let (controller, ways) = (&mut tuning.controller, &tuning.ways);
        controller.learn(ways, now, &mut || now, 32 << 20, u64::MAX);
    }
    tuning.compared = crate::sys::monotonic();
    tuning
}

/// Lets a transfer measure, and store what it has found.
pub(super) fn settle(transfer: &mut Transfer<'_>) {
    transfer.tuning = Some(Box::new(measured(transfer)));
    store(transfer);
}

/// Stores what the transfer has found. A transfer of another test may hold the lock for a moment.
pub(super) fn store(transfer: &mut Transfer<'_>) {
    for _ in 0..1000 {
        std::thread::yield_now();
        transfer.by_path();
    }
}

/// Returns whether a result is stored.
fn is_remembered(key: &Key, now: Duration) -> bool {
    (0..1000).any(|_| {
        std::thread::yield_now();
        Found::recall(key, now).is_some() || Search::recall(key, now).is_some()
    })
}

/// A blocking socket, or a refusal by the kernel, leaves read/write only. Others have a choice. The
/// source is of a kind that no other test of this process sends to such a socket.
#[test]
fn a_transfer_with_fewer_paths_finds_nothing_for_others() {
    let name = "a_transfer_with_fewer_paths_finds_nothing_for_others";
    if missing(name, &[Need::Splice, Need::Sendfile]) {
        return;
    }
    let file = rustix::fs::memfd_create("source", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::io::write(&file, &noise(MIB)).unwrap();
    let (blocking, _peer) = UnixStream::pair().unwrap();
    let (sink, _other) = UnixStream::pair().unwrap();
    sink.set_nonblocking(true).unwrap();
    let key_of = |sink: &UnixStream, may_sleep| {
        let mut transfer = Transfer::new(file.as_fd(), sink.as_fd(), request()).unwrap();
        transfer.flow.set_may_sleep(may_sleep);
        transfer.key()
    };
    let key = key_of(&sink, false);
    assert_eq!(key_of(&sink, true), key);
    assert_eq!(key_of(&blocking, true), key);
    let only = Switches::only(&[DataPath::ReadWrite]);
    assert_eq!(key_of(&blocking, false), Key { paths: only, ..key });
    // All paths before the last one decline, or none.
    let settle_with = |sink: &UnixStream, last: bool| {
        let mut transfer = Transfer::new(file.as_fd(), sink.as_fd(), request()).unwrap();
        let route = &transfer.route.choices;
        let path = if last {
            route[route.len() - 1]
        } else {
            route[0]
        }
        .path;
        while transfer.is_between_paths() || transfer.path() != path {
            transfer.current = None;
            assert!(transfer.current_path().is_ok_and(|path| path.is_some()));
        }
        settle(&mut transfer);
    };
    let is_found = |key: &Key| is_remembered(key, crate::sys::monotonic());
    settle_with(&sink, true);
    assert!(!is_found(&key));
    settle_with(&blocking, true);
    assert!(!is_found(&key));
    assert!(is_found(&Key { paths: only, ..key }));
    settle_with(&sink, false);
    assert!(is_found(&key));
}

/// What was found is forgotten after five minutes, unless a setting was compared with it since. The
/// paths are those of no other test of this process.
#[test]
fn only_a_comparison_renews_what_was_found() {
    let name = "only_a_comparison_renews_what_was_found";
    if missing(name, &[Need::Splice]) {
        return;
    }
    let request = || Request {
        switches: Some(Switches::all().without(DataPath::Sendfile)),
        ..request()
    };
    let file = rustix::fs::memfd_create("source", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::io::write(&file, &noise(MIB)).unwrap();
    let (sink, _peer) = UnixStream::pair().unwrap();
    sink.set_nonblocking(true).unwrap();
    let mut transfer = Transfer::new(file.as_fd(), sink.as_fd(), request()).unwrap();
    let key = transfer.key();
    assert!(transfer.current_path().is_ok_and(|path| path.is_some()));
    settle(&mut transfer);
    let first = transfer.tuning.as_ref().unwrap().compared;
    let at = |seconds| first + Duration::from_secs(seconds);
    let is_known = |now| is_remembered(&key, now);
    assert!(is_known(first));
    // It continues the search. Its windows have the best setting only.
    let mut now = at(200);
    transfer.tuning = loop {
        let tuning = transfer.start_tuning(now).unwrap();
        if tuning.controller.is_settled() {
            break Some(Box::new(tuning));
        }
    };
    let mut compares = |transfer: &mut Transfer<'_>, windows: usize| {
        (0..windows).any(|_| {
            now += Duration::from_millis(10);
            transfer.flow.took(32 << 20);
            transfer.flow.gave(32 << 20);
            transfer.measure(now);
            transfer.change_way();
            transfer.tuning.as_ref().unwrap().compared > first
        })
    };
    transfer.tuning.as_mut().unwrap().ends_at = 0;
    assert!(!compares(&mut transfer, 100));
    store(&mut transfer);
    assert!(is_known(at(300)) && !is_known(at(301)));
    transfer.tuning.as_mut().unwrap().ends_at = u64::MAX;
    assert!(compares(&mut transfer, 1000));
    store(&mut transfer);
    assert!(is_known(at(301)));
}

#[test]
fn a_short_transfer_is_not_measured() {
    let data = noise(16 * MIB);
    let (sink, peer) = UnixStream::pair().unwrap();
    sink.set_nonblocking(true).unwrap();
    let source = file_with(&data);
    let got = reader(peer);
    let mut transfer = Transfer::new(source.as_fd(), sink.as_fd(), request()).unwrap();
    let mut clock = Poll::new();
    loop {
        match transfer.step() {
            Turn::Moved(_) => {
                transfer.tune(&mut clock);
                let is_long = transfer.flow.written() >= LONG;
                assert_eq!(transfer.tuning.is_some(), is_long);
            }
            Turn::Done(ended) => {
                assert_eq!(ended, Ended::Eof);
                break;
            }
            Turn::Blocked(_) | Turn::HeldBack => {}
            turn => panic!("{turn:?}"),
        }
    }
    assert!(transfer.tuning.is_some());
    drop(transfer);
    drop(sink);
    assert!(got.join().unwrap() == data);
}

fn each_step(
    bytes: &[u8],
    change: impl FnOnce(Transfer<'_>) -> Transfer<'_>,
) -> (Outcome, Vec<u8>) {
    let (sink, peer) = UnixStream::pair().unwrap();
    let source = file_with(bytes);
    let got = reader(peer);
    let request = Request {
        tune: Some(Tune::EachStep),
        ..request()
    };
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
    let outcome = change(transfer).run();
    drop(sink);
    (outcome, got.join().unwrap())
}

#[test]
fn all_paths_of_the_route_are_entered() {
    if missing(
        "all_paths_of_the_route_are_entered",
        &[Need::Splice, Need::Sendfile],
    ) {
        return;
    }
    let data = noise(16 * MIB);
    let (outcome, got) = each_step(&data, |transfer| transfer);
    assert!(got == data);
    let report = outcome.report;
    let bytes: Vec<u64> = report.by_path.iter().map(|one| one.bytes).collect();
    assert!(bytes.iter().all(|bytes| *bytes > 0), "{bytes:?}");
    assert_eq!(bytes.iter().sum::<u64>(), data.len() as u64);
    let chosen: Vec<_> = report.by_path.iter().map(|one| one.chosen).collect();
    let [first, later @ ..] = &chosen[..] else {
        panic!("no path was used");
    };
    assert_eq!(*first, Chosen::First);
    assert!(later.iter().all(|chosen| *chosen == Chosen::Measured));
    let mut path = report.path;
    path.sort_unstable();
    let all = [DataPath::Sendfile, DataPath::Splice, DataPath::ReadWrite];
    assert_eq!(path, all);
    assert!(report.declined.is_empty());
}

#[test]
fn a_stage_keeps_its_path() {
    let data = noise(MIB);
    let (outcome, got) = each_step(&data, |transfer| transfer.stage(Stage::count()).unwrap());
    assert!(got == data);
    assert_eq!(outcome.report.path, [DataPath::ReadWrite]);
}

/// On an engine, the first step of another path could wait for the lock of the source pipe.
#[test]
fn a_pipe_is_polled_before_its_path_changes() {
    let (source, mut feed) = std::io::pipe().unwrap();
    // A step on an engine does not sleep either.
    rustix::io::ioctl_fionbio(&source, true).unwrap();
    let (sink, _peer) = UnixStream::pair().unwrap();
    feed.write_all(b"abc").unwrap();
    let request = Request {
        tune: Some(Tune::EachStep),
        ..request()
    };
    let mut transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
    transfer.runs_on = ThreadKind::Reactor;
    let mut waiter = Poll::new();
    let mut stepper = Stepper::begin(Duration::ZERO);
    while transfer.flow.written() < 3 {
        transfer.step();
    }
    let next = stepper.poll_source_first(&mut transfer, &mut waiter);
    assert!(next.is_none(), "the path stays");
    transfer.tune(&mut waiter);
    assert!(transfer.drains());
    let next = stepper.poll_source_first(&mut transfer, &mut waiter);
    assert!(matches!(next, Some(Next::Wait(_))), "{next:?}");
}

/// Other transfers share the thread of an engine: the processor time of the transfer's own
/// steps counts.
#[test]
fn the_cost_of_steps_is_measured_on_a_shared_thread() {
    let spent = |shares_thread: bool| {
        let (sink, peer) = UnixStream::pair().unwrap();
        sink.set_nonblocking(true).unwrap();
        let source = file_with(&noise(24 * MIB));
        let got = reader(peer);
        let mut transfer = Transfer::new(source.as_fd(), sink.as_fd(), request()).unwrap();
        if shares_thread {
            transfer.set_up(Backend::Epoll);
        }
        let (mut stepper, mut waiter) = (Stepper::begin(Duration::ZERO), Poll::new());
        loop {
            match stepper.step(&mut transfer, false, &mut waiter) {
                Next::Step => {}
                Next::Wait(_) => std::thread::yield_now(),
                Next::End(Turn::Done(Ended::Eof)) => break,
                next => panic!("{next:?}"),
            }
        }
        let spent = transfer.tuning.as_ref().unwrap().spent;
        drop(transfer);
        drop(sink);
        assert_eq!(got.join().unwrap().len(), 24 * MIB);
        spent
    };
    assert!(spent(true) > Duration::ZERO);
    assert_eq!(spent(false), Duration::ZERO);
}

/// A path whose calls a filter refuses is given up, and the others continue.
#[test]
fn a_path_that_declines_is_given_up() {
    if missing("a_path_that_declines_is_given_up", &[Need::Splice]) {
        return;
    }
    let data = noise(16 * MIB);
    let path = apart(|| {
        refuse(&[SENDFILE], libc::EPERM);
        let (outcome, got) = each_step(&data, |transfer| transfer);
        assert!(got == data);
        outcome.report.path
    });
    assert!(!path.contains(&DataPath::Sendfile), "{path:?}");
    assert_eq!(path.len(), 2);
}
