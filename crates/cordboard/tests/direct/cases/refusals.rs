//! Direct I/O that is not possible: it is declined with a reason, nothing is moved,
//! and the next path continues.

use super::{direct, whole};
use crate::common::{self, MIB, any, content, file_with, pattern, position, run, watchdog};
use cordboard::DataPath::{Clone, Direct, ReadWrite};
use cordboard::{Ended, Report, Request, Switches};
use testkit::needs::Need;

fn why(report: &Report) -> String {
    let declined = report.declined.iter().find(|d| d.path == Direct);
    declined.map(|d| d.why.to_string()).unwrap_or_default()
}

/// Returns a request for any path but a clone, which comes before direct I/O on a file
/// system that shares blocks.
fn uncloned() -> Request {
    Request {
        switches: Some(Switches::all().without(Clone)),
        ..any()
    }
}

fn wished() -> Request {
    Request {
        direct: cordboard::Direct::Always,
        switches: Some(Switches::only(&[Direct, ReadWrite])),
        ..direct()
    }
}

#[test]
fn a_place_that_differs_within_a_block() {
    let data = pattern(MIB);
    for (from, to) in [(0, 1), (4096, 512), (100, 0)] {
        let (source, sink) = (file_with(&data), tempfile::tempfile().unwrap());
        let request = Request {
            source_offset: Some(from),
            sink_offset: Some(to),
            ..wished()
        };
        let report = run(&source, &sink, request).report;
        assert_eq!(
            (report.ended, &report.path[..]),
            (Ended::Eof, &[ReadWrite][..])
        );
        assert!(why(&report).contains("within a block"), "{report:?}");
        assert!(content(&sink)[to as usize..] == data[from as usize..]);
    }
}

