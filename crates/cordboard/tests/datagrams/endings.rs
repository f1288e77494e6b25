//! How transfers of datagrams end, and what is handed back then.

use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use crate::common::datagrams::{BOTH, SORTS, Sort, all, idle, pair, put};
use crate::common::{self, any, content, only, pattern, run, watchdog};
use cordboard::DataPath::{self, Datagram, ReadWrite};
use cordboard::{
    Ended, Errno, Observer, Outcome, Progress, Request, Side, Stage, Stranded, Transfer, start,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown, sockopt};
use rustix::pipe::{PipeFlags, pipe_with};
use testkit::needs::{self, Need};

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
    assert_eq!(
        sockopt::socket_passcred(&source),
        Ok(false),
        "SO_PASSCRED has changed"
    );
    assert_eq!(all(&b), [&b"one"[..], b"", b"two"]);
    // If the option was set beforehand, it stays set.
    let (a, source) = pair(Sort::Seqpacket);
    sockopt::set_socket_passcred(&source, true).unwrap();
    put(&a, b"x");
    drop(a);
    run(&source, &sink, any());
    assert_eq!(sockopt::socket_passcred(&source), Ok(true));
}

/// How an empty record is read: the allowed paths, whether a stage inspects, and the
/// path that is taken.
const MET: [(Option<DataPath>, bool, DataPath); 3] = [
    (Some(Datagram), false, Datagram),
    (Some(ReadWrite), false, ReadWrite),
    (None, true, ReadWrite),
];

/// Moves all of the source, on an engine or on the calling thread.
fn moved(source: &OwnedFd, sink: &OwnedFd, request: Request, stage: bool, engine: bool) -> Outcome {
    let own = |fd: &OwnedFd| fd.try_clone().unwrap();
    let mut transfer = Transfer::owning(own(source), own(sink), request).unwrap();
    if stage {
        transfer = transfer.stage(Stage::count()).unwrap();
    }
    match engine {
        true => transfer.start().unwrap().wait(),
        false => transfer.run(),
    }
}

/// The written bytes, in the pieces that a reader of this sink gets.
fn pieces(reader: &OwnedFd) -> Vec<Vec<u8>> {
    let (mut all, mut some) = (Vec::new(), [0; 100]);
    loop {
        match rustix::io::read(reader, &mut some).unwrap() {
            0 => return all,
            n => all.push(some[..n].to_vec()),
        }
    }
}

#[test]
fn an_empty_record_ends_nothing_by_any_path() {
    let _dog = watchdog("an_empty_record_ends_nothing_by_any_path");
    let records = [&b""[..], b"one", b"", b"", b"two", b""];
    for engine in [false, true] {
        for (allowed, stage, taken) in MET {
            let request = || allowed.map_or_else(any, |path| only(&[path]));
            let case = format!("{taken}, stage {stage}, engine {engine}");
            let filled = || {
                let (a, source) = pair(Sort::Seqpacket);
                records.iter().for_each(|bytes| put(&a, bytes));
                source
            };
            let check = |source: &OwnedFd, sink: &OwnedFd, request: Request, taken: DataPath| {
                let outcome = moved(source, sink, request, stage, engine);
                let report = &outcome.report;
                assert_eq!(
                    (report.ended, report.read, report.written, report.stranded),
                    (Ended::Eof, 6, 6, 0),
                    "{case}: {report:?}"
                );
                assert_eq!(report.path, [taken], "{case}: {report:?}");
                assert_eq!(sockopt::socket_passcred(source), Ok(false), "{case}");
                let seen = report.stages.first().map(|stage| stage.bytes_in);
                assert_eq!(seen, stage.then_some(6), "{case}");
            };
            for sort in [Sort::Seqpacket, Sort::Unix] {
                let (sink, b) = pair(sort);
                check(&filled(), &sink, request(), taken);
                assert_eq!(all(&b), records, "{case} to {sort:?}");
            }
            let (sink, b) = UnixStream::pair().unwrap();
            let sink = OwnedFd::from(sink);
            check(&filled(), &sink, request(), taken);
            drop(sink);
            assert_eq!(pieces(&b.into()).concat(), b"onetwo", "{case}");
            // Its reader gets packets, none of them empty.
            if allowed != Some(Datagram) {
                let flags = PipeFlags::CLOEXEC | PipeFlags::DIRECT;
                let (b, sink) = pipe_with(flags).unwrap();
                check(&filled(), &sink, any(), ReadWrite);
                drop(sink);
                assert_eq!(pieces(&b), [b"one", b"two"], "{case}");
            }
        }
    }
}

