//! Private pipes of one slot, if `pipe-max-size` is a page, and of two, past the
//! limit `pipe-user-pages-soft` (one slot before Linux 5.14).

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use cordboard::DataPath::{ReadWrite, Splice};
use cordboard::{Ended, Report};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with, tee};
use testkit::needs::Need;

use super::default_size;
use crate::common::mount::Mount;
use crate::common::{self, From, SOURCES, any, pattern, run, watchdog};

/// Whether the test can run here: as root, with `splice(2)`.
fn can_limit_private_pipes(test: &str) -> bool {
    if !common::is_root() {
        testkit::skip::here("only root can mount another pipe-max-size");
        return false;
    }
    !testkit::needs::missing(test, &[Need::Splice])
}

/// Limits the private pipes of this process to this size. False if the process
/// cannot have its own mounts.
fn limit_private_pipes(size: usize) -> bool {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, format!("{size}\n")).unwrap();
    let name = file.path().to_str().unwrap();
    let own = testkit::child::own_mounts()
        && Mount::run("mount", &["--make-rprivate", "/"])
        && Mount::run("mount", &["--bind", name, "/proc/sys/fs/pipe-max-size"]);
    if !own {
        testkit::skip::here("no process can have mounts of its own");
    }
    own
}

/// The bytes of one slot of a pipe.
fn slot() -> usize {
    rustix::param::page_size()
}

/// Makes a pipe of the caller of this size: (read end, write end).
fn pipe_of(size: usize, flags: PipeFlags) -> (OwnedFd, OwnedFd) {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | flags).unwrap();
    assert_eq!(fcntl_setpipe_size(&writer, size), Ok(size));
    (reader, writer)
}

/// Returns (the transfer's end, the other end); for a file, the file twice.
fn ends(kind: From, size: usize) -> (OwnedFd, OwnedFd) {
    match kind {
        From::File => {
            let file = tempfile::tempfile().unwrap();
            (file.try_clone().unwrap().into(), file.into())
        }
        From::Pipe => {
            let (reader, writer) = pipe_of(size, PipeFlags::empty());
            (writer, reader)
        }
        From::Unix => {
            let (near, far) = UnixStream::pair().unwrap();
            (near.into(), far.into())
        }
        From::Tcp => {
            let (near, far) = common::tcp_pair();
            (near.into(), far.into())
        }
    }
}

/// A source that gives these bytes and then ends, and the thread that writes them.
fn source(kind: From, size: usize, data: &[u8]) -> (OwnedFd, Option<JoinHandle<()>>) {
    if kind == From::File {
        return (common::file_with(data).into(), None);
    }
    let (near, far) = ends(kind, size);
    let (reader, writer) = match kind {
        From::Pipe => (far, near),
        _ => (near, far),
    };
    let data = data.to_vec();
    let writes = std::thread::spawn(move || {
        std::io::Write::write_all(&mut std::fs::File::from(writer), &data).unwrap();
    });
    (reader, Some(writes))
}

fn read_all(fd: &OwnedFd) -> Vec<u8> {
    common::content_of(fd.try_clone().unwrap())
}

/// Runs a transfer on the caller's thread or on an engine.
fn by(engine: bool, source: OwnedFd, sink: OwnedFd) -> Report {
    match engine {
        true => cordboard::start(source, sink, any()).unwrap().wait().report,
        false => run(source, sink, any()).report,
    }
}

