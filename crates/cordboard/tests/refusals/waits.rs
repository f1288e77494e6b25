//! Filters that refuse to tell what is ready, or to read and write at an offset.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::Duration;

use super::*;
use crate::common::SOURCES;

/// `pselect6(2)`, which a 32-bit process calls with 64 bits for a time (413).
const SELECT: &[libc::c_long] = if cfg!(target_pointer_width = "64") {
    &[libc::SYS_pselect6]
} else {
    &[libc::SYS_pselect6, 413]
};

/// A sink that is full again and again, and what comes out of it.
fn slow_sink(kind: From) -> (OwnedFd, JoinHandle<Vec<u8>>) {
    let (sink, end): (OwnedFd, OwnedFd) = match kind {
        From::Pipe | From::File => {
            let (end, sink) = std::io::pipe().unwrap();
            rustix::pipe::fcntl_setpipe_size(&sink, 4096).unwrap();
            (sink.into(), end.into())
        }
        From::Unix => {
            let (sink, end) = UnixStream::pair().unwrap();
            (sink.into(), end.into())
        }
        From::Tcp => {
            let (sink, end) = common::tcp_pair();
            (sink.into(), end.into())
        }
    };
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        File::from(end).read_to_end(&mut all).unwrap();
        all
    });
    (sink, reader)
}

fn nonblocking(fd: &OwnedFd) {
    let flags = rustix::fs::fcntl_getfl(fd).unwrap();
    rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
}

/// With `poll(2)` refused, `select(2)` is asked; with both refused, calls wait by
/// themselves, and those that do not wait are made again. Only where a limit
/// wants the thread back, and the call would keep it, is that a failure.
#[test]
fn what_is_ready_cannot_be_asked() {
    let _dog = watchdog("what_is_ready_cannot_be_asked");
    let data = pattern(SIZE);
    let all = [PathName::Splice, PathName::Sendfile, PathName::ReadWrite];
    for errno in [Errno::ENOSYS, Errno::EPERM, Errno::EACCES] {
        for from in SOURCES {
            for to in [From::Pipe, From::Unix, From::Tcp] {
                for (both, idle, waits) in [
                    (false, true, true),
                    (false, false, true),
                    (true, false, true),
                    (true, false, false),
                    (true, true, true),
                ] {
                    for paths in [&all[..], &all[2..]] {
                        let source = Source::new(from, &data);
                        let (sink, reader) = slow_sink(to);
                        if !waits {
                            [&source.fd, &sink].into_iter().for_each(nonblocking);
                        }
                        let request = Request {
                            idle: idle.then_some(Duration::from_secs(100)),
                            ..only(paths)
                        };
                        let report = apart(|| {
                            refuse(testkit::refuse::PPOLL, errno);
                            if both {
                                refuse(SELECT, errno);
                            }
                            run(&source.fd, &sink, request).report
                        });
                        drop(sink);
                        // Its feeder may not get rid of the rest.
                        drop(source);
                        let got = reader.join().unwrap();
                        let what = format!("{errno}: {from:?} to {to:?}, {both} {idle} {waits}");
                        let what = format!("{what} by {paths:?}: {report:?}");
                        assert_eq!(report.written, got.len() as u64, "{what}");
                        if both && idle && report.ended == Ended::Error {
                            assert_eq!(report.failed, None, "{what}");
                            assert_eq!(report.errno, Some(errno), "{what}");
                            let why = report.declined.last().map(|d| d.why.to_string());
                            assert!(why.is_some_and(|why| why.contains("poll(2)")), "{what}");
                            continue;
                        }
                        assert_eq!(report.ended, Ended::Eof, "{what}");
                        assert!(got == data, "{what}");
                    }
                }
            }
        }
    }
}

/// At an offset of the request's, past which position and count are as ever.
#[test]
fn no_call_takes_an_offset() {
    let _dog = watchdog("no_call_takes_an_offset");
    let data = pattern(SIZE);
    let calls = [libc::SYS_pread64, libc::SYS_pwrite64, libc::SYS_pwritev];
    for errno in [Errno::ENOSYS, Errno::EPERM, Errno::EACCES] {
        for paths in [
            &[PathName::ReadWrite][..],
            &[PathName::Splice, PathName::ReadWrite],
        ] {
            for sparse in [cordboard::Sparse::Auto, cordboard::Sparse::Always] {
                let (source, sink) = (common::file_with(&data), common::file_with(b"here"));
                let request = Request {
                    source_offset: Some(1000),
                    sink_offset: Some(5000),
                    sparse,
                    ..only(paths)
                };
                let report = apart(|| {
                    refuse(&calls, errno);
                    run(&source, &sink, request).report
                });
                let what = format!("{errno} by {paths:?}, {sparse:?}: {report:?}");
                assert_eq!(report.ended, Ended::Eof, "{what}");
                assert_eq!(report.written, SIZE as u64 - 1000, "{what}");
                assert_eq!(common::position(&source), 0, "{what}");
                assert_eq!(common::position(&sink), 0, "{what}");
                let got = content(&sink);
                assert_eq!(&got[..4], b"here", "{what}");
                assert!(got[5000..] == data[1000..], "{what}");
            }
        }
        // A path that sees the end has a byte read there.
        let source = common::file_with(&data);
        let (sink, reader) = slow_sink(From::Pipe);
        let report = apart(|| {
            refuse(&calls, errno);
            run(&source, &sink, only(&[PathName::Splice])).report
        });
        drop(sink);
        assert_eq!(report.ended, Ended::Eof, "{errno}: {report:?}");
        assert!(reader.join().unwrap() == data, "{errno}");
    }
}
