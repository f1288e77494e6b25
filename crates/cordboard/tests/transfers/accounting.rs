//! The report is exact in every ending, and bytes that were read and not written are
//! rewound or handed back. The sinks' readers close after n bytes, for every path and
//! for n at every boundary of pages, pipes and buffers.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use crate::common::{
    self, BOUNDARIES, From, MIB, SOURCES, Source, audit, content, only, paths, pattern, run,
    watchdog,
};
use cordboard::{Control, DataPath, Ended, Errno, Request, Side, Sparse, Transfer};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn a_file_that_may_not_grow_any_more() {
    let _dog = watchdog("a_file_that_may_not_grow_any_more");
    if !common::alone!() {
        return;
    }
    let data = pattern(2 * MIB);
    let before = getrlimit(Resource::Fsize);
    for n in BOUNDARIES {
        for from in SOURCES {
            for path in paths(from, true, false) {
                let what = format!("{from:?} by {path}, {n}");
                let source = Source::new(from, &data);
                let sink = tempfile::tempfile().unwrap();
                setrlimit(
                    Resource::Fsize,
                    Rlimit {
                        current: Some(n as u64),
                        ..before
                    },
                )
                .unwrap();
                let outcome = run(&source.fd, &sink, only(&[path]));
                setrlimit(Resource::Fsize, before).unwrap();
                let report = &outcome.report;
                assert_eq!(report.ended, Ended::Error, "{what}: {report:?}");
                let failure = (report.failed, report.errno, report.written);
                let expected = (Some(Side::Sink), Some(Errno::EFBIG), n as u64);
                assert_eq!(failure, expected, "{what}: {report:?}");
                assert!(content(&sink) == data[..n], "{what}: the sink's bytes");
                audit(&what, outcome, source, from, &data);
            }
        }
    }
}

/// All bytes fit, so no call may fail for lack of space. `copy_file_range(2)` checks
/// the limit before it looks for the end (`generic_copy_file_checks`,
/// fs/read_write.c).
#[test]
fn a_file_that_is_just_as_long_as_it_may_be() {
    let _dog = watchdog("a_file_that_is_just_as_long_as_it_may_be");
    if !common::alone!() {
        return;
    }
    let data = pattern(2 * MIB + 7);
    let before = getrlimit(Resource::Fsize);
    for n in [0, 1, 4096, 65_537, MIB, data.len()] {
        for from in SOURCES {
            for path in paths(from, true, false) {
                let ways = [&[path][..], &[path, DataPath::ReadWrite], DataPath::ALL];
                for (way, offset) in ways.iter().flat_map(|way| [(way, None), (way, Some(0))]) {
                    let what = format!("{from:?} by {way:?}, {n}, {offset:?}");
                    let seeks = from == From::File;
                    if offset.is_some() && (!seeks || path == DataPath::Sendfile) {
                        continue;
                    }
                    let source = Source::new(from, &data[..n]);
                    let sink = tempfile::tempfile().unwrap();
                    let limit = Rlimit {
                        current: Some(n as u64),
                        ..before
                    };
                    setrlimit(Resource::Fsize, limit).unwrap();
                    let request = Request {
                        source_offset: offset,
                        sink_offset: offset,
                        ..only(way)
                    };
                    let report = run(&source.fd, &sink, request).report;
                    setrlimit(Resource::Fsize, before).unwrap();
                    assert_eq!((report.ended, report.errno), (Ended::Eof, None), "{what}");
                    assert_eq!((report.read, report.written), (n as u64, n as u64));
                    if n > 0 && way.len() == 1 {
                        assert_eq!(report.path, [path], "{what}: {report:?}");
                    }
                    let mut whys = report.declined.iter().map(|d| d.why.to_string());
                    assert!(!whys.any(|why| why == "EFBIG"), "{what}: {report:?}");
                    assert!(content(&sink) == data[..n], "{what}: the sink's bytes");
                }
            }
        }
    }
}

