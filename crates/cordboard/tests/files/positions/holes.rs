//! Holes of a source and of a sink whose positions others move.

use std::io::{Read, Seek, Write};
use std::os::unix::fs::FileExt;

use super::{ROUNDS, at_once, bytes_of, counts, moved, taken};
use crate::common::{self, any, only, pattern, watchdog};
use cordboard::DataPath::ReadWrite;
use cordboard::{Ended, Request};

/// Looking for holes must not move the position of another reader.
#[test]
fn a_file_with_holes_that_others_read() {
    let _watchdog = watchdog("a_file_with_holes_that_others_read");
    let (data, far) = (pattern(8192), 1 << 16);
    for _ in 0..ROUNDS {
        let mut source = tempfile::tempfile().unwrap();
        for n in 0..200 {
            source.write_all_at(&data, n * far).unwrap();
        }
        source.rewind().unwrap();
        let whole = bytes_of(&source);
        let parts = at_once(|n| {
            let source = source.try_clone().unwrap();
            match n {
                0 => {
                    let mut all = Vec::new();
                    (&source).read_to_end(&mut all).unwrap();
                    all
                }
                _ => taken(&source, false, any()),
            }
        });
        let all = parts.concat();
        assert_eq!((all.len(), counts(&all)), (whole.len(), counts(&whole)));
    }
}

/// Another process reads from the same position before two `lseek(2)` calls in a row of
/// a transfer that skips holes. Each byte goes to exactly one of them.
#[test]
fn a_hole_is_skipped_while_others_read() {
    let _watchdog = watchdog("a_hole_is_skipped_while_others_read");
    let (far, data) = (1 << 16, pattern(8192));
    let mut source = tempfile::tempfile().unwrap();
    // At its end, xfs would allocate more blocks than are written.
    source.set_len(5 * far + data.len() as u64).unwrap();
    for n in 0..6 {
        source.write_all_at(&data, n * far).unwrap();
    }
    let whole = bytes_of(&source);
    let mut first = 0;
    loop {
        source.rewind().unwrap();
        let sink = tempfile::tempfile().unwrap();
        let mut theirs = vec![false; whole.len()];
        let mut calls = 0;
        let body = || drop(common::run(&source, &sink, only(&[ReadWrite])));
        let others = || {
            if (first..first + 2).contains(&calls) {
                let n = (&source).read(&mut [0; 4096]).unwrap();
                let end = common::position(&source) as usize;
                theirs[end - n..end].fill(true);
            }
            calls += 1;
        };
        if testkit::midst::at_each(&[testkit::refuse::SEEK], body, others).is_none() {
            return testkit::skip::report("holes", "calls of another thread cannot be held");
        }
        let ours = whole.iter().zip(&theirs).filter(|(_, theirs)| !**theirs);
        let ours: Vec<u8> = ours.map(|(byte, _)| *byte).collect();
        // A range that was claimed first may be written after bytes behind it.
        let found = bytes_of(&sink);
        assert_eq!(
            (found.len(), counts(&found)),
            (ours.len(), counts(&ours)),
            "{first}"
        );
        if first >= calls {
            break;
        }
        first += 1;
    }
    assert!(first > 10, "{first}");
}

/// A hole does not cover bytes that others write meanwhile.
#[test]
fn a_hole_is_made_in_a_range_of_its_own() {
    let (source, sink) = (
        common::file_with(&[0; 65_536]),
        tempfile::tempfile().unwrap(),
    );
    let (mut report, mut theirs) = (None, Some([9; 4096]));
    let request = Request {
        sparse: cordboard::Sparse::Always,
        ..any()
    };
    let body = || report = Some(common::run(&source, &sink, request).report);
    let others = || {
        if let Some(theirs) = theirs.take() {
            (&sink).write_all(&theirs).unwrap();
        }
    };
    let calls = [libc::SYS_pwritev2, libc::SYS_fallocate];
    if testkit::midst::at_each(&calls, body, others).is_none() {
        return testkit::skip::report("claims", "calls of another thread cannot be held");
    }
    let report = report.unwrap();
    assert_eq!(
        (report.ended, report.written),
        (Ended::Eof, 65_536),
        "{report:?}"
    );
    assert_eq!(theirs, None, "no hole was made: {report:?}");
    assert_eq!(counts(&bytes_of(&sink))[9], 4096, "{report:?}");
    assert_eq!(common::position(&sink), 65_536 + 4096, "{report:?}");
}

/// The sink is extended over its last hole only at the end, when another process has
/// moved its position back.
#[test]
fn a_hole_that_others_seek_back_from_is_there() {
    let _watchdog = watchdog("a_hole_that_others_seek_back_from_is_there");
    const PART: u64 = 1 << 20;
    let (source, sink) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    for part in [0, 2] {
        source.write_all_at(&[1; 4096], part * PART).unwrap();
    }
    source.set_len(4 * PART).unwrap();
    let mut sought = false;
    let held = testkit::midst::at_each(
        &[libc::SYS_lseek, libc::SYS_fstat, libc::SYS_newfstatat],
        || assert_eq!(moved(&source, &sink, only(&[ReadWrite])).0, 4 * PART),
        || {
            let has_all = !sought && (&sink).stream_position().unwrap() == 4 * PART;
            if has_all {
                (&sink).rewind().unwrap();
                sought = true;
            }
        },
    );
    if held.is_none() {
        return testkit::skip::here("no seccomp_unotify(2) here");
    }
    assert!(sought);
    let lengths = [&source, &sink].map(|file| file.metadata().unwrap().len());
    assert_eq!(lengths, [4 * PART; 2]);
    assert!(bytes_of(&sink) == bytes_of(&source));
}

/// Another process has claimed the range before the last hole, and writes it while that hole is made.
#[test]
fn a_last_hole_is_not_made_over_what_others_write_before_it() {
    const PART: usize = 1 << 20;
    let _watchdog = watchdog("a_last_hole_is_not_made_over_what_others_write_before_it");
    if !common::has_plain_blocks() {
        return;
    }
    let (data, theirs) = (pattern(PART), vec![9; PART]);
    let (source, sink) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    source.write_all_at(&data, PART as u64).unwrap();
    source.set_len(3 * PART as u64).unwrap();
    let mut report = None;
    let body = || report = Some(common::run(&source, &sink, only(&[ReadWrite])).report);
    let (first, second) = theirs.split_at(PART / 2);
    let (mut has_claimed, mut has_written) = (false, false);
    let others = || {
        let end = 2 * PART as u64;
        if !has_claimed && common::position(&sink) == end {
            (&sink)
                .seek(std::io::SeekFrom::Current(PART as i64))
                .unwrap();
            sink.write_all_at(first, end).unwrap();
            has_claimed = true;
        } else if has_claimed && !has_written && sink.metadata().unwrap().len() > end + PART as u64
        {
            sink.write_all_at(second, end + first.len() as u64).unwrap();
            has_written = true;
        }
    };
    let calls = [libc::SYS_lseek, libc::SYS_fallocate];
    if testkit::midst::at_each(&calls, body, others).is_none() {
        return testkit::skip::here("no seccomp_unotify(2) here");
    }
    let report = report.unwrap();
    assert_eq!(report.written, 3 * PART as u64, "{report:?}");
    assert!(has_claimed);
    if !has_written {
        sink.write_all_at(second, 2 * PART as u64 + first.len() as u64)
            .unwrap();
    }
    let zeros = vec![0; PART];
    let expected = [&zeros[..], &data, &theirs, &zeros].concat();
    assert!(bytes_of(&sink) == expected, "{report:?}");
}
