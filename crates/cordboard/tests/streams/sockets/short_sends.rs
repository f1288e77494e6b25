//! Stream sockets that refuse a send that is longer than a limit.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use cordboard::DataPath::{self, Datagram, ReadWrite, Sendfile, Splice};
use cordboard::{Ended, Request, Tune};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use testkit::needs::{Need, missing};

use crate::common::{self, From, Source, any, content_of, file_with, only, pattern, run, watchdog};

/// A call that sends to a stream socket, and which of them a filter refuses. No byte of a refused
/// call is taken.
struct Case {
    from: From,
    length: usize,
    /// Otherwise the bytes of a pipe go through a private pipe.
    nonblocking: bool,
    first: DataPath,
    call: libc::c_long,
    refused: fn(usize) -> bool,
    /// The number of calls made.
    calls: usize,
}

#[test]
fn a_send_that_is_too_long_is_divided() {
    let name = "a_send_that_is_too_long_is_divided";
    let _dog = watchdog(name);
    let case = |first, call, refused, calls| Case {
        from: From::Pipe,
        length: 1 << 20,
        nonblocking: false,
        first,
        call,
        refused,
        calls,
    };
    let cases = [
        // Sends of 8192, 4096 and 2048 bytes are refused, and those of 1024 are not.
        Case {
            from: From::File,
            length: 8192,
            ..case(ReadWrite, libc::SYS_sendto, |n| n < 3, 3 + 8)
        },
        // The first call fills the private pipe.
        case(Splice, libc::SYS_splice, |n| n > 0, 2),
        Case {
            nonblocking: true,
            ..case(Splice, libc::SYS_splice, |_| true, 1)
        },
        Case {
            from: From::File,
            ..case(Sendfile, testkit::refuse::SENDFILE, |_| true, 1)
        },
    ];
    for case in cases {
        let (first, what) = (case.first, format!("{} {}", case.first, case.nonblocking));
        if first == Splice && missing(name, &[Need::Splice])
            || first == Sendfile && missing(name, &[Need::Sendfile])
        {
            continue;
        }
        if cfg!(target_arch = "x86") && case.call == libc::SYS_sendto {
            testkit::skip::report(name, "all calls on sockets are one here, socketcall(2)");
            continue;
        }
        let data = pattern(case.length);
        let source = Source::new(case.from, &data);
        let mut filled = [PollFd::new(&source.fd, PollFlags::IN)];
        assert_eq!(poll(&mut filled, None), Ok(1));
        let (sink, out) = common::tcp_pair();
        sink.set_nonblocking(case.nonblocking).unwrap();
        let reader = std::thread::spawn(|| content_of(out));
        let mut report = None;
        let body = || report = Some(run(&source.fd, &sink, only(&[first, ReadWrite])).report);
        let refuse = |n| (case.refused)(n).then_some(libc::EMSGSIZE);
        let Some(made) = testkit::midst::refusing(&[case.call], body, refuse) else {
            return testkit::skip::report(name, "no seccomp_unotify(2) here");
        };
        let report = report.unwrap();
        drop(sink);
        let ended = (report.ended, report.errno);
        assert_eq!(ended, (Ended::Eof, None), "{what}: {report:?}");
        assert!(reader.join().unwrap() == data, "{what}");
        assert_eq!(made, case.calls, "{what}: {report:?}");
    }
}

/// Makes a source of datagrams, and the socket that feeds it.
fn datagrams() -> (OwnedFd, OwnedFd) {
    let (unix, none) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
    socketpair(unix, SocketType::SEQPACKET, none, None).unwrap()
}

/// Several datagrams are sent by one call, or the first one if a filter refuses that call.
#[test]
fn datagrams_that_are_too_long_together_are_divided() {
    let name = "datagrams_that_are_too_long_together_are_divided";
    let _dog = watchdog(name);
    if cfg!(target_arch = "x86") {
        return testkit::skip::report(name, "all calls on sockets are one here, socketcall(2)");
    }
    for (call, lengths) in [
        (libc::SYS_sendmsg, &[3000, 5000, 192][..]),
        (libc::SYS_sendto, &[8192]),
    ] {
        let data = pattern(8192);
        let (source, feed) = datagrams();
        let mut rest = &data[..];
        for length in lengths {
            let (first, others) = rest.split_at(*length);
            assert_eq!(send(&feed, first, SendFlags::empty()), Ok(*length));
            rest = others;
        }
        drop(feed);
        let (sink, out) = common::tcp_pair();
        let reader = std::thread::spawn(|| content_of(out));
        let mut report = None;
        let body = || {
            if call != libc::SYS_sendmsg {
                testkit::refuse::refuse(&[libc::SYS_sendmsg], libc::ENOSYS);
            }
            report = Some(run(&source, &sink, only(&[Datagram])).report);
        };
        // Sends of 8192, 4096 and 2048 bytes are refused, and those of 1024 are not.
        let refuse = |n| (n < 3).then_some(libc::EMSGSIZE);
        let made = testkit::midst::refusing(&[call], body, refuse);
        drop(sink);
        let received = reader.join().unwrap();
        let Some(made) = made else {
            return testkit::skip::report(name, "no seccomp_unotify(2) here");
        };
        let report = report.unwrap();
        let ended = (report.ended, report.errno, &report.path[..]);
        assert_eq!(ended, (Ended::Eof, None, &[Datagram][..]), "{report:?}");
        assert!(received == data, "{lengths:?}");
        assert_eq!(made, 3 + 8, "{report:?}");
    }
}

/// The kernel refuses a send that is longer than the send buffer.
#[test]
fn sctp_gets_no_send_that_is_longer_than_its_buffer() {
    let name = "sctp_gets_no_send_that_is_longer_than_its_buffer";
    if missing(name, &[Need::Sctp]) {
        return;
    }
    let _dog = watchdog(name);
    let whole = pattern(1 << 20);
    let each_step = Request {
        tune: Some(Tune::EachStep),
        ..any()
    };
    let mut requests = vec![
        (None, each_step, false),
        (Some(4096), any(), false),
        (Some(4096), any(), true),
    ];
    requests.extend(
        common::any_and_each(&[Splice, ReadWrite])
            .into_iter()
            .map(|r| (None, r, false)),
    );
    for (buffer, request, in_datagrams) in requests {
        let (sink, out): (OwnedFd, OwnedFd) = testkit::sockets::sctp_stream().unwrap();
        if let Some(bytes) = buffer {
            rustix::net::sockopt::set_socket_send_buffer_size(&sink, bytes).unwrap();
        }
        // Linux 5.10 sends a piece of a small buffer only when the one before is acknowledged,
        // after up to 200 ms.
        let data = match buffer {
            Some(_) => &whole[..64 << 10],
            None => &whole,
        };
        let source: OwnedFd = match in_datagrams {
            true => {
                let ((source, feed), data) = (datagrams(), data.to_vec());
                std::thread::spawn(move || {
                    // Fails if the test closes its end first.
                    let mut sent = data
                        .chunks(4000)
                        .map(|bytes| rustix::io::write(&feed, bytes));
                    sent.all(|done| done.is_ok())
                });
                source
            }
            false => file_with(data).into(),
        };
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            File::from(out).read_to_end(&mut all).unwrap();
            all
        });
        let report = run(&source, sink.as_fd(), request).report;
        drop(sink);
        assert_eq!(
            (report.ended, report.errno),
            (Ended::Eof, None),
            "{buffer:?} {in_datagrams}: {report:?}"
        );
        assert!(reader.join().unwrap() == data, "{buffer:?}: {report:?}");
    }
}
