//! Each call fails with each errno that a kernel, a file system or a filter is known
//! to return: the bytes arrive nevertheless, in order. Seccomp filters fail the
//! calls, as in many containers.
//!
//! A filter binds the thread that installs it, so each case runs in its own thread.
//! The library remembers `ENOSYS` for the process, so a case with that errno runs in
//! its own process.

mod descriptions;
mod engines;
mod interrupted;
mod pair;
mod pairs_of_calls;
mod pending;
mod rings;
mod room;
mod sockets;
mod unreadable;
mod waits;
mod wakes;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;

use crate::common::{self, From, Source, any, content, content_of, only, pattern, run, watchdog};
use cordboard::{
    DataPath, Ended, Endpoint, Errno, Kind, Observer, Progress, Refusal, Report, Request, Side,
    Transfer,
};
use testkit::needs::Need;
use testkit::refuse::apart;

/// Fails this thread's calls with these numbers.
fn refuse(calls: &[libc::c_long], errno: Errno) {
    testkit::refuse::refuse(calls, errno.raw());
}

/// Fails these calls of all threads.
fn refuse_all(calls: &[libc::c_long], errno: Errno) {
    testkit::refuse::refuse_all(calls, errno.raw());
}

const SIZE: usize = 300_000;

fn into_a_file(from: From, request: Request, calls: &[libc::c_long], errno: Errno) -> Report {
    let data = pattern(SIZE);
    let source = Source::new(from, &data);
    let sink = tempfile::tempfile().unwrap();
    let report = apart(|| {
        refuse(calls, errno);
        run(&source.fd, &sink, request).report
    });
    assert_eq!(report.ended, Ended::Eof, "{errno}: {report:?}");
    assert!(content(&sink) == data, "{errno}: {report:?}");
    report
}

/// A filter refuses `fstatfs(2)`. Anonymous inodes are regular files since Linux
/// 6.16, and procfs can be neither spliced nor mapped.
#[test]
fn file_systems_that_nobody_tells() {
    let _dog = watchdog("file_systems_that_nobody_tells");
    for errno in [Errno::ENOSYS, Errno::EPERM] {
        for from in common::SOURCES {
            into_a_file(from, any(), &[libc::SYS_fstatfs], errno);
        }
        apart(|| {
            refuse(&[libc::SYS_fstatfs], errno);
            // If `eventfd2(2)` is refused, there is no eventfd to recognise.
            if let Ok(counter) = rustix::event::eventfd(7, rustix::event::EventfdFlags::empty()) {
                let kind = Endpoint::probe(counter.as_fd()).unwrap().kind();
                assert_eq!(kind, Kind::Eventfd, "{errno}");
            }
            let status = File::open("/proc/self/stat").unwrap();
            assert!(Endpoint::probe(status.as_fd()).unwrap().facts().unpaged);
            let (reader, writer) = std::io::pipe().unwrap();
            let report = run(&status, &writer, any()).report;
            drop(writer);
            let all = common::content_of(reader);
            assert_eq!(report.path, [DataPath::ReadWrite], "{errno}: {report:?}");
            assert!(all.ends_with(b"\n"), "{errno}: {report:?}");
            assert_eq!(report.written, all.len() as u64, "{errno}: {report:?}");
        });
        // With `mmap(2)` refused too.
        apart(|| {
            let file = common::file_with(b"bytes");
            refuse(&[libc::SYS_fstatfs, libc::SYS_mmap], errno);
            let facts = *Endpoint::probe(file.as_fd()).unwrap().facts();
            assert!(facts.unpaged, "{errno}: {facts:?}");
        });
    }
}

/// `fstat(2)` is refused: another call reports the same. If all are refused, the error names the
/// call.
#[cfg(target_pointer_width = "64")]
#[test]
fn a_file_that_fstat_does_not_report() {
    let name = "a_file_that_fstat_does_not_report";
    if testkit::needs::missing(name, &[testkit::needs::Need::Statx]) {
        return;
    }
    use testkit::refuse::STAT;
    let _dog = watchdog("a_file_that_fstat_does_not_report");
    for errno in [Errno::ENOSYS, Errno::EPERM, Errno::EACCES, Errno::EINVAL] {
        for refused in 1..STAT.len() {
            for from in common::SOURCES {
                into_a_file(from, any(), &STAT[..refused].concat(), errno);
            }
        }
        let (source, sink) = (common::file_with(b"bytes"), tempfile::tempfile().unwrap());
        let (failure, control) = apart(|| {
            refuse(&STAT[..2].concat(), errno);
            let control = cordboard::Control::new().err();
            refuse(STAT[2], errno);
            (
                Transfer::new(source.as_fd(), sink.as_fd(), any()).err(),
                control,
            )
        });
        assert_eq!(control, None, "{errno}");
        let failure = failure.unwrap();
        let (side, call) = (Side::Source, "fstat(2)");
        let expected = Refusal::Unexamined { side, call, errno };
        assert_eq!(failure.refusal, Some(expected));
        assert_eq!(
            (failure.report.failed, failure.report.errno),
            (Some(side), Some(errno))
        );
        let text = format!("the source cannot be examined: fstat(2) failed: {errno}");
        assert_eq!(failure.to_string(), text);
    }
}

