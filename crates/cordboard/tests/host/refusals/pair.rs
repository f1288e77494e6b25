//! A splice to or from a private pipe or socket pair fails. Its errno is not
//! reported as the sink's, and no byte is lost.

use std::io::Read;

use cordboard::DataPath::{ReadWrite, Splice};
use cordboard::{Ended, Errno, Report, Side};
use testkit::midst::refusing;
use testkit::needs::Need;

use crate::common::{self, any, handed_back, only, pattern, piped, run, watchdog};

const ERRNOS: [Errno; 6] = [
    Errno::ENOMEM,
    Errno::ENOBUFS,
    Errno::ENOENT,
    Errno::EIO,
    Errno::EPERM,
    Errno::ENODATA,
];

/// From pipe to pipe: every splice from the first, second or third on fails, or only
/// that one.
#[test]
fn a_socket_pair_that_fails_is_nobodys_fault() {
    let name = "a_socket_pair_that_fails_is_nobodys_fault";
    let _dog = watchdog(name);
    if testkit::needs::missing(name, &[Need::Splice]) {
        return;
    }
    let data = pattern(1 << 20);
    for errno in ERRNOS {
        for allowed in 0..5 {
            for once in [false, true] {
                let fails = |count| match once {
                    true => count == allowed,
                    false => count >= allowed,
                };
                let refuse = |count| fails(count).then(|| errno.raw());
                let Some((_, report, got)) = piped(&data, &[libc::SYS_splice], refuse) else {
                    return testkit::skip::report(name, "no seccomp_unotify(2) here");
                };
                let case = format!("{errno:?} {allowed} {once}: {report:?}");
                assert_eq!((report.ended, report.errno), (Ended::Eof, None), "{case}");
                assert_eq!(report.written, data.len() as u64, "{case}");
                assert!(got == data, "{case}");
                if allowed == 0 && !once {
                    assert_eq!(report.path, [ReadWrite], "{case}");
                }
            }
        }
    }
}

/// Moves a file into a pipe through a private pipe. A splice from the private pipe
/// fails. `None` if calls cannot be held.
fn from_a_file(data: &[u8], calls: &[libc::c_long], errno: Errno) -> Option<(Report, Vec<u8>)> {
    let source = common::file_with(data);
    let (mut out, sink) = std::io::pipe().unwrap();
    let mut outcome = None;
    let got = std::thread::scope(|scope| {
        let got = scope.spawn(move || {
            let mut all = Vec::new();
            out.read_to_end(&mut all).unwrap();
            all
        });
        let body = || {
            outcome = Some(run(&source, &sink, only(&[Splice, ReadWrite])));
            drop(sink);
        };
        // The first is from the file.
        let refuse = |count| (count > 0).then(|| errno.raw());
        let done = refusing(calls, body, refuse);
        done.map(|_| got.join().unwrap())
    })?;
    let outcome = outcome?;
    assert_eq!(handed_back(outcome.stranded).len(), 0, "a file is rewound");
    Some((outcome.report, got))
}

#[test]
fn a_private_pipe_that_fails_is_not_the_sinks_fault() {
    let name = "a_private_pipe_that_fails_is_not_the_sinks_fault";
    let _dog = watchdog(name);
    if testkit::needs::missing(name, &[Need::Splice]) {
        return;
    }
    let data = pattern(1 << 20);
    for errno in [Errno::EIO, Errno::ENOMEM, Errno::ENOBUFS] {
        let calls = [libc::SYS_splice];
        let Some((report, got)) = from_a_file(&data, &calls, errno) else {
            return testkit::skip::report(name, "no seccomp_unotify(2) here");
        };
        assert_eq!(
            (report.ended, report.errno),
            (Ended::Eof, None),
            "{report:?}"
        );
        assert!(got == data, "{report:?}");
    }
    // A page that is no longer valid, which a read reports too.
    let calls = [libc::SYS_splice, libc::SYS_read];
    let (report, got) = from_a_file(&data, &calls, Errno::EIO).unwrap();
    let failed = (report.ended, report.failed, report.errno);
    let expected = (Ended::Error, Some(Side::Source), Some(Errno::EIO));
    assert_eq!(failed, expected, "{report:?}");
    assert_eq!(report.read, report.written, "{report:?}");
    assert!(got.is_empty());
}

