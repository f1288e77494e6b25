//! The end of a transfer that waits for its schedule.

use std::io::Write;
use std::os::fd::AsFd;
use std::time::Duration;

use super::schedule_tests::{paced, run};
use crate::errno::Errno;
use crate::report::Ended;
use crate::request::{DataPath, Schedule, Size};
use crate::transfer::test_files::{file_with, paths_between_files};
use testkit::pattern::noise;

/// A transfer that waits for its schedule notices that its sink's reader has gone.
#[test]
fn a_dead_sink_ends_a_wait_for_the_schedule() {
    let source = file_with(&noise(1 << 20));
    let (end, sink) = std::io::pipe().unwrap();
    let control = paced(Schedule::rate(1000));
    let mut end = Some(end);
    let rests = Box::new(move |_| drop(end.take()));
    let what = (DataPath::ReadWrite, Size::Eof);
    let (report, _, took) = run(&source, &sink, what, &control, rests);
    assert_eq!(report.errno, Some(Errno::EPIPE), "{report:?}");
    assert_eq!(report.read, 0);
    assert!(took <= Duration::from_millis(20), "{took:?}");
}

/// The read that finds the end would need a grant. The reader does not wait for it.
#[test]
fn a_reader_that_has_all_bytes_may_leave() {
    for rate in [100, 10] {
        for is_file in [false, true] {
            let (ended, mut feed) = std::io::pipe().unwrap();
            feed.write_all(b"hello").unwrap();
            drop(feed);
            let file = file_with(b"hello");
            let source = if is_file { file.as_fd() } else { ended.as_fd() };
            let (end, sink) = std::io::pipe().unwrap();
            let mut end = Some(end);
            let rests = Box::new(move |_| {
                let has_all = |end: &std::io::PipeReader| rustix::io::ioctl_fionread(end) == Ok(5);
                drop(end.take_if(|end| has_all(end)));
            });
            let what = (DataPath::ReadWrite, Size::Eof);
            let (report, ..) = run(source, &sink, what, &paced(Schedule::rate(rate)), rests);
            assert_eq!(
                (report.ended, report.written),
                (Ended::Eof, 5),
                "{report:?}"
            );
        }
    }
}

/// A rest after the last byte would only delay the end.
#[test]
fn no_rest_comes_after_the_last_byte() {
    let data = noise(2 * Schedule::BLOCK as usize);
    let rest = Duration::from_secs(3600);
    for path in paths_between_files("rest") {
        let (source, sink) = (file_with(&data), file_with(b""));
        let control = paced(Schedule::blocks(1, rest));
        let what = (path, Size::Eof);
        let (report, _, took) = run(&source, &sink, what, &control, Box::new(|_| {}));
        assert_eq!(report.written, data.len() as u64);
        assert_eq!(
            (&report.path[..], report.ended, took),
            (&[path][..], Ended::Eof, rest)
        );
    }
}