fn declined(report: &Report, path: DataPath, errno: Errno) -> bool {
    let why = format!("{errno:?}");
    let mut all = report.declined.iter();
    all.any(|d| d.path == path && d.why.to_string() == why)
}

/// The first of these paths is refused with each of these errnos, and the second
/// carries everything. The next pair tries the first path again.
fn hands_over(from: From, paths: [DataPath; 2], call: libc::c_long, errnos: &[Errno]) {
    for errno in errnos {
        let report = into_a_file(from, only(&paths), &[call], *errno);
        assert_eq!(report.path, paths[1..], "{errno}: {report:?}");
        assert!(declined(&report, paths[0], *errno), "{errno}: {report:?}");
        if common::is_open(paths[0]) {
            let report = into_a_file(from, only(&paths), &[], *errno);
            assert_eq!(report.path, paths[..1], "{errno}: {report:?}");
        }
    }
}

#[test]
fn copy_file_range_refused_in_every_known_way() {
    let _dog = watchdog("copy_file_range_refused_in_every_known_way");
    // Where the call does not exist, a test beside this one lets the process forget it.
    if !common::alone!() {
        return;
    }
    // Old kernels and different file systems; NFS; filters and immutable files; CIFS
    // (three of them); old CephFS; swap files; overlaps; huge offsets.
    let errnos = [
        Errno::EXDEV,
        Errno::EOPNOTSUPP,
        Errno::EPERM,
        Errno::EIO,
        Errno::ENOENT,
        Errno::EACCES,
        Errno::ETXTBSY,
        Errno::EINVAL,
        Errno::EBADF,
        Errno::EOVERFLOW,
    ];
    let [next] = common::carried_by(&[DataPath::Sendfile, DataPath::Splice]);
    let paths = [DataPath::CopyFileRange, next];
    hands_over(From::File, paths, libc::SYS_copy_file_range, &errnos);
}

/// Starting writeback can be refused, and it can fail.
#[test]
fn writeback_that_cannot_be_started_and_writeback_that_fails() {
    let _dog = watchdog("writeback_that_cannot_be_started_and_writeback_that_fails");
    let source = common::file_with(&pattern(20 << 20));
    for (errno, fails) in [
        (Errno::ENOSYS, false),
        (Errno::EPERM, false),
        (Errno::ENOMEM, false),
        (Errno::EIO, true),
        (Errno::ENOSPC, true),
    ] {
        let sink = tempfile::tempfile().unwrap();
        let request = Request {
            sync: true,
            source_offset: Some(0),
            ..only(&[DataPath::ReadWrite])
        };
        let report = apart(|| {
            refuse(&[libc::SYS_sync_file_range], errno);
            run(&source, &sink, request).report
        });
        let expected = match fails {
            true => (Ended::Error, Some(Side::Sink), Some(errno)),
            false => (Ended::Eof, None, None),
        };
        let found = (report.ended, report.failed, report.errno);
        assert_eq!(found, expected, "{report:?}");
    }
}

#[test]
fn sendfile_refused_in_every_known_way() {
    let _dog = watchdog("sendfile_refused_in_every_known_way");
    if testkit::needs::missing("sendfile_refused_in_every_known_way", &[Need::Splice]) {
        return;
    }
    let errnos = [
        Errno::EINVAL,
        Errno::EOPNOTSUPP,
        Errno::EPERM,
        Errno::EACCES,
        Errno::EIO,
        Errno::EOVERFLOW,
        Errno::ENOSYS,
    ];
    let paths = [DataPath::Sendfile, DataPath::Splice];
    hands_over(From::File, paths, libc::SYS_sendfile, &errnos);
}

