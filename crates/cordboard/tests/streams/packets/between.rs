//! Packets that are moved into a pipe whose reader expects a stream: through a
//! socket pair, or inspected if no socket pair is available.

use std::os::fd::{AsFd, OwnedFd};

use cordboard::DataPath::{ReadWrite, Splice};
use cordboard::{Ended, Report, Request, Size, start};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::pipe;
use testkit::needs::Need;

use super::{WAYS, by, packet_pipe, read_shortly, write};
use crate::common::{self, any, pattern, piped, run, watchdog};

fn says_packets(report: &Report) -> bool {
    let mut all = report.declined.iter();
    all.any(|d| d.path == Splice && d.why.to_string().contains("packets"))
}

fn packets(pair: bool) {
    let data = pattern(9000);
    for lengths in [&[1000; 6][..], &[1, 1000, 1000, 3000], &[4096, 1, 2, 4096]] {
        let size = lengths.iter().sum();
        for way in WAYS {
            if way == "call of a size" && (lengths[0] < 700 || !common::is_open(Splice)) {
                continue;
            }
            let (source, feed) = packet_pipe();
            write(&feed, lengths, &data);
            drop(feed);
            let (out, sink) = pipe().unwrap();
            let report = by(way, source.as_fd(), sink.as_fd(), size);
            drop(sink);
            assert_eq!((report.read, report.written), (size as u64, size as u64));
            let inspected = !pair || !common::is_open(Splice);
            assert_eq!(says_packets(&report), inspected, "{way}: {report:?}");
            assert_eq!(report.path, carried(pair), "{way}");
            assert!(read_shortly(out) == data[..size], "{way}, {lengths:?}");
        }
    }
}

/// The source is spliced as long as it is a stream. Its mode can change at any time
/// (`fcntl(2)`, `F_SETFL`).
fn packets_turned_on(pair: bool) {
    let data = pattern(6000);
    let (source, feed) = pipe().unwrap();
    let (out, sink) = pipe().unwrap();
    let mut first = Vec::new();
    let path = common::carried_by(&[Splice, ReadWrite]);
    for way in ["call of a size", "engine"] {
        write(&feed, &[1000; 5], &data);
        let report = match way {
            "engine" => {
                let own = |fd: &OwnedFd| fd.try_clone().unwrap();
                let request = Request {
                    size: Size::Bytes(5000),
                    ..any()
                };
                let running = start(own(&source), own(&sink), request).unwrap();
                running.wait().report
            }
            _ => by(way, source.as_fd(), sink.as_fd(), 5000),
        };
        assert_eq!((report.written, &report.path[..]), (5000, &path[..]));
        let mut got = vec![0; 5000];
        assert_eq!(rustix::io::read(&out, &mut got), Ok(5000));
        first.extend(got);
    }
    assert!(first[..5000] == data[..5000] && first[5000..] == data[..5000]);
    let flags = fcntl_getfl(&feed).unwrap();
    fcntl_setfl(&feed, flags | OFlags::DIRECT).unwrap();
    write(&feed, &[1000; 3], &data[3000..]);
    drop(feed);
    let report = run(&source, &sink, any()).report;
    drop(sink);
    assert_eq!((report.ended, report.written), (Ended::Eof, 3000));
    assert_eq!(report.path, carried(pair));
    assert!(read_shortly(out) == data[3000..]);
}

/// Packets between bytes of a stream in the same pipe stay whole.
fn packets_behind_a_stream(pair: bool) {
    let data = pattern(200_000);
    let parts = |lengths: &[usize], packets| (lengths.to_vec(), packets);
    let cases = [
        vec![parts(&[3000], false), parts(&[1000; 3], true)],
        vec![
            parts(&[4096], false),
            parts(&[4096, 1, 2], true),
            parts(&[1], false),
            parts(&[700; 5], true),
            parts(&[9000], false),
        ],
        // More buffers than a pipe has by default.
        vec![parts(&[4096; 40], false), parts(&[500; 8], true)],
    ];
    for case in cases {
        let size = case.iter().flat_map(|(lengths, _)| lengths).sum();
        for way in WAYS {
            let (source, feed) = pipe().unwrap();
            rustix::pipe::fcntl_setpipe_size(&feed, 1 << 18).unwrap();
            let (out, sink) = pipe().unwrap();
            rustix::pipe::fcntl_setpipe_size(&sink, 1 << 18).unwrap();
            let plain = fcntl_getfl(&feed).unwrap();
            let mut at = 0;
            for (lengths, packets) in &case {
                let mode = if *packets {
                    plain | OFlags::DIRECT
                } else {
                    plain
                };
                fcntl_setfl(&feed, mode).unwrap();
                write(&feed, lengths, &data[at..]);
                at += lengths.iter().sum::<usize>();
            }
            drop(feed);
            let report = by(way, source.as_fd(), sink.as_fd(), size);
            drop(sink);
            assert_eq!((report.read, report.written), (size as u64, size as u64));
            assert!(
                report.path.contains(carried(pair).last().unwrap()),
                "{way}: {report:?}"
            );
            assert!(read_shortly(out) == data[..size], "{way}, {case:?}");
        }
    }
}

