//! A transfer writes all that it claims of a sink whose position is shared.

use std::io::Write;
use std::os::unix::fs::FileExt;

use cordboard::DataPath::{CopyFileRange, Direct, Sendfile, Splice};
use cordboard::{Ended, Request};
use testkit::needs::{Need, missing};
use testkit::{midst, skip};

use super::{MANY, at_once, bytes_of, counts, moved};
use crate::common::{self, file_with, forcible, only, pattern, watchdog};

/// The transfer claims no byte of the sink to detect that a FIFO is empty: the byte
/// would be a hole before the bytes that others write meanwhile.
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

/// A source grows, and its tail is then longer than the claim. The bytes by which it grows
/// follow behind those of others.
#[test]
fn a_tail_that_grows_is_not_written_over_what_others_write() {
    let name = "a_tail_that_grows_is_not_written_over_what_others_write";
    let _watchdog = watchdog(name);
    if !common::has_direct_files() {
        return;
    }
    let (first, all) = ((1 << 20) + 100, (1 << 20) + 5000);
    let data = pattern(all);
    let (source, sink) = (file_with(&data[..first]), tempfile::tempfile().unwrap());
    // The source's position is not used then, and the sink's is shared.
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
        (Ended::Eof, all as u64),
        "{report:?}"
    );
    let expected = [&data[..first], &[9; 4096], &data[first..]].concat();
    assert!(bytes_of(&sink) == expected, "{report:?}");
}

/// The same with a hole at its end.
#[test]
fn a_hole_that_grows_is_not_made_over_what_others_write() {
    const PART: u64 = 1 << 20;
    let name = "a_hole_that_grows_is_not_made_over_what_others_write";
    let _watchdog = watchdog(name);
    if !common::has_direct_files() {
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

/// Others read the pipe too, and take the bytes for which the transfer has claimed a
/// range. The next bytes are written there, and nothing more is claimed for bytes
/// that are not read yet.
#[test]
fn what_others_take_of_a_pipe_leaves_no_hole() {
    let name = "what_others_take_of_a_pipe_leaves_no_hole";
    let _watchdog = watchdog(name);
    if forcible(&[Splice]).is_empty() || !common::has_local_files() {
        return;
    }
    let (source, feed) = rustix::pipe::pipe().unwrap();
    rustix::io::write(&feed, &[1; 5000]).unwrap();
    let (sink, mut feed) = (tempfile::tempfile().unwrap(), Some(feed));
    let take = |bytes| assert_eq!(rustix::io::read(&source, &mut [0; 8192]), Ok(bytes));
    let (mut report, mut moment) = (None, 0);
    let body = || report = Some(common::run(&source, &sink, only(&[Splice])).report);
    let others = || {
        let give = |bytes: &[u8]| {
            let feed = feed.as_ref().unwrap();
            assert_eq!(rustix::io::write(feed, bytes), Ok(bytes.len()));
        };
        let place = common::position(&sink);
        match moment {
            0 => {
                assert_eq!(place, 5000, "claimed");
                take(5000);
                (&sink).write_all(&[9; 100]).unwrap();
            }
            // The transfer waits.
            1 => give(&[2; 5000]),
            2 if rustix::io::ioctl_fionread(&source) == Ok(0) => give(&[3; 3000]),
            3 => {
                assert_eq!(place, 5100, "a second claim");
                take(3000);
                (&sink).write_all(&[8; 10]).unwrap();
            }
            4 => {
                give(&[4; 1000]);
                feed = None;
            }
            _ => return,
        }
        moment += 1;
    };
    let calls = [&[libc::SYS_splice], testkit::refuse::PPOLL].concat();
    if midst::at_each(&calls, body, others).is_none() {
        return skip::here("no seccomp_unotify(2) here");
    }
    let report = report.unwrap();
    assert_eq!(
        (report.ended, report.written),
        (Ended::Eof, 6000),
        "{report:?}"
    );
    let expected = [&[2; 5000][..], &[9; 100], &[8; 10], &[4; 1000]].concat();
    let found = bytes_of(&sink);
    assert!(found == expected, "{:?}", &counts(&found)[..10]);
}

/// Before it reads a socket, the transfer tries whether the sink accepts pages. The
/// trial does not undo moves of the position by others.
#[test]
fn a_look_at_the_sink_moves_no_position() {
    let _watchdog = watchdog("a_look_at_the_sink_moves_no_position");
    if forcible(&[Splice]).is_empty() {
        return;
    }
    const ROUNDS: usize = 300;
    let sink = &tempfile::tempfile().unwrap();
    at_once(|n| {
        for _ in 0..ROUNDS {
            let (source, mut feed) = std::os::unix::net::UnixStream::pair().unwrap();
            feed.write_all(&[n as u8 + 1; 10]).unwrap();
            drop(feed);
            assert_eq!(moved(&source, sink, only(&[Splice])).0, 10);
        }
    });
    let found = counts(&bytes_of(sink));
    assert_eq!(
        found[..=MANY],
        [[0].as_slice(), &[10 * ROUNDS; MANY]].concat()
    );
}

/// The source ends at the read position, and grows before the call that finds the
/// end.
#[test]
fn an_end_that_goes_on_is_not_written_over_what_others_write() {
    let name = "an_end_that_goes_on_is_not_written_over_what_others_write";
    let _watchdog = watchdog(name);
    for path in forcible(&[CopyFileRange, Sendfile]) {
        let (source, sink) = (file_with(&[1; 1000]), tempfile::tempfile().unwrap());
        let mut report = None;
        let body = || report = Some(common::run(&source, &sink, only(&[path])).report);
        let mut grown = false;
        let others = || {
            if !grown && common::position(&sink) == 1000 && bytes_of(&sink).len() == 1000 {
                (&sink).write_all(&[9; 500]).unwrap();
                source.write_all_at(&[2; 300], 1000).unwrap();
                grown = true;
            }
        };
        let calls = [
            libc::SYS_copy_file_range,
            libc::SYS_sendfile,
            libc::SYS_pread64,
        ];
        if midst::at_each(&calls, body, others).is_none() {
            return skip::here("no seccomp_unotify(2) here");
        }
        let report = report.unwrap();
        assert!(grown, "{report:?}");
        assert_eq!(
            (report.ended, report.written),
            (Ended::Eof, 1300),
            "{report:?}"
        );
        let found = counts(&bytes_of(&sink));
        assert_eq!(found[..10], [0, 1000, 300, 0, 0, 0, 0, 0, 0, 500], "{path}");
    }
}