/// The same with the socket pair.
#[test]
fn what_a_socket_pair_does_not_give_is_the_sources_failure() {
    let name = "what_a_socket_pair_does_not_give_is_the_sources_failure";
    let _dog = watchdog(name);
    if testkit::needs::missing(name, &[Need::Splice]) {
        return;
    }
    let data = pattern(10_000);
    let (source, feed) = rustix::pipe::pipe().unwrap();
    rustix::io::write(&feed, &data).unwrap();
    drop(feed);
    let (_out, sink) = std::io::pipe().unwrap();
    let mut outcome = None;
    let body = || outcome = Some(run(&source, &sink, any()));
    let refuse = |count| (count > 0).then_some(libc::EIO);
    let calls = [libc::SYS_splice, libc::SYS_read];
    if refusing(&calls, body, refuse).is_none() {
        return testkit::skip::report(name, "no seccomp_unotify(2) here");
    }
    let outcome = outcome.unwrap();
    let report = outcome.report;
    let failed = (report.ended, report.failed, report.errno);
    let expected = (Ended::Error, Some(Side::Source), Some(Errno::EIO));
    assert_eq!(failed, expected, "{report:?}");
    assert_eq!((report.written, report.stranded), (0, 10_000), "{report:?}");
    assert!(handed_back(outcome.stranded) == data);
}

/// A splice from a pipe returns 0 at a page that is no longer valid, and a filter
/// refuses `FIONREAD`: the 0 is not the pipe's end.
#[test]
fn a_page_that_is_gone_is_no_end_of_a_pipe_that_nobody_counts() {
    use std::os::fd::AsRawFd;
    use testkit::refuse::{refuse, refuse_where};
    let name = "a_page_that_is_gone_is_no_end_of_a_pipe_that_nobody_counts";
    let _dog = watchdog(name);
    if testkit::needs::missing(name, &[Need::Splice]) {
        return;
    }
    let data = pattern(10_000);
    for errno in [libc::EPERM, libc::ENOSYS] {
        for to_file in [true, false] {
            let (source, feed) = rustix::pipe::pipe().unwrap();
            rustix::io::write(&feed, &data).unwrap();
            drop(feed);
            let file = tempfile::tempfile().unwrap();
            let (out, near) = std::os::unix::net::UnixStream::pair().unwrap();
            let sink: std::os::fd::OwnedFd = match to_file {
                true => file.try_clone().unwrap().into(),
                false => near.into(),
            };
            let report = testkit::refuse::apart(|| {
                refuse(&[libc::SYS_ioctl], errno);
                refuse_where(libc::SYS_splice, 2, sink.as_raw_fd() as u32, 0);
                // The position is not shared, so nothing is claimed.
                let request = cordboard::Request {
                    sink_unshared: true,
                    ..any()
                };
                run(&source, &sink, request).report
            });
            drop(sink);
            let case = format!("{errno} {to_file}: {report:?}");
            assert_eq!((report.ended, report.errno), (Ended::Eof, None), "{case}");
            // To a socket the bytes go through a private pipe, and are copied from
            // there.
            let path = if to_file { ReadWrite } else { Splice };
            assert_eq!(report.path, [path], "{case}");
            let got = match to_file {
                true => common::content(&file),
                false => common::content_of(out),
            };
            assert!(got == data, "{case}");
        }
    }
}

/// The length of the range to claim in the sink is unknown: the bytes are copied,
/// since the position of the sink may be shared.
#[test]
fn nothing_is_spliced_to_a_shared_position_where_nobody_counts() {
    use testkit::refuse::refuse;
    let name = "nothing_is_spliced_to_a_shared_position_where_nobody_counts";
    let _dog = watchdog(name);
    if testkit::needs::missing(name, &[Need::Splice]) {
        return;
    }
    let data = pattern(10_000);
    for errno in [libc::EPERM, libc::ENOSYS] {
        for (sink_unshared, path) in [(false, ReadWrite), (true, Splice)] {
            let (source, feed) = rustix::pipe::pipe().unwrap();
            rustix::io::write(&feed, &data).unwrap();
            drop(feed);
            let file = tempfile::tempfile().unwrap();
            let report = testkit::refuse::apart(|| {
                refuse(&[libc::SYS_ioctl], errno);
                let request = cordboard::Request {
                    sink_unshared,
                    ..any()
                };
                run(&source, &file, request).report
            });
            let case = format!("{errno} {sink_unshared}: {report:?}");
            assert_eq!((report.ended, report.errno), (Ended::Eof, None), "{case}");
            assert_eq!(report.path, [path], "{case}");
            assert!(common::content(&file) == data, "{case}");
        }
    }
}
