//! Filters that refuse the calls on sockets that have flags: `read(2)` and `write(2)`
//! remain.

use std::os::fd::OwnedFd;
use std::time::Duration;

use super::waits::slow_sink;
use super::*;
use crate::common::datagrams::{BOTH, SORTS, Sort, all, deliver, pair, put};
use cordboard::{Engine, Size};
use testkit::refuse::refuse_where;

/// The calls in the order in which they are tried.
const RECEIVE: [&[libc::c_long]; 3] = [
    &[libc::SYS_recvfrom],
    &[libc::SYS_recvmsg, libc::SYS_recvmmsg],
    &[libc::SYS_preadv2],
];
const SEND: [&[libc::c_long]; 3] = [
    &[libc::SYS_sendto],
    &[libc::SYS_sendmsg, libc::SYS_sendmmsg],
    &[libc::SYS_pwritev2],
];
const ERRNOS: [Errno; 3] = [Errno::ENOSYS, Errno::EPERM, Errno::EACCES];

#[derive(Debug, Clone, Copy)]
enum RunMode {
    Plain,
    /// The transfer does not wait inside a call.
    Timed,
    ByEngine,
}

const WAYS: [RunMode; 3] = [RunMode::Plain, RunMode::Timed, RunMode::ByEngine];

/// Moves everything with these calls refused.
fn moved(
    calls: &[libc::c_long],
    errno: Errno,
    how: RunMode,
    ends: [&OwnedFd; 2],
    request: Request,
) -> Report {
    moved_under(|| refuse(calls, errno), how, ends, request)
}

/// Moves everything under these filters.
fn moved_under(
    filters: impl FnOnce() + Send,
    how: RunMode,
    ends: [&OwnedFd; 2],
    request: Request,
) -> Report {
    let [source, sink] = ends.map(|fd| fd.try_clone().unwrap());
    apart(|| {
        filters();
        let request = Request {
            idle: matches!(how, RunMode::Timed).then_some(Duration::from_secs(100)),
            ..request
        };
        let transfer = Transfer::owning(source, sink, request).unwrap();
        match how {
            RunMode::ByEngine => {
                let engine = Engine::new(Default::default()).unwrap();
                engine.start(transfer).unwrap().wait().report
            }
            _ => transfer.run().report,
        }
    })
}

const ROUTES: [&[DataPath]; 2] = [DataPath::ALL, &[DataPath::ReadWrite]];

/// A whole stream arrives, and its end is found, if the first one, two or three of
/// these calls are refused.
fn streams_arrive_without(refused: &[&[libc::c_long]], sources: &[From], sinks: &[From]) {
    let data = pattern(SIZE);
    let pairs = || {
        sources
            .iter()
            .flat_map(|from| sinks.iter().map(move |to| (*from, *to)))
    };
    let refused = (1..=3).flat_map(|n| ERRNOS.map(|errno| (refused[..n].concat(), errno)));
    for (calls, errno) in refused {
        for (from, to) in pairs() {
            for (paths, how) in ROUTES.into_iter().flat_map(|p| WAYS.map(|how| (p, how))) {
                let source = Source::new(from, &data);
                let (sink, reader) = slow_sink(to);
                let report = moved(&calls, errno, how, [&source.fd, &sink], only(paths));
                drop((sink, source));
                let what = format!("{calls:?} {errno}, {from:?} {to:?}, {how:?}: {report:?}");
                assert_eq!((report.ended, report.errno), (Ended::Eof, None), "{what}");
                assert_eq!(report.written, SIZE as u64, "{what}");
                assert!(reader.join().unwrap() == data, "{what}");
            }
        }
    }
}

#[test]
fn a_stream_is_read_without_receiving() {
    let _dog = watchdog("a_stream_is_read_without_receiving");
    let sinks = [From::Pipe, From::Unix, From::Tcp];
    streams_arrive_without(&RECEIVE, &[From::Unix, From::Tcp], &sinks);
}

#[test]
fn a_stream_is_written_without_sending() {
    let _dog = watchdog("a_stream_is_written_without_sending");
    let sources = [From::File, From::Pipe, From::Tcp];
    streams_arrive_without(&SEND, &sources, &[From::Unix, From::Tcp]);
}