#[test]
fn splice_refused_in_every_known_way() {
    let _dog = watchdog("splice_refused_in_every_known_way");
    let errnos = [
        Errno::EINVAL,
        Errno::EOPNOTSUPP,
        Errno::EPERM,
        Errno::EACCES,
        Errno::EIO,
        Errno::ENOSYS,
    ];
    let paths = [DataPath::Splice, DataPath::ReadWrite];
    for from in [From::Pipe, From::Unix, From::Tcp] {
        hands_over(from, paths, libc::SYS_splice, &errnos);
    }
}

#[test]
fn everything_refused_but_reading_and_writing() {
    let _dog = watchdog("everything_refused_but_reading_and_writing");
    if !common::alone!() {
        return;
    }
    let modern = [
        libc::SYS_ioctl,
        libc::SYS_copy_file_range,
        libc::SYS_sendfile,
        libc::SYS_splice,
        libc::SYS_tee,
        libc::SYS_pipe2,
        libc::SYS_pwritev2,
        libc::SYS_recvmmsg,
        libc::SYS_sendmmsg,
        libc::SYS_statx,
        libc::SYS_kcmp,
    ];
    for errno in [Errno::EPERM, Errno::ENOSYS] {
        for from in [From::File, From::Pipe, From::Unix, From::Tcp] {
            let report = into_a_file(from, any(), &modern, errno);
            assert_eq!(report.path, [DataPath::ReadWrite], "{report:?}");
        }
    }
}

/// If `ioctl(2)` is refused, the master is not recognised as a terminal. Each read of an unknown
/// device may be a record, so it is not spliced.
#[test]
fn the_end_of_a_pseudoterminal_that_nobody_knows_for_one() {
    let _dog = watchdog("the_end_of_a_pseudoterminal_that_nobody_knows_for_one");
    for data in [&b""[..], b"some"] {
        for through in [false, true] {
            let (master, tty) = common::pty();
            common::raw(&tty);
            rustix::io::write(&tty, data).unwrap();
            drop(tty);
            let file = tempfile::tempfile().unwrap();
            let (reader, writer) = std::io::pipe().unwrap();
            let report = apart(|| {
                refuse(&[libc::SYS_ioctl], Errno::EPERM);
                let request = any();
                match through {
                    true => run(&master, &file, request).report,
                    false => run(&master, &writer, request).report,
                }
            });
            drop(writer);
            assert_eq!(report.ended, Ended::Eof, "{data:?}, {through}: {report:?}");
            assert_eq!(report.path, [DataPath::ReadWrite], "{report:?}");
            let got = match through {
                true => content(&file),
                false => common::content_of(reader),
            };
            assert_eq!(got, data, "{report:?}");
        }
    }
}

#[test]
fn a_pipe_that_cannot_be_told_not_to_wait() {
    let _dog = watchdog("a_pipe_that_cannot_be_told_not_to_wait");
    for errno in [Errno::EPERM, Errno::ENOSYS, Errno::EOPNOTSUPP] {
        let data = pattern(SIZE);
        let source = Source::new(From::Unix, &data);
        let (mut reader, writer) = std::io::pipe().unwrap();
        let control = cordboard::Control::new().unwrap();
        let (report, got) = std::thread::scope(|scope| {
            let got = scope.spawn(move || {
                let mut got = Vec::new();
                reader.read_to_end(&mut got).unwrap();
                got
            });
            let report = scope.spawn(|| {
                refuse(&[libc::SYS_pwritev2], errno);
                let request = only(&[DataPath::ReadWrite]);
                let sink = writer;
                Transfer::new(source.fd.as_fd(), sink.as_fd(), request)
                    .unwrap()
                    .control(&control)
                    .run()
                    .report
            });
            (report.join().unwrap(), got.join().unwrap())
        });
        assert_eq!(report.ended, Ended::Eof, "{errno}: {report:?}");
        assert!(got == data, "{errno}");
    }
}

#[test]
fn datagrams_without_batches() {
    let _dog = watchdog("datagrams_without_batches");
    for calls in [
        &[libc::SYS_recvmmsg][..],
        &[libc::SYS_sendmmsg],
        &[libc::SYS_recvmmsg, libc::SYS_sendmmsg],
    ] {
        for errno in [Errno::ENOSYS, Errno::EPERM, Errno::EINVAL] {
            let (a, source) = UnixDatagram::pair().unwrap();
            let (sink, b) = UnixDatagram::pair().unwrap();
            for length in [3, 0, 5] {
                a.send(&pattern(length)).unwrap();
            }
            let request = Request {
                size: 8.into(),
                ..any()
            };
            let report = apart(|| {
                refuse(calls, errno);
                run(&source, &sink, request).report
            });
            assert_eq!(report.ended, Ended::Size, "{calls:?} {errno}: {report:?}");
            for length in [3, 0, 5] {
                let mut got = [1; 16];
                assert_eq!(b.recv(&mut got).unwrap(), length);
            }
        }
    }
}