/// Another process that shares the socket has cleared `SO_PASSCRED`.
#[test]
fn an_empty_record_without_credentials_ends_nothing() {
    let _dog = watchdog("an_empty_record_without_credentials_ends_nothing");
    for path in BOTH {
        let ((a, source), (sink, b)) = (pair(Sort::Seqpacket), pair(Sort::Seqpacket));
        let other = source.try_clone().unwrap();
        let running = start(source, sink, only(&[path])).unwrap();
        let next = || {
            let mut some = [0; 100];
            let n = recv(&b, &mut some[..], RecvFlags::empty()).unwrap().1;
            some[..n].to_vec()
        };
        put(&a, b"one");
        assert_eq!(next(), b"one", "{path}");
        sockopt::set_socket_passcred(&other, false).unwrap();
        put(&a, b"");
        put(&a, b"two");
        assert_eq!((next(), next()), (b"".to_vec(), b"two".to_vec()), "{path}");
        drop(a);
        let report = running.wait().report;
        assert_eq!(
            (report.ended, report.written),
            (Ended::Eof, 6),
            "{path}: {report:?}"
        );
        assert_eq!(report.path, [path]);
    }
}

#[test]
fn a_socket_whose_reading_was_shut_down_has_ended() {
    let _dog = watchdog("a_socket_whose_reading_was_shut_down_has_ended");
    use testkit::refuse::{POLL, PPOLL, apart, refuse};
    for sort in SORTS {
        for path in BOTH {
            // The call that shows it may be refused.
            let looks = [PPOLL, POLL];
            for (engine, refused) in [(false, 0), (true, 0), (false, 1), (false, 2)] {
                let ((a, source), (sink, b)) = (pair(sort), pair(Sort::Unix));
                put(&a, b"last words");
                shutdown(&source, Shutdown::Read).unwrap();
                let report = apart(|| {
                    refuse(&looks[..refused].concat(), libc::EPERM);
                    moved(&source, &sink, only(&[path]), false, engine).report
                });
                let case = format!("{sort:?} by {path}, {engine} {refused}: {report:?}");
                assert_eq!(report.ended, Ended::Eof, "{case}");
                let got = all(&b);
                assert!(got.len() <= 1, "{case}: {got:?}");
                assert_eq!(got.concat().len() as u64, report.written, "{case}");
            }
        }
    }
}

/// Reading is shut down, and no call distinguishes an empty first message from the
/// end. The messages behind one or two empty messages are not lost.
#[test]
fn what_is_behind_an_empty_message_is_not_lost_at_the_end() {
    use testkit::refuse::{apart, refuse};
    let _dog = watchdog("what_is_behind_an_empty_message_is_not_lost_at_the_end");
    let messages = [&b"one"[..], b"", b"", b"two", b"", b"three"];
    for sort in SORTS {
        for path in BOTH {
            for stream in [false, true] {
                let (a, source) = pair(sort);
                messages.iter().for_each(|bytes| put(&a, bytes));
                match sort {
                    Sort::Seqpacket => drop(a),
                    _ => shutdown(&source, Shutdown::Read).unwrap(),
                }
                let (sink, b) = match stream {
                    true => UnixStream::pair()
                        .map(|(a, b)| (a.into(), b.into()))
                        .unwrap(),
                    false => pair(Sort::Unix),
                };
                let report = apart(|| {
                    // Without credentials.
                    refuse(&[libc::SYS_setsockopt], libc::EPERM);
                    moved(&source, &sink, only(&[path]), false, false).report
                });
                drop(sink);
                let case = format!("{sort:?} by {path}, stream {stream}: {report:?}");
                assert_eq!(report.ended, Ended::Eof, "{case}");
                assert_eq!((report.read, report.written), (11, 11), "{case}");
                match stream {
                    true => assert_eq!(pieces(&b).concat(), b"onetwothree", "{case}"),
                    false => assert_eq!(all(&b), messages, "{case}"),
                }
            }
        }
    }
}

