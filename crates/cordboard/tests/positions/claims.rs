//! What is claimed of a sink is what is written there, while others use its position.

use std::io::Write;
use std::os::unix::fs::FileExt;

use cordboard::PathName::{Direct, Splice};
use cordboard::{Ended, Request};
use testkit::needs::{Need, missing};
use testkit::{midst, skip};

use super::bytes_of;
use crate::common::{self, file_with, forcible, only, pattern, watchdog};

/// Not a byte is claimed to find out that a FIFO is empty: it would be a hole before
/// what others write meanwhile.
#[test]
fn nothing_is_claimed_for_an_empty_fifo() {
    let name = "nothing_is_claimed_for_an_empty_fifo";
    let _watchdog = watchdog(name);
    if forcible(&[Splice]).is_empty() || missing(name, &[Need::Vmsplice]) {
        return;
    }
    let (source, feed) = testkit::obstacle::fifo().unwrap();
    let (sink, mut feed) = (tempfile::tempfile().unwrap(), Some(feed));
    let mut report = None;
    let body = || report = Some(common::run(&source, &sink, only(&[Splice])).report);
    let others = || {
        if let Some(feed) = feed.take() {
            (&sink).write_all(&[9; 100]).unwrap();
            drop(feed);
        }
    };
    let calls = [libc::SYS_splice, libc::SYS_vmsplice];
    if midst::at_each(&calls, body, others).is_none() {
        return skip::here("no seccomp_unotify(2) here");
    }
    let report = report.unwrap();
    assert_eq!(
        (report.ended, report.written),
        (Ended::Eof, 0),
        "{report:?}"
    );
    assert!(bytes_of(&sink) == [9; 100], "{:?}", bytes_of(&sink));
}

/// A source that grows has a tail that is longer than what was claimed for it. What it
/// had is moved.
#[test]
fn a_tail_that_grows_is_not_written_over_what_others_write() {
    let name = "a_tail_that_grows_is_not_written_over_what_others_write";
    let _watchdog = watchdog(name);
    if forcible(&[Direct]).is_empty() {
        return;
    }
    let (first, all) = ((1 << 20) + 100, (1 << 20) + 5000);
    let data = pattern(all);
    let (source, sink) = (file_with(&data[..first]), tempfile::tempfile().unwrap());
    // The source's position is nobody's then, and the sink's is everybody's.
    let request = Request {
        source_offset: Some(0),
        ..only(&[Direct])
    };
    let mut report = None;
    let body = || report = Some(common::run(&source, &sink, request).report);
    let mut grown = false;
    let others = || {
        if !grown && common::position(&sink) == first as u64 {
            (&sink).write_all(&[9; 4096]).unwrap();
            source.write_all_at(&data[first..], first as u64).unwrap();
            grown = true;
        }
    };
    let calls = [libc::SYS_pread64, libc::SYS_pwritev2];
    if midst::at_each(&calls, body, others).is_none() {
        return skip::here("no seccomp_unotify(2) here");
    }
    let report = report.unwrap();
    assert!(grown && report.path == [Direct], "{report:?}");
    assert_eq!(
        (report.ended, report.written),
        (Ended::Eof, first as u64),
        "{report:?}"
    );
    let expected = [&data[..first], &[9; 4096]].concat();
    assert!(bytes_of(&sink) == expected, "{report:?}");
}

/// So has one with a hole at its end.
#[test]
fn a_hole_that_grows_is_not_made_over_what_others_write() {
    const PART: u64 = 1 << 20;
    let name = "a_hole_that_grows_is_not_made_over_what_others_write";
    let _watchdog = watchdog(name);
    if forcible(&[Direct]).is_empty() {
        return;
    }
    let data = pattern(PART as usize);
    let (source, sink) = (file_with(&data), tempfile::tempfile().unwrap());
    source.set_len(2 * PART).unwrap();
    let request = Request {
        source_offset: Some(0),
        ..only(&[Direct])
    };
    let mut report = None;
    let body = || report = Some(common::run(&source, &sink, request).report);
    let mut grown = false;
    let others = || {
        if !grown && common::position(&sink) == 2 * PART {
            (&sink).write_all(&[9; 4096]).unwrap();
            source.set_len(3 * PART).unwrap();
            grown = true;
        }
    };
    let calls = [libc::SYS_lseek, libc::SYS_fallocate];
    if midst::at_each(&calls, body, others).is_none() {
        return skip::here("no seccomp_unotify(2) here");
    }
    let report = report.unwrap();
    assert!(grown && report.path == [Direct], "{report:?}");
    assert_eq!(
        (report.ended, report.written),
        (Ended::Eof, 3 * PART),
        "{report:?}"
    );
    let zeros = vec![0; PART as usize];
    let expected = [&data, &zeros, &[9; 4096][..], &zeros].concat();
    assert!(bytes_of(&sink) == expected, "{report:?}");
}
