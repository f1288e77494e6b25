//! Sinks whose connection begins with the first send (`TCP_FASTOPEN_CONNECT`).

use super::*;
use common::From;
use testkit::needs::{Need, missing};

/// `EINPROGRESS` of a send: the connection is begun, and nothing is sent.
#[test]
fn a_send_that_only_begins_the_connection_is_repeated() {
    let name = "a_send_that_only_begins_the_connection_is_repeated";
    let _dog = watchdog(name);
    let data = pattern(SENT);
    let cases = [
        (From::File, ReadWrite, libc::SYS_sendto, None),
        (From::Pipe, Splice, libc::SYS_splice, Some(Need::Splice)),
        (
            From::File,
            Sendfile,
            testkit::refuse::SENDFILE,
            Some(Need::Sendfile),
        ),
    ];
    for (kind, path, call, need) in cases {
        if need.is_some_and(|need| missing(name, &[need])) {
            continue;
        }
        if cfg!(target_arch = "x86") && call == libc::SYS_sendto {
            testkit::skip::report(name, "all calls on sockets are one here, socketcall(2)");
            continue;
        }
        let (from, feed) = source(kind, &data);
        drop(feed);
        let (sink, peer) = common::tcp_pair();
        sink.set_nonblocking(true).unwrap();
        let reader = std::thread::spawn(|| content_of(peer));
        let mut report = None;
        let body = || report = Some(common::run(&from, &sink, only(&[path])).report);
        let begins = |count| (count == 0).then_some(libc::EINPROGRESS);
        if testkit::midst::refusing(&[call], body, begins).is_none() {
            return testkit::skip::report(name, "no seccomp_unotify(2) here");
        }
        let report = report.unwrap();
        drop(sink);
        let what = format!("{path}: {report:?}");
        assert_eq!((report.ended, report.errno), (Ended::Eof, None), "{what}");
        assert!(reader.join().unwrap() == data, "{what}");
    }
}