/// Sends a datagram that has no receiver, and waits until its refusal is pending: the
/// loopback device may deliver it later (seen on Linux 6.1).
fn send_refused(socket: &impl AsFd, bytes: &[u8]) {
    assert!(send(socket, bytes, SendFlags::empty()).is_ok());
    let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::empty())];
    rustix::event::poll(&mut fds, None).unwrap();
    assert!(fds[0].revents().contains(PollFlags::ERR));
}

#[test]
fn nobody_listens() {
    let _dog = watchdog("nobody_listens");
    for path in BOTH {
        // The sink: the first datagram is sent, and the answer to it fails the next
        // one.
        let (a, source) = pair(Sort::Unix);
        let (sink, gone) = pair(Sort::Udp);
        drop(gone);
        send_refused(&sink, b"");
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
        send_refused(&source, b"anybody there?");
        let report = run(&source, tempfile::tempfile().unwrap(), only(&[path])).report;
        assert_eq!(
            report.errno,
            Some(Errno::ECONNREFUSED),
            "{path}: {report:?}"
        );
        assert_eq!((report.failed, report.read), (Some(Side::Source), 0));
    }
}

/// Messages of no bytes are handed back like any other.
#[test]
fn empty_ones_that_the_sink_refuses_are_handed_back() {
    let _dog = watchdog("empty_ones_that_the_sink_refuses_are_handed_back");
    for path in BOTH {
        let (a, source) = pair(Sort::Unix);
        let (sink, gone) = pair(Sort::Udp);
        drop(gone);
        send_refused(&sink, b"");
        put(&a, b"");
        put(&a, b"");
        let outcome = run(&source, &sink, only(&[path]));
        let report = &outcome.report;
        assert_eq!(
            report.errno,
            Some(Errno::ECONNREFUSED),
            "{path}: {report:?}"
        );
        let Some(Stranded::Datagrams(mut back)) = outcome.stranded else {
            panic!("{path}: {report:?}");
        };
        back.extend(all(&source));
        assert_eq!(back, [b"", b""], "{path}");
    }
}

/// A datagram that is too long for the sink is dropped and counted, and the others continue.
#[test]
fn too_long_for_the_sink_is_dropped_and_counted() {
    let _dog = watchdog("too_long_for_the_sink_is_dropped_and_counted");
    for path in BOTH {
        let ((a, source), (sink, b)) = (pair(Sort::Unix), pair(Sort::Udp));
        let sent = [10, 70_000, 20, 0, 80_000, 30].map(pattern);
        sent.iter().for_each(|bytes| put(&a, bytes));
        let request = Request {
            idle: idle(),
            ..only(&[path])
        };
        let outcome = run(&source, &sink, request);
        let report = &outcome.report;
        assert_eq!(report.ended, Ended::Idle, "{path}: {report:?}");
        let dropped = (report.dropped.datagrams, report.dropped.bytes);
        assert_eq!(dropped, (2, 150_000), "{path}");
        assert_eq!((report.read, report.written), (150_060, 60), "{path}");
        assert_eq!((report.stranded, &outcome.stranded.is_none()), (0, &true));
        assert_eq!(all(&b), [10, 20, 0, 30].map(pattern), "{path}");
    }
}

/// Keeps the last progress.
struct Last(Option<Progress>);

impl Observer for Last {
    fn progress(&mut self, progress: &Progress) {
        self.0 = Some(*progress);
    }
}