/// Sets `O_APPEND` on the sink after the first bytes.
struct Append<'a>(&'a File);

impl Observer for Append<'_> {
    fn progress(&mut self, progress: &Progress) {
        if progress.written > 0 {
            let flags = rustix::fs::fcntl_getfl(self.0).unwrap();
            rustix::fs::fcntl_setfl(self.0, flags | rustix::fs::OFlags::APPEND).unwrap();
        }
    }
}

/// The sink refuses pages after the transfer has taken them from the source: the
/// content of the private pipe is written, even if no second pipe is available.
#[test]
fn a_sink_that_refuses_pages_once_they_are_in_hand() {
    let _dog = watchdog("a_sink_that_refuses_pages_once_they_are_in_hand");
    if testkit::needs::missing(
        "a_sink_that_refuses_pages_once_they_are_in_hand",
        &[Need::Splice],
    ) {
        return;
    }
    let data = pattern(3 << 20);
    for filtered in [false, true] {
        let source = Source::new(From::Unix, &data);
        let sink = tempfile::tempfile().unwrap();
        let report = apart(|| {
            if filtered {
                refuse(&[libc::SYS_tee], Errno::EMFILE);
            }
            let request = only(&[DataPath::Splice, DataPath::ReadWrite]);
            let mut append = Append(&sink);
            Transfer::new(source.fd.as_fd(), sink.as_fd(), request)
                .unwrap()
                .observe(&mut append)
                .run()
                .report
        });
        assert_eq!(report.ended, Ended::Eof, "{report:?}");
        assert_eq!(report.path, [DataPath::Splice, DataPath::ReadWrite]);
        assert!(declined(&report, DataPath::Splice, Errno::EINVAL));
        assert!(content(&sink) == data, "{report:?}");
    }
}

/// A write that returns 0 counts as an error.
#[test]
fn a_sink_that_takes_nothing_without_a_word() {
    let _dog = watchdog("a_sink_that_takes_nothing_without_a_word");
    let request = Request {
        direct: cordboard::Direct::Always,
        ..only(&[DataPath::Direct])
    };
    let (source, sink) = (common::file_with(b"a tail"), tempfile::tempfile().unwrap());
    let report = apart(|| {
        refuse(
            &[libc::SYS_pwritev2, libc::SYS_pwrite64],
            Errno::from_raw(0),
        );
        run(&source, &sink, request).report
    });
    assert_eq!(
        (report.failed, report.errno, report.written),
        (Some(cordboard::Side::Sink), Some(Errno::EIO), 0),
        "{report:?}"
    );
}

/// `prlimit64(2)` is refused, which reports whether `SIGXFSZ` must be blocked.
#[test]
fn a_limit_that_nobody_tells() {
    let _dog = watchdog("a_limit_that_nobody_tells");
    for errno in [Errno::EPERM, Errno::ENOSYS] {
        for from in [From::File, From::Unix] {
            into_a_file(from, any(), &[libc::SYS_prlimit64], errno);
        }
    }
}

/// The library's maps need no random bytes. If a filter refuses `getrandom(2)`, the
/// standard library's maps panic.
#[test]
fn no_random_bytes_are_needed() {
    let _dog = watchdog("no_random_bytes_are_needed");
    for errno in [Errno::EACCES, Errno::EINVAL, Errno::EAGAIN] {
        for by_engine in [false, true] {
            let report = apart(|| {
                refuse(&[libc::SYS_getrandom], errno);
                let (mut feed, source) = std::os::unix::net::UnixStream::pair().unwrap();
                let (_out, sink) = std::os::unix::net::UnixStream::pair().unwrap();
                std::io::Write::write_all(&mut feed, b"bytes").unwrap();
                drop(feed);
                let transfer =
                    Transfer::owning(source.into(), sink.into(), Request::default()).unwrap();
                if !by_engine {
                    return transfer.run().report;
                }
                let engine = cordboard::Engine::new(Default::default()).unwrap();
                engine.start(transfer).unwrap().wait().report
            });
            assert_eq!(
                (report.ended, report.written),
                (Ended::Eof, 5),
                "{report:?}"
            );
        }
    }
}