/// Tests every pair, with pipes of the caller of the same size and larger.
fn every_pair(private: usize) {
    for (from, to) in SOURCES.into_iter().flat_map(|a| SOURCES.map(|b| (a, b))) {
        let sizes = [(1, slot()), (5000, slot()), (300_000, slot())];
        for (length, theirs) in sizes.into_iter().chain([(300_000, default_size())]) {
            for engine in [false, true] {
                let what =
                    format!("{from:?} -> {to:?}, {length} by {private} and {theirs}, {engine}");
                let _watched = testkit::watchdog::watch(what.clone());
                let data = pattern(length);
                let (source, writes) = source(from, theirs, &data);
                let (sink, far) = ends(to, theirs);
                let (report, got) = std::thread::scope(|scope| {
                    let reads = (to != From::File).then(|| scope.spawn(|| read_all(&far)));
                    let report = by(engine, source, sink);
                    (report, reads.map(|reads| reads.join().unwrap()))
                });
                let got = got.unwrap_or_else(|| common::content(&far.into()));
                assert!(got == data, "{what}: {report:?}");
                assert_eq!(report.ended, Ended::Eof, "{what}: {report:?}");
                assert_eq!(
                    (report.read, report.written),
                    (length as u64, length as u64),
                    "{what}: {report:?}"
                );
                if (from, to) == (From::Pipe, From::Pipe) {
                    assert_eq!(report.path, [Splice], "{what}: {report:?}");
                }
                if let Some(writes) = writes {
                    writes.join().unwrap();
                }
            }
        }
    }
}

/// Packets of any length are recognised as packets.
fn packets_are_seen() {
    for (lengths, engine) in [1, 2, 3000, 4096]
        .into_iter()
        .flat_map(|n| [([n, 3000], false), ([n, 3000], true)])
    {
        let _watched = testkit::watchdog::watch(format!("packets of {lengths:?}, {engine}"));
        let data = pattern(lengths.iter().sum());
        let (source, feed) = pipe_of(default_size(), PipeFlags::DIRECT);
        let (first, second) = data.split_at(lengths[0]);
        rustix::io::write(&feed, first).unwrap();
        rustix::io::write(&feed, second).unwrap();
        drop(feed);
        let (reader, sink) = pipe_of(default_size(), PipeFlags::empty());
        let report = by(engine, source, sink);
        assert_eq!(report.written, data.len() as u64, "{report:?}");
        assert_eq!(report.path.last(), Some(&ReadWrite), "{report:?}");
        let why = &report.declined.iter().find(|d| d.path == Splice);
        let why = why.map(|d| d.why.to_string()).unwrap_or_default();
        assert!(why.contains("packets"), "{lengths:?}: {report:?}");
        // A reader of a stream may take any part of it.
        let mut got = Vec::new();
        loop {
            let mut some = [0; 7];
            match rustix::io::read(&reader, &mut some).unwrap() {
                0 => break,
                n => got.extend_from_slice(&some[..n]),
            }
        }
        assert!(got == data, "{lengths:?}: {} of {}", got.len(), data.len());
    }
}

/// A stream with each byte in a buffer of its own.
fn single_bytes_go_on() {
    let (inner, feed) = pipe_of(slot(), PipeFlags::empty());
    let (source, own) = pipe_of(default_size(), PipeFlags::empty());
    for _ in 0..10 {
        rustix::io::write(&feed, b"x").unwrap();
        assert_eq!(
            tee(&inner, &own, 1, rustix::pipe::SpliceFlags::empty()),
            Ok(1)
        );
        rustix::io::read(&inner, &mut [0; 1]).unwrap();
    }
    drop(own);
    let (reader, sink) = pipe_of(default_size(), PipeFlags::empty());
    let report = by(false, source, sink);
    assert_eq!((report.written, &report.path[..]), (10, &[Splice][..]));
    assert!(common::content_of(reader) == [b'x'; 10]);
}

#[test]
fn private_pipes_of_one_slot() {
    let _dog = watchdog("private_pipes_of_one_slot");
    if !can_limit_private_pipes("private_pipes_of_one_slot") || !common::alone!() {
        return;
    }
    if limit_private_pipes(slot()) {
        common::refuse_own_socket_pairs();
        every_pair(slot());
        packets_are_seen();
        single_bytes_go_on();
    }
}

#[test]
fn private_pipes_of_two_slots() {
    let _dog = watchdog("private_pipes_of_two_slots");
    if !can_limit_private_pipes("private_pipes_of_two_slots") || !common::alone!() {
        return;
    }
    if limit_private_pipes(2 * slot()) {
        common::refuse_own_socket_pairs();
        every_pair(2 * slot());
        packets_are_seen();
        single_bytes_go_on();
    }
}
