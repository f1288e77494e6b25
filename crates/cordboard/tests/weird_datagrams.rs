//! Datagrams: every boundary is kept, the empty ones too; none is cut, and
//! none is lost in silence.

mod common;

use std::io::Read;
use std::net::UdpSocket;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::Duration;

use common::{any, content, file_with, only, pattern, run, watchdog};
use cordboard::PathName::{Datagram, ReadWrite};
use cordboard::{Ended, Errno, PathName, Request, Side, Stranded};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send, shutdown,
    socketpair, sockopt,
};

const BOTH: [PathName; 2] = [Datagram, ReadWrite];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Udp,
    Unix,
    Seqpacket,
}

const SORTS: [Sort; 3] = [Sort::Udp, Sort::Unix, Sort::Seqpacket];

fn pair(sort: Sort) -> (OwnedFd, OwnedFd) {
    match sort {
        Sort::Udp => {
            let a = UdpSocket::bind("127.0.0.1:0").unwrap();
            let b = UdpSocket::bind("127.0.0.1:0").unwrap();
            a.connect(b.local_addr().unwrap()).unwrap();
            b.connect(a.local_addr().unwrap()).unwrap();
            (a.into(), b.into())
        }
        Sort::Unix => {
            let (a, b) = UnixDatagram::pair().unwrap();
            (a.into(), b.into())
        }
        Sort::Seqpacket => {
            let kind = SocketType::SEQPACKET;
            socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap()
        }
    }
}

fn put(fd: &OwnedFd, bytes: &[u8]) {
    assert_eq!(send(fd, bytes, SendFlags::empty()), Ok(bytes.len()));
}

/// The datagrams that are there, without waiting.
fn all(fd: &OwnedFd) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut buffer = vec![0; 1 << 20];
    // An empty one and the end look alike, so no more than can be there.
    while let Ok((n, _)) = recv(fd, &mut buffer[..], RecvFlags::DONTWAIT) {
        all.push(buffer[..n].to_vec());
        if all.len() == 1000 {
            break;
        }
    }
    all
}

fn idle() -> Option<Duration> {
    Some(Duration::from_millis(1))
}

#[test]
fn boundaries_are_kept_and_empty_ones_are_passed_on() {
    let _dog = watchdog("boundaries_are_kept_and_empty_ones_are_passed_on");
    for from in SORTS {
        for to in SORTS {
            for path in BOTH {
                if path == ReadWrite && from == Sort::Seqpacket {
                    // Read singly, an empty message is the end: see the next.
                    continue;
                }
                let ((a, source), (sink, b)) = (pair(from), pair(to));
                let lengths = [100, 50, 0, 1, 0, 0, 9000, 3];
                let sent: Vec<_> = lengths.iter().map(|n| pattern(*n)).collect();
                sent.iter().for_each(|bytes| put(&a, bytes));
                let request = Request {
                    idle: idle(),
                    ..only(&[path])
                };
                let report = run(&source, &sink, request).report;
                let what = format!("{from:?} to {to:?} by {path}: {report:?}");
                assert_eq!(
                    (report.ended, report.written),
                    (Ended::Idle, 9154),
                    "{what}"
                );
                assert_eq!(report.path, [path], "{what}");
                assert!(all(&b) == sent, "{what}");
            }
        }
    }
}

#[test]
fn an_empty_message_is_told_from_the_end() {
    let _dog = watchdog("an_empty_message_is_told_from_the_end");
    let ((a, source), (sink, b)) = (pair(Sort::Seqpacket), pair(Sort::Seqpacket));
    for bytes in [&b"one"[..], b"", b"two"] {
        put(&a, bytes);
    }
    drop(a);
    assert_eq!(sockopt::socket_passcred(&source), Ok(false));
    let report = run(&source, &sink, any()).report;
    assert_eq!(
        (report.ended, report.written),
        (Ended::Eof, 6),
        "{report:?}"
    );
    assert_eq!(sockopt::socket_passcred(&source), Ok(false), "as it was");
    assert_eq!(all(&b), [&b"one"[..], b"", b"two"]);
    // Set before: it stays set.
    let (a, source) = pair(Sort::Seqpacket);
    sockopt::set_socket_passcred(&source, true).unwrap();
    put(&a, b"x");
    drop(a);
    run(&source, &sink, any());
    assert_eq!(sockopt::socket_passcred(&source), Ok(true));
}

