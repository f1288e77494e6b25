//! A ring that the kernel, or a new filter, refuses during a transfer.

use super::{audit, direct};
use crate::common::{self, MIB, content, file_with, only, pattern, run, watchdog};
use cordboard::DataPath::{Direct, ReadWrite};
use cordboard::{Ended, Report, Request};
use testkit::midst::refusing;

/// Runs a copy in which some of the calls that enter the ring are refused. `None` if
/// calls cannot be refused.
fn refused(data: &[u8], errno: i32, which: impl Fn(usize) -> bool) -> Option<Report> {
    let (source, sink) = (file_with(data), tempfile::tempfile().unwrap());
    crate::engine();
    let request = Request {
        direct: cordboard::Direct::Always,
        ..only(&[Direct, ReadWrite])
    };
    let mut report = None;
    let body = || report = Some(run(&source, &sink, request).report);
    let calls = &[libc::SYS_io_uring_enter];
    let counted = refusing(calls, body, |count| which(count).then_some(errno));
    if counted.is_none_or(|count| count == 0) {
        testkit::skip::report("refused_ring", "no seccomp_unotify(2) or no io_uring here");
        return None;
    }
    let report = report?;
    assert_eq!(
        (report.ended, report.errno),
        (Ended::Eof, None),
        "{report:?}"
    );
    assert_eq!(report.written, data.len() as u64, "{report:?}");
    audit(&report, &source, &sink, data);
    Some(report)
}

/// The first call only tries the ring.
#[test]
fn a_call_that_is_refused_for_the_moment_is_made_again() {
    let _dog = watchdog("a_call_that_is_refused_for_the_moment_is_made_again");
    let data = pattern(4 * MIB);
    for errno in [libc::ENOMEM, libc::EAGAIN, libc::EBUSY, libc::EINTR] {
        for first in 0..8 {
            for times in 1..=3 {
                let which = |count| (first..first + times).contains(&count);
                let Some(report) = refused(&data, errno, which) else {
                    return;
                };
                assert_eq!(report.path, [Direct], "{errno}, {first}: {report:?}");
            }
        }
    }
}

#[test]
fn a_call_that_is_refused_hands_over_to_another_path() {
    let _dog = watchdog("a_call_that_is_refused_hands_over_to_another_path");
    if !common::has_blocks_in_flight() {
        return;
    }
    let data = pattern(4 * MIB);
    for errno in [libc::EINVAL, libc::EIO, libc::EPERM, libc::ENOSYS] {
        for first in 1..8 {
            for times in 1..=3 {
                let which = |count| (first..first + times).contains(&count);
                let Some(report) = refused(&data, errno, which) else {
                    return;
                };
                let both = [Direct, ReadWrite];
                assert_eq!(report.path, both, "{errno}, {first}: {report:?}");
            }
        }
    }
}

/// The transfer receives no completions of the blocks in flight, and none of these
/// blocks is written to the sink after the end.
#[test]
fn a_ring_that_is_refused_for_good_is_given_up() {
    let _dog = watchdog("a_ring_that_is_refused_for_good_is_given_up");
    let data = pattern(4 * MIB);
    for errno in [libc::ENOMEM, libc::EPERM] {
        for first in [1, 2, 4] {
            let Some(report) = refused(&data, errno, |count| count >= first) else {
                return;
            };
            let both = [Direct, ReadWrite];
            assert_eq!(report.path, both, "{errno}, {first}: {report:?}");
        }
    }
}

/// The report names the path of bytes that are counted while the transfer waits for
/// the kernel, and of blocks in flight at a cancel.
#[test]
fn what_ends_after_a_failure_is_counted_by_its_path() {
    use cordboard::{Control, Observer, Progress, Transfer};
    use std::os::fd::AsFd;
    struct Cancel(Control);
    impl Observer for Cancel {
        fn progress(&mut self, progress: &Progress) {
            if progress.pending_reads + progress.pending_writes > 0 {
                self.0.cancel();
            }
        }
    }
    let _dog = watchdog("what_ends_after_a_failure_is_counted_by_its_path");
    let data = pattern(8 * MIB);
    for _ in 0..20 {
        let (source, sink) = (file_with(&data), tempfile::tempfile().unwrap());
        let control = Control::new().unwrap();
        let mut cancel = Cancel(control.clone());
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), direct()).unwrap();
        let report = transfer.control(&control).observe(&mut cancel).run().report;
        assert_eq!(report.written == 0, report.path.is_empty(), "{report:?}");
        assert!(content(&sink)[..] == data[..report.written as usize]);
    }
}
