//! Sinks whose connection begins with the first send (`TCP_FASTOPEN_CONNECT`).

use std::net::TcpListener;

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

/// Up to Linux 6.4 pages that are sent do not begin the connection, and wait for it.
#[test]
fn no_page_is_the_first_to_be_sent_on_a_deferred_connection() {
    let _dog = watchdog("no_page_is_the_first_to_be_sent_on_a_deferred_connection");
    let data = pattern(SENT);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let cases = [
        (From::File, &[Sendfile, Splice, ReadWrite][..]),
        (From::Pipe, &[Splice, ReadWrite]),
    ];
    for (kind, paths) in cases {
        for (nonblocking, begun) in [(false, false), (true, false), (false, true), (true, true)] {
            let sink = match testkit::sockets::deferred(port) {
                Ok(sink) => sink,
                Err(error) => {
                    return testkit::skip::here(format!("no deferred connection: {error}"));
                }
            };
            sink.set_nonblocking(nonblocking).unwrap();
            let (from, feed) = source(kind, &data);
            drop(feed);
            let accepts = listener.try_clone().unwrap();
            let accept = move || accepts.accept().unwrap().0;
            let reader = match begun {
                true => {
                    (&sink).write_all(b"x").unwrap();
                    let peer = accept();
                    std::thread::spawn(move || content_of(peer))
                }
                false => std::thread::spawn(move || content_of(accept())),
            };
            let report = common::run(&from, &sink, any()).report;
            drop(sink);
            let what = format!("{kind:?}, {nonblocking}, {begun}: {report:?}");
            assert_eq!((report.ended, report.errno), (Ended::Eof, None), "{what}");
            let got = reader.join().unwrap();
            assert!(got.ends_with(&data), "{what}");
            if begun {
                assert_eq!(report.path, common::carried_by(paths), "{what}");
                continue;
            }
            assert_eq!(report.path, [ReadWrite], "{what}");
            assert!(got == data, "{what}");
            let declined = report.declined.iter().find(|one| one.path == paths[0]);
            let why = declined.map(|one| one.why.to_string());
            let begins = "the first send has to begin the connection";
            assert_eq!(why.as_deref(), Some(begins), "{what}");
        }
    }
}