#[test]
fn a_socket_whose_reading_was_shut_down_has_ended() {
    let _dog = watchdog("a_socket_whose_reading_was_shut_down_has_ended");
    for sort in SORTS {
        for path in BOTH {
            let ((a, source), (sink, b)) = (pair(sort), pair(Sort::Unix));
            put(&a, b"last words");
            shutdown(&source, Shutdown::Read).unwrap();
            let report = run(&source, &sink, only(&[path])).report;
            assert_eq!(report.ended, Ended::Eof, "{sort:?} by {path}: {report:?}");
            let got = all(&b);
            assert!(got.len() <= 1, "{sort:?} by {path}: {got:?}");
            assert_eq!(got.concat().len() as u64, report.written);
        }
    }
}

#[test]
fn large_ones_arrive_whole() {
    let _dog = watchdog("large_ones_arrive_whole");
    for sort in [Sort::Unix, Sort::Seqpacket] {
        for path in BOTH {
            let ((a, source), (sink, b)) = (pair(sort), pair(sort));
            for end in [&a, &sink] {
                sockopt::set_socket_send_buffer_size(end, 1 << 20).unwrap();
            }
            let sent = [pattern(65_537), pattern(150_000)];
            sent.iter().for_each(|bytes| put(&a, bytes));
            let request = Request {
                idle: idle(),
                ..only(&[path])
            };
            let report = run(&source, &sink, request).report;
            assert_eq!(report.truncated, 0, "{sort:?} by {path}: {report:?}");
            assert_eq!(report.ended, Ended::Idle, "{sort:?} by {path}: {report:?}");
            assert!(all(&b) == sent, "{sort:?} by {path}");
        }
    }
}

#[test]
fn a_stream_is_cut_as_the_caller_says() {
    let _dog = watchdog("a_stream_is_cut_as_the_caller_says");
    let data = pattern(10_000);
    for sort in SORTS {
        for path in BOTH {
            for through_socket in [false, true] {
                let (sink, b) = pair(sort);
                let request = Request {
                    block: NonZeroUsize::new(1316),
                    ..only(&[path])
                };
                let report = if through_socket {
                    let (source, mut feed) = UnixStream::pair().unwrap();
                    // In pieces of any size.
                    for piece in data.chunks(700) {
                        std::io::Write::write_all(&mut feed, piece).unwrap();
                    }
                    drop(feed);
                    run(&source, &sink, request).report
                } else {
                    run(file_with(&data), &sink, request).report
                };
                let what = format!("{sort:?} by {path}: {report:?}");
                assert_eq!(
                    (report.ended, report.written),
                    (Ended::Eof, 10_000),
                    "{what}"
                );
                let sent: Vec<_> = data.chunks(1316).map(<[u8]>::to_vec).collect();
                assert!(all(&b) == sent, "{what}");
            }
        }
    }
}

#[test]
fn a_size_moves_whole_datagrams_only() {
    let _dog = watchdog("a_size_moves_whole_datagrams_only");
    for sort in SORTS {
        for path in BOTH {
            let ((a, source), (sink, b)) = (pair(sort), pair(sort));
            for length in [100, 50, 30] {
                put(&a, &pattern(length));
            }
            let request = Request {
                size: 160.into(),
                ..only(&[path])
            };
            let report = run(&source, &sink, request).report;
            let what = format!("{sort:?} by {path}: {report:?}");
            assert_eq!((report.ended, report.written), (Ended::Size, 150), "{what}");
            assert_eq!(report.read, 150, "{what}");
            assert_eq!(all(&b), [pattern(100), pattern(50)], "{what}");
            assert_eq!(all(&source), [pattern(30)], "{what}: the rest stays");
        }
    }
}

#[test]
fn into_a_stream_in_order() {
    let _dog = watchdog("into_a_stream_in_order");
    for sort in SORTS {
        for path in BOTH {
            let (a, source) = pair(sort);
            let (sink, mut peer) = UnixStream::pair().unwrap();
            let sent: Vec<_> = (1..40).map(|n| pattern(n * 10)).collect();
            sent.iter().for_each(|bytes| put(&a, bytes));
            let request = Request {
                idle: idle(),
                ..only(&[path])
            };
            let report = run(&source, &sink, request).report;
            drop(sink);
            let mut got = Vec::new();
            peer.read_to_end(&mut got).unwrap();
            assert!(got == sent.concat(), "{sort:?} by {path}: {report:?}");
            assert_eq!(report.written, got.len() as u64);
        }
    }
}