#[test]
fn files_that_are_on_no_device() {
    let data = pattern(100_000);
    let memory = rustix::fs::memfd_create("m", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let sink = std::fs::File::from(memory);
    let source = file_with(&data);
    let report = run(&source, &sink, wished()).report;
    assert_eq!(
        (report.ended, &report.path[..]),
        (Ended::Eof, &[ReadWrite][..])
    );
    assert!(content(&sink) == data);
    assert_eq!(position(&source), data.len() as u64);
}

/// Also declined for one file on both sides, for an appending sink, and if blocks of
/// zeros become holes.
#[test]
fn what_the_request_rules_out() {
    let data = pattern(MIB);
    let (source, sink) = (file_with(&data), tempfile::tempfile().unwrap());
    let sparse = Request {
        sparse: cordboard::Sparse::Always,
        ..wished()
    };
    let report = run(&source, &sink, sparse).report;
    assert_eq!(report.path, [ReadWrite]);
    assert!(why(&report).contains("holes"), "{report:?}");
    let never = Request {
        direct: cordboard::Direct::Never,
        source_offset: Some(0),
        sink_offset: Some(0),
        ..any()
    };
    let report = run(&source, &sink, never).report;
    assert!(!report.path.contains(&Direct), "{report:?}");
    assert!(content(&sink) == data);
}

/// Chosen by default if the source is not cached and the sink is synced; not if the
/// source is in the page cache.
#[test]
fn taken_for_what_is_large_cold_and_synced() {
    let data = pattern(17 * MIB);
    let (source, sink) = (file_with(&data), tempfile::tempfile().unwrap());
    crate::engine();
    if !common::may_choose_direct() {
        return;
    }
    let probe = || cordboard::Endpoint::probe(std::os::fd::AsFd::as_fd(&source)).unwrap();
    // The pages of overlayfs are those of another file.
    if probe().cached_share().is_some_and(|share| share < 0.5) {
        return testkit::skip::here("a file that was just written does not count as cached");
    }
    let request = Request {
        sync: true,
        source_offset: Some(0),
        sink_offset: Some(0),
        ..uncloned()
    };
    let warm = run(&source, &sink, request.clone()).report;
    assert!(!warm.path.contains(&Direct), "{warm:?}");
    rustix::fs::fsync(&source).unwrap();
    let drop = rustix::fs::Advice::DontNeed;
    rustix::fs::fadvise(&source, 0, None, drop).unwrap();
    if !Need::Cachestat.is_met() {
        // No call reports what is cached.
        let report = run(&source, &sink, request).report;
        assert!(!report.path.contains(&Direct), "{report:?}");
        assert!(
            why(&report).contains("whether the source is cached"),
            "{report:?}"
        );
        assert!(content(&sink) == data);
        return;
    }
    let endpoint = probe();
    match (endpoint.cached_share(), endpoint.direct_alignment()) {
        (Some(share), Some(_)) if share < 0.05 => {}
        (share, alignment) => {
            testkit::skip::here(format!(
                "no uncached file is available here: {share:?}, {alignment:?}"
            ));
            return;
        }
    }
    let cold = run(&source, &sink, request.clone()).report;
    assert_eq!(cold.path, [Direct], "{cold:?}");
    assert!(content(&sink) == data);
    let unsynced = Request {
        sync: false,
        ..request
    };
    let report = run(&source, &sink, unsynced).report;
    assert!(!report.path.contains(&Direct), "{report:?}");
}

/// Newer kernels report it only to the owner of a file or a process that may write to
/// it (`can_do_cachestat`, mm/filemap.c).
#[test]
fn who_may_not_ask_whether_the_source_is_cached_is_told_so() {
    let data = pattern(17 * MIB);
    crate::engine();
    if !common::may_choose_direct() {
        return;
    }
    for (errno, says) in [
        (
            libc::EPERM,
            "this user may not query whether the source is cached (EPERM)",
        ),
        (
            libc::ENOSYS,
            "whether the source is cached is unknown before Linux 6.5",
        ),
        (
            libc::EOPNOTSUPP,
            "whether the source is cached is unknown (EOPNOTSUPP)",
        ),
    ] {
        let (source, sink) = (file_with(&data), tempfile::tempfile().unwrap());
        let report = testkit::refuse::apart(|| {
            testkit::refuse::refuse(&[testkit::refuse::CACHESTAT], errno);
            let request = Request {
                sync: true,
                source_offset: Some(0),
                sink_offset: Some(0),
                ..uncloned()
            };
            run(&source, &sink, request).report
        });
        if why(&report) == "no direct I/O here" {
            return testkit::skip::here("no direct I/O here");
        }
        assert_eq!(why(&report), says);
        assert!(content(&sink) == data);
    }
}

/// Each call that reads or moves a position is refused once. If only one side's
/// position has moved, the bytes do not count, and the transfer does not continue
/// from there.
#[test]
fn a_position_that_cannot_be_moved_once() {
    let _dog = watchdog("a_position_that_cannot_be_moved_once");
    let data = pattern(300_001);
    for request in [direct(), wished()] {
        // The first two read both positions.
        for refused in 2.. {
            let (source, sink) = (file_with(&data), tempfile::tempfile().unwrap());
            let mut report = None;
            let body = || report = Some(run(&source, &sink, request.clone()).report);
            let errno = |before| (before == refused).then_some(libc::EIO);
            let Some(calls) = testkit::midst::refusing(&[libc::SYS_lseek], body, errno) else {
                return testkit::skip::report("EIO", "calls of another thread cannot be held");
            };
            let report = report.unwrap();
            let written = report.written as usize;
            let case = format!("{refused}: {report:?}");
            assert!(content(&sink)[..written] == data[..written], "{case}");
            match report.ended {
                Ended::Eof => assert_eq!(written, data.len(), "{case}"),
                _ => assert_eq!(report.ended, Ended::Error, "{case}"),
            }
            assert_eq!(position(&source), report.read, "{case}");
            if calls <= refused {
                break;
            }
        }
    }
}

/// Another call then waits for the blocks in flight.
#[test]
fn poll_is_refused() {
    let _dog = watchdog("poll_is_refused");
    if !common::alone!() {
        return;
    }
    let data = pattern(12 * MIB + 5);
    for errno in [libc::ENOSYS, libc::EPERM, libc::EACCES] {
        let (source, sink) = (file_with(&data), tempfile::tempfile().unwrap());
        testkit::refuse::apart(|| {
            let looks = [testkit::refuse::PPOLL, testkit::refuse::POLL].concat();
            testkit::refuse::refuse(&looks, errno);
            whole(&source, &sink, &data, direct())
        });
    }
}
