//! Calls that fail for lack of space: on a source, on a sink, and for holes.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;

use super::{SIZE, declined, refuse};
use crate::common::{self, From, Source, content, only, pattern, run, watchdog};
use cordboard::{DataPath, Ended, Errno, Report, Request, Side, Transfer};
use testkit::refuse::apart;

/// Reading a hole by pages may need space or memory (tmpfs before Linux 5.18), while
/// a read into a buffer needs none. So such an errno is not attributed to the sink
/// until a write returns it.
const ROOM: [Errno; 4] = [Errno::ENOSPC, Errno::EDQUOT, Errno::EFBIG, Errno::ENOMEM];

#[test]
fn a_source_that_finds_no_room() {
    use std::os::fd::AsRawFd;
    let _dog = watchdog("a_source_that_finds_no_room");
    use DataPath::{CopyFileRange, ReadWrite, Sendfile, Splice};
    let file_to_file = [
        (CopyFileRange, Sendfile, libc::SYS_copy_file_range, 0),
        (Sendfile, Splice, libc::SYS_sendfile, 1),
    ];
    for (path, next, call, argument) in file_to_file {
        if common::forcible(&[path, next]).len() < 2 {
            continue;
        }
        for (errno, late) in errnos() {
            let (source, sink) = (
                common::file_with(&pattern(SIZE)),
                tempfile::tempfile().unwrap(),
            );
            let number = source.as_raw_fd().cast_unsigned();
            let refuse = || testkit::refuse::refuse_where(call, argument, number, errno.raw());
            let report = in_blocks(&source, &sink, [path, next], late, refuse);
            passed_on(&report, [path, next], errno, late);
            assert!(content(&sink) == pattern(SIZE), "{report:?}");
        }
    }
    // With a private pipe, and without one.
    for size in [SIZE, 60_000] {
        if common::forcible(&[Splice]).is_empty() {
            break;
        }
        for (errno, late) in errnos() {
            let (source, (mut reader, sink)) =
                (common::file_with(&pattern(size)), std::io::pipe().unwrap());
            let number = source.as_raw_fd().cast_unsigned();
            let got = std::thread::spawn(move || {
                let mut got = Vec::new();
                reader.read_to_end(&mut got).unwrap();
                got
            });
            let refuse = || testkit::refuse::refuse_where(libc::SYS_splice, 0, number, errno.raw());
            let report = in_blocks(&source, &sink, [Splice, ReadWrite], late, refuse);
            drop(sink);
            passed_on(&report, [Splice, ReadWrite], errno, late);
            assert!(got.join().unwrap() == pattern(size), "{report:?}");
        }
    }
}

/// Each errno, from the start or after the first bytes.
fn errnos() -> impl Iterator<Item = (Errno, bool)> {
    ROOM.into_iter()
        .flat_map(|errno| [(errno, false), (errno, true)])
}

fn in_blocks(
    source: impl AsFd + Sync,
    sink: impl AsFd + Sync,
    paths: [DataPath; 2],
    late: bool,
    refuse: impl Fn() + Sync,
) -> Report {
    let request = Request {
        block: std::num::NonZeroUsize::new(4096),
        ..only(&paths)
    };
    apart(|| {
        let mut moved = common::meanwhile(|| {
            if late {
                refuse()
            }
        });
        if !late {
            refuse();
        }
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request);
        transfer.unwrap().observe(&mut moved).run().report
    })
}

/// The second path carries the rest, up to the end.
fn passed_on(report: &Report, paths: [DataPath; 2], errno: Errno, late: bool) {
    assert_eq!(
        (report.ended, report.failed),
        (Ended::Eof, None),
        "{report:?}"
    );
    assert_eq!(report.read, report.written, "{report:?}");
    assert!(declined(report, paths[0], errno), "{report:?}");
    assert_eq!(report.path, paths[usize::from(!late)..], "{report:?}");
}

/// If the source is a pipe, such an errno is the sink's: no bytes are read from the
/// pipe into a buffer that could not be written.
#[test]
fn a_sink_that_finds_no_room_for_a_pipes_pages() {
    let _dog = watchdog("a_sink_that_finds_no_room_for_a_pipes_pages");
    for errno in ROOM {
        let data = pattern(SIZE);
        let source = Source::new(From::Pipe, &data);
        let sink = tempfile::tempfile().unwrap();
        let outcome = apart(|| {
            refuse(&[libc::SYS_splice], errno);
            let paths = [DataPath::Splice, DataPath::ReadWrite];
            run(&source.fd, &sink, only(&paths))
        });
        let failure = (outcome.report.failed, outcome.report.errno);
        assert_eq!(failure, (Some(Side::Sink), Some(errno)));
        assert_eq!((outcome.report.read, outcome.report.stranded), (0, 0));
        common::audit("a pipe", outcome, source, From::Pipe, &data);
    }
}

/// Holes are made without the newest call for holes, and never by a call that could
/// shorten the sink.
#[test]
fn holes_where_calls_are_refused() {
    use std::os::unix::fs::{FileExt, MetadataExt};
    let _dog = watchdog("holes_where_calls_are_refused");
    let blocks = |file: &File| file.metadata().unwrap().blocks();
    let (write, reserve) = (libc::SYS_pwritev2, libc::SYS_fallocate);
    for calls in [&[write][..], &[reserve], &[write, reserve]] {
        for errno in [Errno::EOPNOTSUPP, Errno::EPERM, Errno::ENOSYS] {
            let source = tempfile::tempfile().unwrap();
            for at in [1 << 20, 5 << 20] {
                source.write_all_at(&pattern(8192), at).unwrap();
            }
            source.set_len((9 << 20) + 17).unwrap();
            let sink = tempfile::tempfile().unwrap();
            let report = apart(|| {
                refuse(&[libc::SYS_ftruncate], Errno::EIO);
                refuse(calls, errno);
                run(&source, &sink, only(&[DataPath::ReadWrite])).report
            });
            let found = (report.ended, report.written, report.path);
            let expected = (Ended::Eof, (9 << 20) + 17, vec![DataPath::ReadWrite]);
            assert_eq!(found, expected, "{calls:?} {errno}");
            assert!(content(&sink) == content(&source), "{calls:?} {errno}");
            // If holes cannot be punched, the last block of each hole stays.
            let more = if calls.contains(&reserve) { 3 } else { 1 };
            let most = blocks(&source) + more * 8;
            assert!(
                blocks(&sink) <= most,
                "{calls:?} {errno}: {}",
                blocks(&sink)
            );
        }
    }
}