#[test]
fn nobody_listens() {
    let _dog = watchdog("nobody_listens");
    for path in BOTH {
        // The sink: the first is sent, the answer to it fails the next.
        let (a, source) = pair(Sort::Unix);
        let (sink, gone) = pair(Sort::Udp);
        drop(gone);
        assert!(send(&sink, b"", SendFlags::empty()).is_ok());
        for n in 1..=3 {
            put(&a, &pattern(n));
        }
        let outcome = run(&source, &sink, only(&[path]));
        let report = &outcome.report;
        assert_eq!(
            report.errno,
            Some(Errno::ECONNREFUSED),
            "{path}: {report:?}"
        );
        assert_eq!((report.failed, report.written), (Some(Side::Sink), 0));
        assert_eq!(report.read, report.stranded);
        let rest = [common::handed_back(outcome.stranded), all(&source).concat()].concat();
        assert_eq!(rest, [pattern(1), pattern(2), pattern(3)].concat());
        // The source: its own earlier datagram was refused.
        let (source, gone) = pair(Sort::Udp);
        drop(gone);
        put(&source, b"anybody there?");
        let report = run(&source, tempfile::tempfile().unwrap(), only(&[path])).report;
        assert_eq!(
            report.errno,
            Some(Errno::ECONNREFUSED),
            "{path}: {report:?}"
        );
        assert_eq!((report.failed, report.read), (Some(Side::Source), 0));
    }
}

#[test]
fn too_long_for_the_sink_is_handed_back_in_order() {
    let _dog = watchdog("too_long_for_the_sink_is_handed_back_in_order");
    let ((a, source), (sink, b)) = (pair(Sort::Unix), pair(Sort::Udp));
    let sent = [pattern(10), pattern(70_000), pattern(20), pattern(30)];
    sent.iter().for_each(|bytes| put(&a, bytes));
    let outcome = run(&source, &sink, any());
    let report = &outcome.report;
    assert_eq!(report.errno, Some(Errno::EMSGSIZE), "{report:?}");
    assert_eq!((report.failed, report.written), (Some(Side::Sink), 10));
    assert_eq!(report.stranded, 70_050);
    let Some(Stranded::Datagrams(back)) = outcome.stranded else {
        panic!("{report:?}");
    };
    assert!(back == sent[1..]);
    assert_eq!(all(&b), [pattern(10)]);
}

/// A stream's beginning of a datagram is in hand when it is cancelled.
#[test]
fn part_of_a_datagram_is_handed_back_or_rewound() {
    let _dog = watchdog("part_of_a_datagram_is_handed_back_or_rewound");
    for path in BOTH {
        let (source, mut feed) = UnixStream::pair().unwrap();
        let (sink, b) = pair(Sort::Udp);
        std::io::Write::write_all(&mut feed, &pattern(1000)).unwrap();
        let request = Request {
            block: NonZeroUsize::new(600),
            idle: idle(),
            ..only(&[path])
        };
        let outcome = run(&source, &sink, request);
        let report = outcome.report;
        let mut got = all(&b).concat();
        assert_eq!(got.len() as u64, report.written, "{path}: {report:?}");
        assert_eq!(report.read, report.written + report.stranded);
        got.extend(common::handed_back(outcome.stranded));
        assert!(got == pattern(1000), "{path}");
    }
}

#[test]
fn a_sink_file_that_is_full_gets_nothing_twice() {
    let _dog = watchdog("a_sink_file_that_is_full_gets_nothing_twice");
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    for path in BOTH {
        let (a, source) = pair(Sort::Unix);
        let sent = [pattern(10), pattern(0), pattern(20)];
        sent.iter().for_each(|bytes| put(&a, bytes));
        let outcome = run(source.as_fd(), &full, only(&[path]));
        assert_eq!(outcome.report.errno, Some(Errno::ENOSPC));
        let back = common::handed_back(outcome.stranded);
        assert!(
            [back, all(&source).concat()].concat() == sent.concat(),
            "{path}"
        );
        // And what goes through arrives once.
        put(&a, b"again");
        let sink = tempfile::tempfile().unwrap();
        let request = Request {
            idle: idle(),
            ..only(&[path])
        };
        run(&source, &sink, request);
        assert_eq!(content(&sink), b"again");
    }
}
