//! An errno that comes once is no refusal: it is the error of a connection, as of one that a
//! message of ICMP has ended. The calls that follow return 0 or `EPIPE`.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use super::*;
use crate::common::datagrams::{Sort, pair, put};
use cordboard::DataPath::{Datagram, ReadWrite, Sendfile, Splice};
use testkit::midst::refusing;
use testkit::refuse::SENDFILE;

/// Runs a transfer under these filters. Of these calls, the one with this index fails with
/// this errno.
fn denied_once(
    (calls, index, errno): (&[libc::c_long], usize, Errno),
    filters: impl FnOnce() + Send,
    ends: [&OwnedFd; 2],
    paths: &[DataPath],
) -> Report {
    let mut report = None;
    let body = || {
        filters();
        report = Some(run(ends[0], ends[1], only(paths)).report);
    };
    let denied = |count| (count == index).then_some(errno.raw());
    let made = refusing(calls, body, denied).unwrap();
    let report = report.unwrap();
    assert!(made > index, "{calls:?} {paths:?}: {report:?}");
    report
}

/// Returns whether single calls on sockets can be failed.
fn can_be_held(name: &str) -> bool {
    let missing = match cfg!(target_arch = "x86") {
        true => Some("all calls on sockets are one here, socketcall(2)"),
        false => (refusing(&[], || {}, |_| None).is_none()).then_some("no seccomp_unotify(2) here"),
    };
    missing
        .inspect(|why| testkit::skip::report(name, why))
        .is_none()
}

/// A socket whose peer has closed it: reads return 0, and writes `EPIPE`.
fn dead() -> OwnedFd {
    connection().0
}

#[test]
fn a_source_that_has_failed_is_no_end() {
    let name = "a_source_that_has_failed_is_no_end";
    let _dog = watchdog(name);
    if !can_be_held(name) {
        return;
    }
    let no_recvfrom = || refuse(&[libc::SYS_recvfrom], Errno::EPERM);
    let file = || OwnedFd::from(tempfile::tempfile().unwrap());
    let (_reader, pipe) = std::io::pipe().unwrap();
    let pipe = OwnedFd::from(pipe);
    let told_as = |errno, report: Report, what: &str| {
        let failure = (report.failed, report.errno, report.read);
        assert_eq!(failure, (Some(Side::Source), Some(errno), 0), "{what}");
    };
    let told = |report, what: &str| told_as(Errno::EACCES, report, what);
    let call = (&[libc::SYS_recvfrom][..], 0, Errno::EACCES);
    let report = denied_once(call, || {}, [&dead(), &file()], &[ReadWrite]);
    told(report, "recvfrom(2)");
    let call = (&[libc::SYS_recvmsg][..], 0, Errno::EACCES);
    let report = denied_once(call, no_recvfrom, [&dead(), &file()], &[ReadWrite]);
    told(report, "recvmsg(2)");
    // A socket that refuses `MSG_TRUNC` returns this, too.
    let (packets, peer) = pair(Sort::Seqpacket);
    drop(peer);
    let call = (&[libc::SYS_recvfrom][..], 0, Errno::EOPNOTSUPP);
    let report = denied_once(call, || {}, [&packets, &file()], &[Datagram, ReadWrite]);
    told_as(Errno::EOPNOTSUPP, report, "recvfrom(2) with a flag");
    if common::forcible(&[Splice]).is_empty() {
        return;
    }
    let call = (&[libc::SYS_splice][..], 0, Errno::EACCES);
    let report = denied_once(call, || {}, [&dead(), &pipe], &[Splice, ReadWrite]);
    told(report, "splice(2) to a pipe");
    // The first call asks whether the sink takes pages.
    let call = (&[libc::SYS_splice][..], 1, Errno::EACCES);
    let report = denied_once(call, || {}, [&dead(), &file()], &[Splice, ReadWrite]);
    told(report, "splice(2) to a private pipe");
}

/// The calls by which a path writes to a stream socket, and the path that follows it.
const SENDS: [(libc::c_long, &[DataPath]); 4] = [
    (libc::SYS_sendto, &[ReadWrite]),
    (libc::SYS_sendmsg, &[Datagram, ReadWrite]),
    (libc::SYS_splice, &[Splice, ReadWrite]),
    // Read/write would come first.
    (SENDFILE, &[Sendfile]),
];

/// Returns the bytes for a path, and a source that gives them and then ends.
fn source(path: DataPath) -> (Vec<u8>, OwnedFd) {
    let data = pattern(1000);
    let source = match path {
        Sendfile => common::file_with(&data).into(),
        Datagram => {
            let (source, feed) = pair(Sort::Seqpacket);
            put(&feed, &data);
            source
        }
        _ => {
            let (source, mut feed) = std::io::pipe().unwrap();
            feed.write_all(&data).unwrap();
            source.into()
        }
    };
    (data, source)
}

/// Returns a connection. One call splices to it from a pipe, because it does not block.
fn connection() -> (OwnedFd, UnixStream) {
    let (socket, peer) = UnixStream::pair().unwrap();
    socket.set_nonblocking(true).unwrap();
    (socket.into(), peer)
}

#[test]
fn a_sink_that_has_failed_reports_its_errno() {
    let name = "a_sink_that_has_failed_reports_its_errno";
    let _dog = watchdog(name);
    if !can_be_held(name) {
        return;
    }
    for (call, paths) in SENDS {
        if common::forcible(&paths[..1]).is_empty() {
            continue;
        }
        let ends = [&source(paths[0]).1, &dead()];
        let report = denied_once((&[call], 0, Errno::EACCES), || {}, ends, paths);
        let failure = (report.failed, report.errno, report.written);
        let expected = (Some(Side::Sink), Some(Errno::EACCES), 0);
        assert_eq!(failure, expected, "{paths:?}: {report:?}");
    }
}

/// The connection continues after the error (`IPV6_RECVERR`).
#[test]
fn a_sink_that_goes_on_gets_each_byte_once() {
    let name = "a_sink_that_goes_on_gets_each_byte_once";
    let _dog = watchdog(name);
    if !can_be_held(name) {
        return;
    }
    for (call, paths) in SENDS {
        let path = paths[0];
        if common::forcible(&[path]).is_empty() {
            continue;
        }
        let ((data, source), (sink, mut reader)) = (source(path), connection());
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            reader.read_to_end(&mut got).map(|_| got)
        });
        let ends = [&source, &sink];
        let report = denied_once((&[call], 0, Errno::EACCES), || {}, ends, paths);
        drop(sink);
        let end = (report.ended, report.path.as_slice());
        assert_eq!(end, (Ended::Eof, &[path][..]), "{report:?}");
        let got = reader.join().unwrap().unwrap();
        assert!(got == data, "{path}: {report:?}");
    }
}