/// A datagram that was dropped is not in transit.
#[test]
fn what_is_dropped_is_not_in_transit() {
    let _dog = watchdog("what_is_dropped_is_not_in_transit");
    for path in BOTH {
        let ((a, source), (sink, _b)) = (pair(Sort::Unix), pair(Sort::Udp));
        let send = || {
            [10, 70_000]
                .map(pattern)
                .iter()
                .for_each(|bytes| put(&a, bytes))
        };
        let request = Request {
            idle: idle(),
            ..only(&[path])
        };
        send();
        let mut last = Last(None);
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request.clone()).unwrap();
        transfer.observe(&mut last).run();
        let last = last.0.unwrap();
        let seen = (last.read, last.written, last.dropped, last.in_transit());
        send();
        let running = start(&source, &sink, request).unwrap();
        let mut end = [PollFd::from_borrowed_fd(
            running.fd().unwrap(),
            PollFlags::IN,
        )];
        poll(&mut end, None).unwrap();
        let status = running.status();
        assert_eq!(
            (seen.0, seen.1, seen.3),
            (70_010, 10, 0),
            "{path}: {last:?}"
        );
        assert_eq!((seen.2.datagrams, seen.2.bytes), (1, 70_000), "{path}");
        let on_engine = (
            status.read,
            status.written,
            status.dropped,
            status.in_transit(),
        );
        assert_eq!(on_engine, seen, "{path}: {status:?}");
    }
}

/// At the cancel, the start of a datagram has been read from a stream.
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
        // The bytes arrive once.
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

/// The end of a VSOCK connection reads as 0 bytes, without `FIONREAD` before Linux 6.17.
#[test]
fn the_end_of_a_vsock_connection_is_no_empty_message() {
    let name = "the_end_of_a_vsock_connection_is_no_empty_message";
    let _dog = watchdog(name);
    if needs::missing(name, &[Need::Vsock]) {
        return;
    }
    for request in common::any_and_each(&BOTH) {
        let (source, feed) = testkit::sockets::vsock().unwrap();
        put(&feed, b"one");
        drop(feed);
        let (sink, out) = pair(Sort::Unix);
        let report = run(&source, &sink, request.clone()).report;
        assert_eq!(
            (report.ended, report.written),
            (Ended::Eof, 3),
            "{report:?}"
        );
        assert_eq!(all(&out), [b"one"]);
        let (source, feed) = testkit::sockets::vsock().unwrap();
        put(&feed, b"one");
        drop(feed);
        let file = common::file_with(b"");
        let report = run(&source, OwnedFd::from(file.try_clone().unwrap()), request).report;
        assert_eq!(
            (report.ended, report.written),
            (Ended::Eof, 3),
            "{report:?}"
        );
        assert_eq!(content(&file), b"one");
    }
}

/// As `write(2)` does, so that the receiver is shown the end of each record.
#[test]
fn a_record_of_vsock_arrives_with_its_end() {
    let name = "a_record_of_vsock_arrives_with_its_end";
    let _dog = watchdog(name);
    if needs::missing(name, &[Need::Vsock]) {
        return;
    }
    for request in common::any_and_each(&BOTH) {
        let (feed, source) = pair(Sort::Unix);
        let (sink, out) = testkit::sockets::vsock().unwrap();
        put(&feed, b"one");
        put(&feed, b"two");
        let request = Request {
            size: 6.into(),
            ..request
        };
        let report = run(&source, &sink, request).report;
        assert_eq!(report.ended, Ended::Size, "{report:?}");
        for bytes in ["one", "two"] {
            let mut room = [0; 8];
            let mut parts = [std::io::IoSliceMut::new(&mut room)];
            let mut none = rustix::net::RecvAncillaryBuffer::default();
            let none = &mut none;
            let got = rustix::net::recvmsg(&out, &mut parts, none, RecvFlags::DONTWAIT).unwrap();
            assert!(got.flags.contains(rustix::net::ReturnFlags::EOR));
            assert_eq!(&room[..got.bytes], bytes.as_bytes());
        }
    }
}