/// The inspection fails, from the first or the second time on: read/write carries
/// the bytes, and no call blocks.
fn an_inspection_that_is_refused() {
    if testkit::needs::missing("an inspection", &[Need::Splice]) {
        return;
    }
    // More bytes than one inspection covers.
    let data = pattern(3 << 20);
    let errnos = [
        ("ENOSYS", libc::ENOSYS),
        ("EPERM", libc::EPERM),
        ("ENOMEM", libc::ENOMEM),
        ("EIO", libc::EIO),
    ];
    for ((name, errno), allowed) in errnos.into_iter().flat_map(|e| [(e, 0), (e, 1)]) {
        let refuse = |count| (count >= allowed).then_some(errno);
        let Some((looks, report, got)) = piped(&data, &[libc::SYS_tee], refuse) else {
            return testkit::skip::report("an inspection", "no seccomp_unotify(2) here");
        };
        assert_eq!((report.ended, report.written), (Ended::Eof, 3 << 20));
        // The call is not tried again.
        assert_eq!(looks, allowed + 1, "{name}: {report:?}");
        let path = &[Splice, ReadWrite][usize::from(allowed == 0)..];
        assert_eq!(report.path, path, "{report:?}");
        let declined = report.declined.iter().find(|d| d.path == Splice).unwrap();
        assert_eq!(declined.why.to_string(), name);
        assert!(got == data);
    }
}

/// The path that carries packets to a stream.
fn carried(pair: bool) -> Vec<cordboard::DataPath> {
    match pair {
        true => common::carried_by(&[Splice, ReadWrite]).to_vec(),
        false => vec![ReadWrite],
    }
}

#[test]
fn packets_go_on_as_a_stream() {
    let _dog = watchdog("packets_go_on_as_a_stream");
    packets(true);
}

#[test]
fn a_writer_may_turn_packets_on() {
    let _dog = watchdog("a_writer_may_turn_packets_on");
    packets_turned_on(true);
}

#[test]
fn packets_behind_a_stream_are_whole() {
    let _dog = watchdog("packets_behind_a_stream_are_whole");
    packets_behind_a_stream(true);
}

/// A filter refuses `socketpair(2)`.
#[test]
fn without_a_socket_pair_packets_are_inspected() {
    if !common::alone!() {
        return;
    }
    common::refuse_own_socket_pairs();
    packets(false);
    packets_turned_on(false);
    packets_behind_a_stream(false);
    an_inspection_that_is_refused();
}

/// Other processes read the source too, and its writer turns packet mode on and off.
/// The reader of the sink always gets a stream.
#[test]
fn packets_are_a_stream_beside_other_readers() {
    let name = "packets_are_a_stream_beside_other_readers";
    let _dog = watchdog(name);
    if testkit::needs::missing(name, &[Need::Splice]) {
        return;
    }
    const LENGTH: usize = 4000;
    const WRITES: usize = 500;
    for round in 0..8 {
        let (source, feed) = pipe().unwrap();
        let (out, sink) = pipe().unwrap();
        let other = source.try_clone().unwrap();
        let (through, theirs) = std::thread::scope(|scope| {
            scope.spawn(move || {
                let plain = fcntl_getfl(&feed).unwrap();
                for i in 0..WRITES {
                    let on = (i / 7 + round) % 2 == 0;
                    let mode = if on { plain | OFlags::DIRECT } else { plain };
                    fcntl_setfl(&feed, mode).unwrap();
                    write(&feed, &[LENGTH], &[(i % 251) as u8; LENGTH]);
                }
            });
            let theirs = scope.spawn(move || {
                // Reads a limited number of times, so that bytes are left for the
                // transfer.
                let (mut all, mut packet) = (Vec::new(), [0; 65_536]);
                while all.len() < WRITES * LENGTH / 4 {
                    match rustix::io::read(&other, &mut packet).unwrap() {
                        0 => break,
                        n => all.extend_from_slice(&packet[..n]),
                    }
                }
                all
            });
            let through = scope.spawn(move || read_shortly(out));
            let report = run(&source, &sink, any()).report;
            drop(sink);
            assert_eq!(
                (report.ended, &report.path[..]),
                (Ended::Eof, &[Splice][..])
            );
            let (through, theirs) = (through.join().unwrap(), theirs.join().unwrap());
            assert_eq!(report.written, through.len() as u64, "{report:?}");
            (through, theirs)
        });
        let mut counts = [0; 251];
        through
            .iter()
            .chain(&theirs)
            .for_each(|byte| counts[usize::from(*byte)] += 1);
        let expected = |byte: usize| (byte..WRITES).step_by(251).count() * LENGTH;
        assert!(
            (0..251).all(|byte| counts[byte] == expected(byte)),
            "{round}"
        );
    }
}

/// The sink has room for fewer bytes than were read. The rest waits for room, and is
/// handed back if the transfer ends first.
#[test]
fn what_the_sink_does_not_take_is_handed_back() {
    let name = "what_the_sink_does_not_take_is_handed_back";
    let _dog = watchdog(name);
    if testkit::needs::missing(name, &[Need::Splice]) {
        return;
    }
    let data = pattern(40 * 100);
    // A free page takes fewer bytes from small buffers than from a full page, so a
    // pipe with one free page has room for fewer bytes than were read.
    let (source, feed) = packet_pipe();
    rustix::pipe::fcntl_setpipe_size(&feed, 1 << 18).unwrap();
    write(&feed, &[100; 40], &data);
    let (out, sink) = pipe().unwrap();
    let before = vec![0; rustix::pipe::fcntl_getpipe_size(&sink).unwrap() - 4096];
    write(&sink, &[before.len()], &before);
    let request = Request {
        idle: common::datagrams::idle(),
        ..any()
    };
    let outcome = run(&source, &sink, request);
    let report = &outcome.report;
    assert_eq!(
        (report.ended, report.path.last()),
        (Ended::Idle, Some(&Splice)),
        "{report:?}"
    );
    assert!(report.written < report.read, "{report:?}");
    assert_eq!(report.stranded, report.read - report.written);
    let (read, written) = (report.read as usize, report.written as usize);
    let stranded = common::handed_back(outcome.stranded);
    assert!(stranded == data[written..read]);
    drop((sink, feed));
    assert!(read_shortly(out) == [&before, &data[..written]].concat());
    assert!(common::read_packets(source) == data[read..]);
}
