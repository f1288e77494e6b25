//! Calls that a signal interrupts: they are made again.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;

use crate::common::{From, Source, content, only, pattern, piped, run, watchdog};
use cordboard::{DataPath, Direct, Ended, Request};
use testkit::midst::refusing;

/// The calls that move bytes, query sizes, reserve space, or end a transfer; not
/// those that wait, which a signal may end.
const CALLS: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_copy_file_range,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ioctl,
    libc::SYS_lseek,
];

/// Runs a transfer to a file or through a pipe. Of every `nth[0]` of these calls,
/// that with index `nth[1]` fails.
fn moved(
    from: From,
    to_a_file: bool,
    request: &Request,
    (calls, errno): (&[libc::c_long], i32),
    nth: [usize; 2],
) {
    let data = pattern(300_001);
    let what = format!("{from:?}, {to_a_file}, {nth:?}, {request:?}");
    let source = Source::new(from, &data);
    let (mut reader, pipe) = std::io::pipe().unwrap();
    let file = tempfile::tempfile().unwrap();
    let mut sink = File::from(std::os::fd::OwnedFd::from(pipe));
    if to_a_file {
        sink = file.try_clone().unwrap();
    }
    let mut report = None;
    let counted = std::thread::scope(|scope| {
        let drained = scope.spawn(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).unwrap();
            all
        });
        let [of, first] = nth;
        let body = || {
            report = Some(run(&source.fd, &sink, request.clone()).report);
            drop(sink);
        };
        // The index shifts over time: a loop may make the same number of calls in
        // each round.
        let fails = |count| (count + count / 30) % of == first;
        let counted = refusing(calls, body, |count| fails(count).then_some(errno));
        let drained = drained.join().unwrap();
        if counted.is_some() && !to_a_file {
            assert!(drained == data, "{what}");
        }
        counted
    });
    if counted.is_none() {
        return testkit::skip::report("interrupted", "no seccomp_unotify(2) here");
    }
    let report = report.unwrap();
    assert_eq!(
        (report.ended, report.errno, report.written),
        (Ended::Eof, None, data.len() as u64),
        "{what}: {report:?}"
    );
    assert!(!to_a_file || content(&file) == data, "{what}");
}

#[test]
fn a_signal_between_two_calls_ends_no_transfer() {
    let _dog = watchdog("a_signal_between_two_calls_ends_no_transfer");
    for from in [From::File, From::Pipe, From::Unix, From::Tcp] {
        for path in DataPath::ALL {
            for to_a_file in [true, false] {
                let request = Request {
                    direct: if *path == DataPath::Direct {
                        Direct::Always
                    } else {
                        Direct::Never
                    },
                    sync: to_a_file,
                    ..only(&[*path, DataPath::ReadWrite])
                };
                for first in 0..3 {
                    moved(from, to_a_file, &request, (CALLS, libc::EINTR), [3, first]);
                }
            }
        }
    }
}

/// If a shared position can be read but not moved, or the reverse, the transfer
/// does not use it.
#[test]
fn a_position_that_is_refused_now_and_then_loses_nothing() {
    let _dog = watchdog("a_position_that_is_refused_now_and_then_loses_nothing");
    for path in [
        DataPath::CopyFileRange,
        DataPath::Sendfile,
        DataPath::Splice,
    ] {
        for to_a_file in [true, false] {
            for of in 2..5 {
                for first in 0..of {
                    let calls: (&[_], _) = (&[libc::SYS_lseek], libc::EPERM);
                    let request = only(&[path, DataPath::ReadWrite]);
                    moved(From::File, to_a_file, &request, calls, [of, first]);
                }
            }
        }
    }
}

/// The transfer continues to look for holes and to make them.
#[test]
fn a_signal_while_holes_are_made() {
    use std::os::unix::fs::{FileExt, MetadataExt};
    let _dog = watchdog("a_signal_while_holes_are_made");
    const HOLE: u64 = 1 << 20;
    let source = tempfile::tempfile().unwrap();
    source.write_all_at(b"data", 0).unwrap();
    source.write_all_at(b"data", HOLE).unwrap();
    source.set_len(2 * HOLE).unwrap();
    let sink = tempfile::tempfile().unwrap();
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    sink.set_len(HOLE).unwrap();
    // SAFETY: takes integers, of a file that is open.
    let punched = unsafe { libc::fallocate(sink.as_raw_fd(), punch, 0, 1 << 20) };
    if punched != 0 {
        return testkit::skip::report("a_signal_while_holes_are_made", "no holes here");
    }
    sink.set_len(0).unwrap();
    sink.write_all_at(&vec![1; 2 * HOLE as usize], 0).unwrap();
    let mut report = None;
    let request = only(&[DataPath::ReadWrite]);
    let body = || report = Some(run(&source, &sink, request).report);
    let counted = refusing(&[libc::SYS_fallocate], body, |count| {
        (count % 2 == 0).then_some(libc::EINTR)
    });
    if counted.is_none() {
        return testkit::skip::report("interrupted", "no seccomp_unotify(2) here");
    }
    assert!(counted >= Some(2), "{counted:?}");
    let report = report.unwrap();
    assert_eq!((report.ended, report.written), (Ended::Eof, 2 * HOLE));
    assert!(content(&sink) == content(&source), "{report:?}");
    let kept = sink.metadata().unwrap().blocks() * 512;
    assert!(kept <= HOLE, "{kept} bytes of the hole are written");
}

/// Every other `poll(2)` is interrupted, with and without a timeout.
#[test]
fn a_signal_at_every_other_look_ends_no_transfer() {
    let _dog = watchdog("a_signal_at_every_other_look_ends_no_transfer");
    let data = pattern(300_000);
    for first in [0, 1] {
        let signal = |count| (count % 2 == first).then_some(libc::EINTR);
        let Some((_, report, got)) = piped(&data, testkit::refuse::PPOLL, signal) else {
            return testkit::skip::report("a signal", "no seccomp_unotify(2) here");
        };
        assert_eq!(
            (report.ended, report.errno),
            (Ended::Eof, None),
            "{report:?}"
        );
        assert!(got == data, "{report:?}");
    }
}
