//! Sockets whose `MSG_PEEK` consumes bytes, or does not show the length of a message.

use super::*;
use crate::common::any_and_each;
use testkit::needs::{self, Need};
use testkit::sockets;

/// A peek at a digest would consume it. The next read would return the digest of no bytes.
#[test]
fn a_digest_is_not_consumed_by_a_peek() {
    let name = "a_digest_is_not_consumed_by_a_peek";
    let _dog = watchdog(name);
    if needs::missing(name, &[Need::HashSockets]) {
        return;
    }
    // FIPS 180-4, example of one block.
    const DIGEST: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    for request in any_and_each(&BOTH) {
        for to_stream in [false, true] {
            let source = sockets::sha256().unwrap();
            rustix::io::write(&source, b"abc").unwrap();
            let (sink, out) = match to_stream {
                true => std::os::unix::net::UnixStream::pair()
                    .map(|(a, b)| (a.into(), b.into()))
                    .unwrap(),
                false => pair(Sort::Unix),
            };
            let request = Request {
                size: 32.into(),
                ..request.clone()
            };
            let report = run(&source, &sink, request).report;
            assert_eq!((report.ended, report.written), (Ended::Size, 32));
            drop(sink);
            let digest = all(&out).concat();
            let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(digest, DIGEST, "{report:?}");
        }
    }
}

/// SCTP returns the length that it has copied, not that of the message.
#[test]
fn a_size_is_not_exceeded_if_the_length_is_unknown() {
    let name = "a_size_is_not_exceeded_if_the_length_is_unknown";
    let _dog = watchdog(name);
    if needs::missing(name, &[Need::Sctp]) {
        return;
    }
    let messages = [10, 50].map(pattern);
    for request in any_and_each(&BOTH) {
        for (size, moved) in [(59, 1), (60, 2)] {
            for to_stream in [false, true] {
                let (source, feed) = sockets::sctp().unwrap();
                messages.iter().for_each(|message| put(&feed, message));
                let (sink, out) = match to_stream {
                    true => std::os::unix::net::UnixStream::pair()
                        .map(|(a, b)| (a.into(), b.into()))
                        .unwrap(),
                    false => pair(Sort::Unix),
                };
                let request = Request {
                    size: Size::Bytes(size),
                    ..request.clone()
                };
                let report = run(&source, &sink, request).report;
                let what = format!("{size} {to_stream}: {report:?}");
                assert_eq!((report.ended, report.errno), (Ended::Size, None), "{what}");
                drop(sink);
                assert_eq!(all(&out).concat(), messages[..moved].concat(), "{what}");
                assert_eq!(all(&source).concat(), messages[moved..].concat(), "{what}");
            }
        }
    }
}

/// An ICMP socket also returns the length that it has copied.
#[test]
fn a_size_is_not_exceeded_by_an_answer_to_a_ping() {
    let name = "a_size_is_not_exceeded_by_an_answer_to_a_ping";
    let _dog = watchdog(name);
    if needs::missing(name, &[Need::Ping]) {
        return;
    }
    // The type, the code, and fields that the kernel sets.
    let requests = [20, 60]
        .map(|length| [[8, 0, 0, 0, 0, 0, 0, 0].as_slice(), &pattern(length)[8..]].concat());
    for request in any_and_each(&BOTH) {
        for (size, moved) in [(79, 1), (80, 2)] {
            let source = sockets::ping().unwrap();
            requests.iter().for_each(|message| put(&source, message));
            let (reader, sink) = std::io::pipe().unwrap();
            let request = Request {
                size: Size::Bytes(size),
                ..request.clone()
            };
            let report = run(&source, OwnedFd::from(sink), request).report;
            let what = format!("{size}: {report:?}");
            assert_eq!((report.ended, report.errno), (Ended::Size, None), "{what}");
            let lengths = requests.each_ref().map(|message| message.len() as u64);
            assert_eq!(
                report.written,
                lengths[..moved].iter().sum::<u64>(),
                "{what}"
            );
            assert_eq!(report.truncated, 0, "{what}");
            let left = all(&source);
            assert_eq!(left.len(), requests.len() - moved, "{what}");
            let rest = requests[moved..].concat();
            assert_eq!(left.concat().get(8..), rest.get(8..), "{what}");
            drop(reader);
        }
    }
}