/// `read(2)` receives datagrams whole, one at a time; empty ones too, if they can be
/// told from the end.
#[test]
fn datagrams_are_read_and_written_without_flags() {
    let _dog = watchdog("datagrams_are_read_and_written_without_flags");
    let messages: Vec<Vec<u8>> = [1, 4096, 5000, 17].map(pattern).into();
    let refused = [
        RECEIVE[..1].to_vec(),
        RECEIVE[..2].to_vec(),
        RECEIVE.to_vec(),
        SEND[..1].to_vec(),
        SEND[..2].to_vec(),
        SEND.to_vec(),
        [RECEIVE, SEND].concat(),
    ];
    for (calls, errno) in refused
        .iter()
        .flat_map(|calls| ERRNOS.map(|errno| (calls.concat(), errno)))
    {
        for (sort, how) in SORTS
            .into_iter()
            .flat_map(|sort| WAYS.map(|how| (sort, how)))
        {
            let ((a, source), (sink, b)) = (pair(sort), pair(sort));
            messages.iter().for_each(|message| put(&a, message));
            let total = messages.iter().map(Vec::len).sum::<usize>() as u64;
            let request = |paths| Request {
                size: Size::Bytes(total),
                ..only(paths)
            };
            let report = moved(&calls, errno, how, [&source, &sink], request(DataPath::ALL));
            let what = format!("{calls:?} {errno}, {sort:?}, {how:?}: {report:?}");
            assert_eq!((report.ended, report.errno), (Ended::Size, None), "{what}");
            assert_eq!((report.written, report.truncated), (total, 0), "{what}");
            assert_eq!(all(&b), messages, "{what}");
            // Into a stream, and out of one.
            messages.iter().for_each(|message| put(&a, message));
            let (far, near) = std::os::unix::net::UnixStream::pair().unwrap();
            let report = moved(
                &calls,
                errno,
                how,
                [&source, &near.into()],
                request(DataPath::ALL),
            );
            assert_eq!(
                (report.ended, report.written),
                (Ended::Size, total),
                "{what}: {report:?}"
            );
            drop(source);
            let block = Request {
                block: std::num::NonZeroUsize::new(1000),
                ..request(DataPath::ALL)
            };
            let report = moved(&calls, errno, how, [&far.into(), &sink], block);
            assert_eq!(
                (report.ended, report.errno),
                (Ended::Size, None),
                "{what}: {report:?}"
            );
            let got = all(&b);
            assert_eq!(got.concat(), messages.concat(), "{what}");
            if sort != Sort::Udp {
                assert!(
                    got[..got.len() - 1].iter().all(|m| m.len() == 1000),
                    "{what}"
                );
            }
        }
    }
}

/// The rest of the size is shorter than the next message, which stays in the source,
/// although no call can inspect it.
#[test]
fn a_message_that_exceeds_a_size_stays_without_a_look() {
    let _dog = watchdog("a_message_that_exceeds_a_size_stays_without_a_look");
    for calls in [RECEIVE[..1].concat(), RECEIVE.concat()] {
        for (sort, how) in SORTS
            .into_iter()
            .flat_map(|sort| WAYS.map(|how| (sort, how)))
        {
            let ((a, source), (sink, b)) = (pair(sort), pair(sort));
            let messages = [10, 50].map(pattern);
            messages.iter().for_each(|message| put(&a, message));
            let request = Request {
                size: Size::Bytes(60 - 1),
                ..any()
            };
            let report = moved(&calls, Errno::EPERM, how, [&source, &sink], request);
            let what = format!("{calls:?}, {sort:?}, {how:?}: {report:?}");
            // For sequenced packets only the sum of all waiting messages is known.
            let few = sort == Sort::Seqpacket && calls.len() > 1;
            let moved = if few { 0 } else { 1 };
            assert_eq!((report.ended, report.errno), (Ended::Size, None), "{what}");
            assert_eq!(all(&b), messages[..moved], "{what}");
            assert_eq!(all(&source), messages[moved..], "{what}");
        }
    }
}

/// Fails every peek, as a socket without `MSG_PEEK` does.
fn refuse_peeks(errno: Errno) {
    for more in [0, libc::MSG_TRUNC] {
        for waits in [0, libc::MSG_DONTWAIT] {
            let flags = (libc::MSG_PEEK | more | waits) as u32;
            refuse_where(libc::SYS_recvfrom, 3, flags, errno.raw());
        }
    }
}

const NO_PEEKS: [Errno; 2] = [Errno::EINVAL, Errno::EOPNOTSUPP];

