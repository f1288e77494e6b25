//! No transfer leaves a descriptor open, however it ends, and a child shares no pipe
//! with its parent.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixDatagram, UnixStream};

use crate::common::{self, descriptors, file_with, only, pattern, run, watchdog};
use cordboard::DataPath::{CopyFileRange, Datagram, ReadWrite, Sendfile, Splice};
use cordboard::{Control, DataPath, Ended, Request, Stranded, Switches, Transfer};
use testkit::child::{in_a_child, next_is_first};
use testkit::needs::Need;

/// Runs transfers that end in every way, by every path.
fn one_of_each(control: &Control) {
    let data = pattern(40_000);
    let cancelled = Control::new().unwrap();
    cancelled.cancel();
    for path in common::forcible(&[CopyFileRange, Sendfile, Splice, ReadWrite]) {
        let request = only(&[path]);
        // To the end, file to file.
        run(
            file_with(&data),
            tempfile::tempfile().unwrap(),
            request.clone(),
        );
        // Cancelled before it began.
        let (source, sink) = (file_with(&data), tempfile::tempfile().unwrap());
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request.clone()).unwrap();
        let report = transfer.control(&cancelled).run().report;
        assert_eq!(report.ended, Ended::Cancelled);
        // Never run, and refused.
        drop(Transfer::new(source.as_fd(), sink.as_fd(), request.clone()));
        assert!(Transfer::new(source.as_fd(), source.as_fd(), request.clone()).is_err());
        if path == CopyFileRange {
            continue;
        }
        // A sink whose reader is gone, with bytes read.
        let (dead, peer) = UnixStream::pair().unwrap();
        drop(peer);
        assert_eq!(
            run(&source, &dead, request.clone()).report.ended,
            Ended::Error
        );
        if path == Sendfile {
            continue;
        }
        let (from, mut feed) = UnixStream::pair().unwrap();
        feed.write_all(&data).unwrap();
        let outcome = run(&from, &dead, request.clone());
        assert!(outcome.stranded.is_some());
        // Waiting, until it is cancelled.
        let (reader, _writer) = std::io::pipe().unwrap();
        let (end, _peer) = UnixStream::pair().unwrap();
        let idle = Request {
            idle: Some(std::time::Duration::from_micros(1)),
            ..request
        };
        let transfer = Transfer::new(reader.as_fd(), end.as_fd(), idle).unwrap();
        assert_eq!(transfer.control(control).run().report.ended, Ended::Idle);
    }
    for path in [Datagram, ReadWrite] {
        let ((a, source), (sink, gone)) =
            (UnixDatagram::pair().unwrap(), UnixDatagram::pair().unwrap());
        a.send(&data).unwrap();
        drop(gone);
        let outcome = run(&source, &sink, only(&[path]));
        assert_eq!(outcome.report.stranded, data.len() as u64);
    }
}

#[test]
fn thousands_of_transfers_leave_nothing_open() {
    let _dog = watchdog("thousands_of_transfers_leave_nothing_open");
    if !common::alone!() {
        return;
    }
    let control = Control::new().unwrap();
    // The pool keeps a few pipes once it has been used.
    for _ in 0..20 {
        one_of_each(&control);
    }
    let before = descriptors();
    for _ in 0..100 {
        one_of_each(&control);
    }
    assert_eq!(descriptors(), before);
}

#[test]
fn the_pool_keeps_few_pipes_however_many_were_in_use() {
    let _dog = watchdog("the_pool_keeps_few_pipes_however_many_were_in_use");
    if testkit::needs::missing(
        "the_pool_keeps_few_pipes_however_many_were_in_use",
        &[Need::Splice],
    ) {
        return;
    }
    if !common::alone!() {
        return;
    }
    let before = descriptors();
    let start = std::sync::Barrier::new(40);
    std::thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| {
                let (source, mut feed) = UnixStream::pair().unwrap();
                let (sink, mut peer) = UnixStream::pair().unwrap();
                let switches = Some(Switches::only(&[DataPath::Splice]));
                let request = Request {
                    switches,
                    ..Request::default()
                };
                let transfer = scope.spawn(move || run(&source, &sink, request).report);
                feed.write_all(b"hello").unwrap();
                peer.read_exact(&mut [0; 5]).unwrap();
                // At this point forty private pipes are in use at once.
                start.wait();
                drop(feed);
                assert_eq!(transfer.join().unwrap().written, 5);
            });
        }
    });
    assert!(descriptors() <= before + 16, "{} {before}", descriptors());
}

/// Moves bytes from socket to socket and back.
fn relay() -> bool {
    let data = pattern(20_000);
    let (source, mut feed) = UnixStream::pair().unwrap();
    let (sink, mut peer) = UnixStream::pair().unwrap();
    feed.write_all(&data).unwrap();
    drop(feed);
    let report = run(&source, &sink, only(&[Splice])).report;
    drop(sink);
    let mut got = Vec::new();
    peer.read_to_end(&mut got).unwrap();
    report.written == 20_000 && got == data
}

/// Returns the inode of the private pipe that a transfer uses now.
fn pipe_in_use() -> u64 {
    let (source, mut feed) = UnixStream::pair().unwrap();
    let (sink, peer) = UnixStream::pair().unwrap();
    drop(peer);
    feed.write_all(b"to be handed back").unwrap();
    let outcome = run(&source, &sink, only(&[Splice]));
    let Some(Stranded::Pipe(pipe)) = outcome.stranded else {
        panic!("{:?}", outcome.report);
    };
    rustix::fs::fstat(&pipe).unwrap().st_ino
}

/// Returns the open pipes.
fn pipes() -> Vec<u64> {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let stats = open.filter_map(|entry| std::fs::metadata(entry.unwrap().path()).ok());
    stats
        .filter(|s| s.file_type().is_fifo())
        .map(|s| s.ino())
        .collect()
}

#[test]
fn a_child_shares_no_pipe_with_its_parent() {
    let _dog = watchdog("a_child_shares_no_pipe_with_its_parent");
    if testkit::needs::missing("a_child_shares_no_pipe_with_its_parent", &[Need::Splice]) {
        return;
    }
    if !common::alone!() {
        return;
    }
    // One pipe is in the pool at the fork.
    assert!(relay());
    let before = pipes();
    // No other thread uses the pool, so no lock that the child needs is held.
    let apart = in_a_child(|| !before.contains(&pipe_in_use()) && relay());
    assert!(apart, "the child used a pipe of its parent");
    assert!(
        before.contains(&pipe_in_use()),
        "the parent has lost its pipe"
    );
}

/// Parent and child have the same process ID, each in its own namespace.
#[test]
fn a_child_of_its_parents_number_shares_no_pipe_with_it() {
    let _dog = watchdog("a_child_of_its_parents_number_shares_no_pipe_with_it");
    if testkit::needs::missing(
        "a_child_of_its_parents_number_shares_no_pipe_with_it",
        &[Need::Splice],
    ) {
        return;
    }
    if !common::alone!() {
        return;
    }
    if !next_is_first() {
        testkit::skip::here("a PID namespace needs root");
        return;
    }
    assert!(in_a_child(|| {
        let fine = std::process::id() == 1 && relay() && next_is_first();
        let before = pipes();
        fine && in_a_child(|| {
            std::process::id() == 1 && !before.contains(&pipe_in_use()) && relay()
        })
    }));
}
