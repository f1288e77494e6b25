//! Boundaries of datagrams: each is kept, those of empty datagrams too; none is cut,
//! and none is lost without an error.

mod flags;

use std::io::Read;
use std::num::NonZeroUsize;
use std::os::unix::net::UnixStream;

use crate::common::datagrams::{BOTH, SORTS, Sort, all, idle, pair, put};
use crate::common::{file_with, only, pattern, run, watchdog};
use cordboard::DataPath::{Datagram, ReadWrite};
use cordboard::{Ended, Request};
use rustix::net::sockopt;

#[test]
fn boundaries_are_kept_and_empty_ones_are_passed_on() {
    let _dog = watchdog("boundaries_are_kept_and_empty_ones_are_passed_on");
    for from in SORTS {
        for to in SORTS {
            for path in BOTH {
                if path == ReadWrite && from == Sort::Seqpacket {
                    // If messages are read one by one, an empty message is the end:
                    // see the next test.
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
            assert_eq!(all(&source), [pattern(30)], "{what}: the rest is lost");
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

/// `ENOBUFS` of a packet socket, or of a socket with `IP_RECVERR`: the device's queue
/// is full at the moment, and nothing was sent.
#[test]
fn a_full_queue_of_a_device_is_waited_for() {
    let _dog = watchdog("a_full_queue_of_a_device_is_waited_for");
    for path in BOTH {
        for refused in 0..3 {
            let ((a, source), (sink, b)) = (pair(Sort::Seqpacket), pair(Sort::Udp));
            let sent = [1, 300, 7].map(pattern);
            sent.iter().for_each(|bytes| put(&a, bytes));
            drop(a);
            let mut report = None;
            let body = || report = Some(run(&source, &sink, only(&[path])).report);
            let calls = [libc::SYS_sendto, libc::SYS_sendmmsg];
            let full = |before| (before == refused).then_some(libc::ENOBUFS);
            if testkit::midst::refusing(&calls, body, full).is_none() {
                return testkit::skip::report("ENOBUFS", "calls of another thread cannot be held");
            }
            let report = report.unwrap();
            assert_eq!(report.ended, Ended::Eof, "{path} {refused}: {report:?}");
            assert_eq!((report.read, report.written), (308, 308), "{path}");
            assert_eq!(all(&b), sent, "{path} {refused}");
        }
    }
}

const RECEIVE: &[libc::c_long] = &[libc::SYS_recvfrom, libc::SYS_recvmmsg];
const SEND: &[libc::c_long] = &[libc::SYS_sendto, libc::SYS_sendmmsg];

/// Queued messages are received with as few calls as their lengths allow. If the rest
/// of the size has room for several messages of any length, one call receives
/// several. If it may lack room for a message, the length of each message is read
/// first, unless the sum of the lengths is known. Messages are sent in batches.
#[test]
fn a_size_takes_few_calls() {
    let name = "a_size_takes_few_calls";
    let _dog = watchdog(name);
    // The longest possible message has more than 4 MiB, and a batch has 16 messages.
    // For sequenced packets the sum is known.
    for (sort, count, size, received) in [
        (Sort::Unix, 8_usize, 800, 16),
        (Sort::Unix, 8, 5 << 20, 8),
        (Sort::Seqpacket, 64, 6400, 64),
        (Sort::Seqpacket, 64, 5 << 20, 64),
        (Sort::Seqpacket, 64, 12 << 20, 32),
        (Sort::Seqpacket, 64, 100 << 20, 4),
    ] {
        for (calls, least) in [(RECEIVE, received), (SEND, count.div_ceil(16))] {
            let ((a, source), (sink, b)) = (pair(sort), pair(Sort::Seqpacket));
            let data = pattern(count * 100);
            data.chunks(100).for_each(|message| put(&a, message));
            drop(a);
            let request = Request {
                size: cordboard::Size::Bytes(size),
                idle: (sort == Sort::Unix).then(idle).flatten(),
                ..only(&[Datagram])
            };
            let body = || {
                let report = run(&source, &sink, request).report;
                let written = count as u64 * 100;
                assert_eq!(
                    (report.written, report.errno),
                    (written, None),
                    "{report:?}"
                );
            };
            let Some(count) = testkit::midst::at_each(calls, body, || ()) else {
                return testkit::skip::report(name, "calls of another thread cannot be held");
            };
            assert!(all(&b) == data.chunks(100).collect::<Vec<_>>());
            // The end takes a few more calls.
            let what = format!("{sort:?}, {size}: {count} calls, not {least}");
            assert!((least..=least + 4).contains(&count), "{what}");
        }
    }
}

/// The sender waits for an answer to each message: calls that find no message are
/// rare. Only a nonblocking call, which is made so that the sink can be polled, may
/// come before the next message.
#[test]
fn a_size_of_messages_one_by_one_takes_few_calls() {
    let name = "a_size_of_messages_one_by_one_takes_few_calls";
    let _dog = watchdog(name);
    const COUNT: usize = 90;
    for (size, each) in [(COUNT as u64 * 100, 3), (5 << 20, 2)] {
        let ((a, source), (sink, b)) = (pair(Sort::Seqpacket), pair(Sort::Seqpacket));
        let request = Request {
            size: cordboard::Size::Bytes(size),
            ..only(&[Datagram])
        };
        let calls = [RECEIVE, SEND].concat();
        let count = std::thread::scope(|scope| {
            scope.spawn(move || {
                for n in 0..COUNT {
                    let message = [n as u8; 100];
                    put(&a, &message);
                    let mut got = [0; 200];
                    let (_, length) =
                        rustix::net::recv(&b, &mut got[..], rustix::net::RecvFlags::empty())
                            .unwrap();
                    assert_eq!(got[..length], message);
                }
            });
            let body = || {
                let report = run(&source, &sink, request).report;
                assert_eq!((report.written, report.errno), (9000, None), "{report:?}");
            };
            testkit::midst::at_each(&calls, body, || ())
        });
        let Some(count) = count else {
            return testkit::skip::report(name, "calls of another thread cannot be held");
        };
        let least = each * COUNT;
        let what = format!("{size}: {count} calls, not {least}");
        let most = least + COUNT + COUNT / 9 + 4;
        assert!((least..=most).contains(&count), "{what}");
    }
}

/// Another reader takes a message after the transfer has read its length: the next
/// one is longer than the rest of the size, and is neither cut nor lost. No call
/// receives a message only if it is short enough.
#[test]
fn a_size_is_exceeded_by_one_if_another_reads_too() {
    let name = "a_size_is_exceeded_by_one_if_another_reads_too";
    let _dog = watchdog(name);
    for (path, sort) in BOTH
        .into_iter()
        .flat_map(|path| SORTS.map(|sort| (path, sort)))
    {
        let ((a, source), (sink, b)) = (pair(sort), pair(sort));
        let messages = [10, 50, 60].map(pattern);
        messages.iter().for_each(|message| put(&a, message));
        let request = Request {
            size: cordboard::Size::Bytes(20),
            ..only(&[path])
        };
        let mut report = None;
        let body = || report = Some(run(&source, &sink, request).report);
        let mut calls = 0;
        let take_first = || {
            // The first call reads the length.
            if calls == 1 {
                let mut first = [0; 100];
                let flags = rustix::net::RecvFlags::empty();
                let taken = rustix::net::recv(&source, &mut first[..], flags);
                assert_eq!(taken.unwrap().1, 10);
            }
            calls += 1;
        };
        let receive = [RECEIVE, &[libc::SYS_recvmsg]].concat();
        let Some(_) = testkit::midst::at_each(&receive, body, take_first) else {
            return testkit::skip::report(name, "calls of another thread cannot be held");
        };
        let report = report.unwrap();
        let what = format!("{path}, {sort:?}: {report:?}");
        assert_eq!((report.ended, report.errno), (Ended::Size, None), "{what}");
        assert_eq!((report.written, report.truncated), (50, 0), "{what}");
        assert_eq!(all(&b), messages[1..2], "{what}");
        assert_eq!(all(&source), messages[2..], "{what}");
    }
}