/// Without `MSG_PEEK`, `FIONREAD` shows whether the next message is within the size. If
/// the socket does not have that either, no more than the rest of the size is received.
#[test]
fn messages_move_where_no_socket_can_be_peeked() {
    let _dog = watchdog("messages_move_where_no_socket_can_be_peeked");
    let cases = NO_PEEKS.map(|errno| [(errno, true), (errno, false)]);
    for (errno, counts) in cases.into_iter().flatten() {
        let filters = || {
            refuse_peeks(errno);
            if !counts {
                let ask = libc::FIONREAD as u32;
                refuse_where(libc::SYS_ioctl, 1, ask, libc::ENOTTY);
            }
        };
        let modes = SORTS
            .into_iter()
            .flat_map(|sort| WAYS.map(|how| (sort, how)));
        let modes = modes.flat_map(|mode| BOTH.map(|path| (mode, path)));
        let modes = modes.flat_map(|mode| [(mode, false), (mode, true)]);
        for (((sort, how), path), to_stream) in modes {
            let what = format!("{errno} {counts}, {sort:?} {how:?} {path} {to_stream}");
            // Moves two messages, of which the second has this length.
            let moved = |second| {
                let ((a, source), (sink, b)) = (pair(sort), pair(sort));
                let messages = [10, second].map(pattern);
                messages.iter().for_each(|message| put(&a, message));
                deliver();
                let (reader, writer) = std::io::pipe().unwrap();
                let sink = match to_stream {
                    true => writer.into(),
                    false => sink,
                };
                let request = Request {
                    size: Size::Bytes(60),
                    ..only(&[path])
                };
                let report = moved_under(filters, how, [&source, &sink], request);
                drop(sink);
                let got = match to_stream {
                    true => content_of(reader),
                    false => all(&b).concat(),
                };
                (report, got, messages.concat(), all(&source).concat())
            };
            let (report, got, sent, left) = moved(50);
            let (ended, errno) = (report.ended, report.errno);
            assert_eq!((ended, errno), (Ended::Size, None), "{what}: {report:?}");
            assert_eq!((report.written, &report.path[..]), (60, &[path][..]));
            assert!(got == sent && left.is_empty(), "{what}: {report:?}");

            let (report, got, sent, left) = moved(51);
            let (bytes, ending) = match (counts, sort) {
                (true, Sort::Seqpacket) => ([0; 2], (Ended::Size, None)),
                (true, _) => ([10; 2], (Ended::Size, None)),
                (false, _) => ([60, 10], (Ended::Error, Some(Errno::EMSGSIZE))),
            };
            assert_eq!([report.read, report.written], bytes, "{what}: {report:?}");
            assert_eq!((report.ended, report.errno), ending, "{what}: {report:?}");
            assert_eq!(report.truncated, u64::from(!counts), "{what}");
            assert!(got == sent[..report.written as usize], "{what}");
            // Of sequenced packets only the sum of all is known, so the first stays too.
            let rest = if counts { &sent[got.len()..] } else { &[] };
            assert!(left == rest, "{what}: {report:?}");
        }
    }
}

/// The reader of the sink has closed it. The source has bytes, and cannot be peeked: the error
/// is that of the sink.
#[test]
fn a_source_that_cannot_be_peeked_has_not_failed() {
    let _dog = watchdog("a_source_that_cannot_be_peeked_has_not_failed");
    for errno in NO_PEEKS {
        for (from, how) in [From::Unix, From::Tcp]
            .into_iter()
            .flat_map(|from| WAYS.map(|how| (from, how)))
        {
            let source = Source::new(from, &pattern(SIZE));
            let (reader, sink) = std::io::pipe().unwrap();
            drop(reader);
            let filters = || refuse_peeks(errno);
            let ends = [&source.fd, &sink.into()];
            let report = moved_under(filters, how, ends, any());
            let failure = (report.failed, report.errno);
            let expected = (Some(Side::Sink), Some(Errno::EPIPE));
            assert_eq!(failure, expected, "{errno}, {from:?} {how:?}: {report:?}");
        }
    }
}

