//! What a child of `fork(2)` has of its parent's transfers.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use cordboard::{Ended, Engine, PathName, Request, Running, Stranded, Transfer, start};
use testkit::child::{Heir, in_a_child};
use testkit::needs::Need;

use crate::common::{self, only, pattern, watchdog};
use crate::{carries, carries_by, close_all};

/// A child has the write end of the private pipe with the bytes that are handed
/// back: their end comes all the same.
#[test]
fn what_is_handed_back_ends_beside_a_child() {
    let _dog = watchdog("what_is_handed_back_ends_beside_a_child");
    if testkit::needs::missing("what_is_handed_back_ends_beside_a_child", &[Need::Splice]) {
        return;
    }
    let (source, mut feed) = UnixStream::pair().unwrap();
    let (sink, _end) = UnixStream::pair().unwrap();
    testkit::obstacle::fill_stream(&sink).unwrap();
    sink.set_nonblocking(true).unwrap();
    let data = pattern(10_000);
    feed.write_all(&data).unwrap();
    let running = start(&source, &sink, only(&[PathName::Splice])).unwrap();
    while running.status().read < data.len() as u64 {
        std::thread::yield_now();
    }
    let heir = Heir::fork();
    running.cancel();
    let outcome = running.wait();
    let report = &outcome.report;
    assert_eq!(report.ended, Ended::Cancelled, "{report:?}");
    assert_eq!(report.path, [PathName::Splice]);
    assert_eq!([report.written, report.stranded], [0, 10_000]);
    let Some(Stranded::Pipe(pipe)) = outcome.stranded else {
        panic!("{:?}", outcome.stranded);
    };
    let mut found = Vec::new();
    File::from(pipe).read_to_end(&mut found).unwrap();
    assert!(found == data);
    drop(heir);
}

/// Numbers that are this file now: a pipe's, or a socket's.
fn numbers_of(inode: u64) -> Vec<RawFd> {
    let is_it = |number: &RawFd| testkit::child::inode(*number) == Some(inode);
    (0..100).filter(is_it).collect()
}

/// The first use of the library closes what a child has of its parent's
/// transfers, without which no reader would see their end while it lives.
#[test]
fn a_child_keeps_no_end_of_its_parents_transfers() {
    let _dog = watchdog("a_child_keeps_no_end_of_its_parents_transfers");
    if !common::alone("inherited::a_child_keeps_no_end_of_its_parents_transfers") {
        return;
    }
    let own = Engine::new(Default::default()).unwrap();
    let own = Some(&own);
    type Use = fn(&Running, Option<&Engine>) -> bool;
    let uses: [(Option<&Engine>, Use); 5] = [
        (None, |_, _| carries()),
        (None, |running, _| running.status().ended),
        (own, |running, _| running.try_wait().is_some()),
        (own, |_, engine| {
            engine.unwrap().shutdown();
            true
        }),
        (None, |_, _| {
            let engine = Engine::new(Default::default()).unwrap();
            carries_by(Some(&engine)) && carries()
        }),
    ];
    for (engine, first) in uses {
        for sockets in [false, true] {
            let (source, feed, sink, end): (OwnedFd, OwnedFd, OwnedFd, OwnedFd) = if sockets {
                let (source, sink) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
                let (source, feed) = source;
                let (sink, end) = sink;
                (source.into(), feed.into(), sink.into(), end.into())
            } else {
                let (source, feed) = std::io::pipe().unwrap();
                let (end, sink) = std::io::pipe().unwrap();
                (source.into(), feed.into(), sink.into(), end.into())
            };
            let inodes = [&source, &sink].map(|fd| rustix::fs::fstat(fd).unwrap().st_ino);
            let transfer = Transfer::owning(source, sink, common::any()).unwrap();
            let running = match engine {
                Some(engine) => engine.start(transfer).unwrap(),
                None => transfer.start().unwrap(),
            };
            rustix::io::write(&feed, b"one").unwrap();
            let mut three = [0; 3];
            assert_eq!(rustix::io::read(&end, &mut three), Ok(3));
            // The transfer's, and of a pipe the other end.
            let has = |all: usize| inodes.map(|inode| numbers_of(inode).len()) == [all; 2];
            let all = if sockets { 1 } else { 2 };
            assert!(in_a_child(|| {
                has(all) && first(&running, engine) && has(all - 1)
            }));
            // What a child has under these numbers by now is its own.
            assert!(in_a_child(|| {
                for inode in inodes {
                    for number in numbers_of(inode) {
                        testkit::child::copy_to(number, number + 100, false);
                        testkit::child::copy_to(number + 100, number, false);
                    }
                }
                first(&running, engine) && has(all)
            }));
            assert!(in_a_child(|| {
                // Below what is closed.
                let numbers = inodes.map(|inode| numbers_of(inode)[0]);
                testkit::child::copy_to(numbers[0], 0, true);
                testkit::child::copy_to(numbers[1], 1, true);
                let before = inodes.map(numbers_of);
                close_all();
                for (numbers, from) in before.iter().zip([0, 1]) {
                    for number in numbers.iter().filter(|number| **number > 2) {
                        testkit::child::copy_to(from, *number, true);
                    }
                }
                running.status().ended && inodes.map(numbers_of) == before
            }));
            assert!(has(all), "the parent's are the parent's");
            rustix::io::write(&feed, b"two").unwrap();
            drop(feed);
            let report = running.wait().report;
            assert_eq!(
                (report.ended, report.written),
                (Ended::Eof, 6),
                "{report:?}"
            );
            assert_eq!(rustix::io::read(&end, &mut [0; 9]), Ok(3));
            assert_eq!(rustix::io::read(&end, &mut [0; 9]), Ok(0));
        }
    }
}

/// A child that is forked while the sink is synced at the end, which may take
/// long.
#[test]
fn a_child_keeps_no_end_of_a_transfer_that_is_being_synced() {
    let _dog = watchdog("a_child_keeps_no_end_of_a_transfer_that_is_being_synced");
    if !common::alone("inherited::a_child_keeps_no_end_of_a_transfer_that_is_being_synced") {
        return;
    }
    let (source, mut feed) = std::io::pipe().unwrap();
    feed.write_all(b"one").unwrap();
    let inode = rustix::fs::fstat(&source).unwrap().st_ino;
    let request = Request {
        size: 3.into(),
        sync: true,
        ..common::any()
    };
    let sink = tempfile::tempfile().unwrap();
    let transfer = Transfer::owning(source.into(), sink.into(), request).unwrap();
    let mut report = None;
    let body = || report = Some(transfer.start().unwrap().wait().report);
    let mut left = Vec::new();
    let forks = || {
        assert!(
            numbers_of(inode).len() == 2,
            "the source, and its other end"
        );
        left.push(in_a_child(|| carries() && numbers_of(inode).len() == 1));
    };
    let Some(syncs) = testkit::midst::at_each(&[libc::SYS_fsync], body, forks) else {
        return testkit::skip::report("a child", "calls of another thread cannot be held");
    };
    assert_eq!((syncs, &left[..]), (1, &[true][..]));
    let report = report.unwrap();
    assert_eq!((report.ended, report.written), (Ended::Size, 3));
}