/// A hole beyond the sink's limit is not counted as written.
#[test]
fn a_hole_that_goes_past_the_limit() {
    let _dog = watchdog("a_hole_that_goes_past_the_limit");
    if !common::alone!() {
        return;
    }
    let before = getrlimit(Resource::Fsize);
    let mut data = pattern(MIB);
    data[8192..600_000].fill(0);
    for (zeros_at_end, always) in [(false, false), (true, false), (false, true), (true, true)] {
        if zeros_at_end {
            data[600_000..].fill(0);
        }
        for from in [From::File, From::Pipe] {
            let what = format!("{from:?}, at the end: {zeros_at_end}, always: {always}");
            let source = Source::new(from, &data);
            if from == From::File {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&source.fd, flags, 8192, 512_000).unwrap();
            }
            let sink = tempfile::tempfile().unwrap();
            let limit = Rlimit {
                current: Some(100_000),
                ..before
            };
            setrlimit(Resource::Fsize, limit).unwrap();
            let sparse = if always { Sparse::Always } else { Sparse::Auto };
            let request = Request {
                sparse,
                ..only(DataPath::ALL)
            };
            let outcome = run(&source.fd, &sink, request);
            setrlimit(Resource::Fsize, before).unwrap();
            let report = &outcome.report;
            assert_eq!(report.errno, Some(Errno::EFBIG), "{what}: {report:?}");
            let got = content(&sink);
            assert_eq!(got.len() as u64, report.written, "{what}: {report:?}");
            assert!(got == data[..got.len()], "{what}");
            audit(&what, outcome, source, from, &data);
        }
    }
}

/// The sink's peer reads exactly `n` bytes and closes.
fn dies_after(n: usize, peer: OwnedFd) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut got = vec![0; n];
        File::from(peer).read_exact(&mut got).unwrap();
        got
    })
}

fn sink_that_dies(make: fn() -> (OwnedFd, OwnedFd), to_pipe: bool, errnos: &[Errno]) {
    // More than any sink here can buffer: a pipe of 256 slots takes up to 32 KiB from
    // a socket in each.
    let data = pattern(12 * MIB);
    for n in BOUNDARIES {
        for from in SOURCES {
            for path in paths(from, false, to_pipe) {
                for (polled, nonblocking) in [(false, false), (true, false), (true, true)] {
                    let what = format!("{from:?} by {path}, {n}, {polled}, {nonblocking}");
                    // A call on a blocking socket may block the transfer without end.
                    let refused = path == DataPath::Sendfile && polled && !nonblocking;
                    if refused && !to_pipe {
                        continue;
                    }
                    let source = Source::new(from, &data);
                    let (sink, peer) = make();
                    rustix::io::ioctl_fionbio(&sink, nonblocking).unwrap();
                    let peer = dies_after(n, peer);
                    let control = Control::new().unwrap();
                    let mut transfer =
                        Transfer::new(source.fd.as_fd(), sink.as_fd(), only(&[path])).unwrap();
                    if polled {
                        transfer = transfer.control(&control);
                    }
                    let outcome = transfer.run();
                    let report = &outcome.report;
                    assert_eq!(report.ended, Ended::Error, "{what}: {report:?}");
                    assert_eq!(report.failed, Some(Side::Sink), "{what}: {report:?}");
                    assert!(
                        report.errno.is_some_and(|e| errnos.contains(&e)),
                        "{what}: {report:?}"
                    );
                    let got = peer.join().unwrap();
                    assert!(got == data[..n] && report.written >= n as u64, "{what}");
                    audit(&what, outcome, source, from, &data);
                }
            }
        }
    }
}

#[test]
fn a_pipe_whose_reader_leaves() {
    let _dog = watchdog("a_pipe_whose_reader_leaves");
    let make = || {
        let (reader, writer) = std::io::pipe().unwrap();
        (writer.into(), reader.into())
    };
    sink_that_dies(make, true, &[Errno::EPIPE]);
}

#[test]
fn a_socket_whose_peer_leaves() {
    let _dog = watchdog("a_socket_whose_peer_leaves");
    let make = || {
        let (a, b) = UnixStream::pair().unwrap();
        (a.into(), b.into())
    };
    sink_that_dies(make, false, &[Errno::EPIPE, Errno::ECONNRESET]);
}

#[test]
fn a_connection_that_is_reset() {
    let _dog = watchdog("a_connection_that_is_reset");
    let make = || {
        let (a, b) = common::tcp_pair();
        rustix::net::sockopt::set_socket_recv_buffer_size(&b, 32 << 10).unwrap();
        rustix::net::sockopt::set_socket_send_buffer_size(&a, 32 << 10).unwrap();
        (a.into(), b.into())
    };
    sink_that_dies(make, false, &[Errno::EPIPE, Errno::ECONNRESET]);
}