/// If `getsockopt(2)` is refused, the type of a socket is read from procfs. If that
/// fails too, the transfer fails before any byte moves.
#[test]
fn messages_are_whole_where_no_socket_tells_its_type() {
    let _dog = watchdog("messages_are_whole_where_no_socket_tells_its_type");
    if !std::path::Path::new("/proc/thread-self/net/unix").exists() {
        return testkit::skip::report("messages_are_whole…", "procfs lists no sockets");
    }
    let calls = [libc::SYS_getsockopt];
    let messages = vec![pattern(1000); 10];
    let requests = || {
        let (block, size) = (std::num::NonZeroUsize::new(512), Size::Bytes(10_000));
        let blocks = Request {
            block,
            size,
            ..any()
        };
        let part = Request {
            size: Size::Bytes(1500),
            ..any()
        };
        [blocks, part]
    };
    for (errno, how) in ERRNOS.iter().flat_map(|e| WAYS.map(|how| (*e, how))) {
        for sort in SORTS {
            for (request, whole) in requests().into_iter().zip([10, 1]) {
                for to_stream in [false, true] {
                    let (a, source) = pair(sort);
                    let (sink, out) = match to_stream {
                        true => rustix::net::socketpair(
                            rustix::net::AddressFamily::UNIX,
                            rustix::net::SocketType::STREAM,
                            rustix::net::SocketFlags::CLOEXEC,
                            None,
                        )
                        .unwrap(),
                        false => pair(sort),
                    };
                    messages.iter().for_each(|message| put(&a, message));
                    let report = moved(&calls, errno, how, [&source, &sink], request.clone());
                    let what = format!("{errno}, {sort:?}, {how:?}, {to_stream}: {report:?}");
                    assert_eq!((report.ended, report.errno), (Ended::Size, None), "{what}");
                    assert_eq!(report.path, [DataPath::Datagram], "{what}");
                    assert_eq!(report.written, 1000 * whole as u64, "{what}");
                    match to_stream {
                        true => {
                            assert_eq!(all(&out).concat(), messages[..whole].concat(), "{what}")
                        }
                        false => assert_eq!(all(&out), messages[..whole], "{what}"),
                    }
                    assert_eq!(all(&source), messages[whole..], "{what}");
                }
            }
        }
        // From a stream: each message has the length of the block, and the last one
        // at most that.
        for sort in [Sort::Unix, Sort::Seqpacket] {
            let (far, near) = std::os::unix::net::UnixStream::pair().unwrap();
            let (sink, out) = pair(sort);
            rustix::io::write(&far, &pattern(9900)).unwrap();
            drop(far);
            let request = Request {
                block: std::num::NonZeroUsize::new(1000),
                ..any()
            };
            let report = moved(&calls, errno, how, [&near.into(), &sink], request);
            let lengths: Vec<usize> = all(&out).iter().map(Vec::len).collect();
            let expected = [&[1000; 9][..], &[900]].concat();
            assert_eq!(lengths, expected, "{errno}, {sort:?}, {how:?}: {report:?}");
        }
        for sort in SORTS {
            let ((_a, source), (sink, _b)) = (pair(sort), pair(sort));
            let refused = apart(|| {
                refuse(&calls, errno);
                refuse(testkit::refuse::OPEN, Errno::EPERM);
                let [source, sink] = [&source, &sink].map(|fd| fd.as_fd());
                let refused = Transfer::new(source, sink, any()).err();
                refused.and_then(|failure| failure.refusal)
            });
            let side = Side::Source;
            let call = "getsockopt(2)";
            let expected = Refusal::Unexamined { side, call, errno };
            assert_eq!(refused, Some(expected), "{sort:?}");
        }
    }
}

/// Each message to a `SOCK_SEQPACKET` socket is a record, as each `write(2)` is. A send
/// without `MSG_EOR` fails here, as to an X.25 socket.
#[test]
fn a_record_is_sent_with_its_end() {
    let _dog = watchdog("a_record_is_sent_with_its_end");
    if cfg!(target_arch = "x86") {
        return testkit::skip::here("all calls on sockets are one here, socketcall(2)");
    }
    let without_end = || {
        for flags in [libc::MSG_NOSIGNAL, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT] {
            refuse_where(libc::SYS_sendto, 3, flags as u32, libc::EIO);
            refuse_where(libc::SYS_sendmmsg, 3, flags as u32, libc::EIO);
        }
    };
    for (paths, how) in [BOTH.as_slice(), &BOTH[..1], &BOTH[1..]]
        .into_iter()
        .flat_map(|paths| WAYS.map(|how| (paths, how)))
    {
        for sort in [Sort::Unix, Sort::Seqpacket] {
            let ((feed, source), (sink, out)) = (pair(Sort::Unix), pair(sort));
            [b"one", b"two"].iter().for_each(|bytes| put(&feed, *bytes));
            let request = Request {
                size: Size::Bytes(6),
                ..only(paths)
            };
            let report = moved_under(without_end, how, [&source, &sink], request);
            let what = format!("{sort:?}, {how:?}: {report:?}");
            if sort == Sort::Seqpacket {
                assert_eq!(report.ended, Ended::Size, "{what}");
                assert_eq!(all(&out), [b"one", b"two"], "{what}");
            } else {
                // A datagram socket needs no flag.
                assert_eq!(report.errno, Some(Errno::EIO), "{what}");
            }
        }
    }
}
