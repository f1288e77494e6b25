//! Packets that do not fit into the rest of a size, or into a block, if few
//! descriptors or calls are available to split one.

use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, OwnedFd};

use cordboard::{Ended, Engine, Errno, Report, Request, Size, Stage, Transfer};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::pipe;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use testkit::needs::Need;
use testkit::refuse::{apart, refuse};

use super::{packet_pipe, write};
use crate::common::{self, any, pattern, read_packets, watchdog};

/// Sinks and stages with which the bytes are read into a buffer.
const WAYS: [&str; 6] = ["call", "thread", "stage", "engine", "append", "datagrams"];
const PACKET: usize = 4000;

/// Returns (the end from which the bytes are read, the transfer's sink).
fn sink_of(way: &str) -> (OwnedFd, OwnedFd) {
    match way {
        "append" => {
            let file = tempfile::tempfile().unwrap();
            fcntl_setfl(&file, fcntl_getfl(&file).unwrap() | OFlags::APPEND).unwrap();
            (file.try_clone().unwrap().into(), file.into())
        }
        "datagrams" => {
            let (to, from) = std::os::unix::net::UnixDatagram::pair().unwrap();
            (from.into(), to.into())
        }
        _ => pipe().unwrap(),
    }
}

fn content(way: &str, whole: bool, out: OwnedFd) -> Vec<u8> {
    match way {
        "append" => common::content(&out.into()),
        "datagrams" => {
            let all = common::datagrams::all(&out);
            // No datagram has parts of two packets, unless that is expected.
            let lengths: Vec<usize> = all.iter().map(Vec::len).collect();
            assert!(
                !whole || lengths.iter().all(|n| *n <= PACKET),
                "{lengths:?}"
            );
            all.concat()
        }
        _ => read_packets(out),
    }
}

/// Moves three packets up to this size, at most a block at a time, with this many
/// descriptors left. Checks the rest of the source.
fn check(way: &str, size: usize, block: Option<usize>, spare: Option<u64>) -> Report {
    // With a block, one datagram may have parts of two.
    check_as(block.is_none(), way, size, block, spare)
}

/// `whole`: no datagram has parts of two packets.
fn check_as(
    whole: bool,
    way: &str,
    size: usize,
    block: Option<usize>,
    spare: Option<u64>,
) -> Report {
    let data = pattern(3 * PACKET);
    let (source, feed) = packet_pipe();
    write(&feed, &[PACKET; 3], &data);
    drop(feed);
    let (out, sink) = sink_of(way);
    let request = Request {
        size: Size::Bytes(size as u64),
        block: block.and_then(NonZeroUsize::new),
        ..any()
    };
    let engine = (way == "engine").then(|| Engine::new(Default::default()).unwrap());
    let calls = way == "call" && block.is_none();
    let own = (!calls).then(|| [&source, &sink].map(|fd| fd.try_clone().unwrap()));
    let before = getrlimit(Resource::Nofile);
    if let Some(spare) = spare {
        let next = source.try_clone().unwrap().as_raw_fd() as u64;
        let few = Rlimit {
            current: Some(next + spare),
            ..before
        };
        setrlimit(Resource::Nofile, few).unwrap();
    }
    let transfer = || {
        let [from, to] = own.unwrap();
        Transfer::owning(from, to, request).unwrap()
    };
    let report = match (way, engine) {
        (_, Some(engine)) => engine.start(transfer()).unwrap().wait().report,
        ("stage", _) => transfer().stage(Stage::count()).unwrap().run().report,
        _ if calls => match cordboard::splice(&source, &sink, Size::Bytes(size as u64)) {
            Ok(report) => report,
            Err(failure) => *failure.report,
        },
        _ => transfer().run().report,
    };
    setrlimit(Resource::Nofile, before).unwrap();
    drop(sink);
    let case = format!("{way} {size} {block:?} {spare:?}: {report:?}");
    let (read, written) = (report.read as usize, report.written as usize);
    assert_eq!((read, report.stranded), (written, 0), "{case}");
    let got = content(way, whole, out);
    assert!(got == data[..written], "{case}");
    let rest = read_packets(source);
    assert_eq!(rest.len(), data.len() - read, "{case}");
    assert!(rest == data[read..], "{case}");
    report
}

/// Without descriptors for a second pipe.
#[test]
fn few_descriptors_cut_no_packet() {
    let name = "few_descriptors_cut_no_packet";
    let _dog = watchdog(name);
    if !common::alone!() || testkit::needs::missing(name, &[Need::Vmsplice]) {
        return;
    }
    // The fewest first: the pool keeps pipes.
    for spare in 0..=6 {
        for way in WAYS {
            for size in [1000, 5000, 9000, 12_000] {
                for block in [None, Some(1500), Some(4096)] {
                    let report = check(way, size, block, Some(spare));
                    let ended = (report.ended, report.written);
                    assert_eq!(ended, (Ended::Size, size as u64), "{way} {spare}");
                }
            }
        }
    }
}

/// Without descriptors and `vmsplice(2)`: a short read shows that the bytes behind
/// it are a packet, and a packet that does not fit stays.
#[test]
fn no_packet_is_cut_behind_another() {
    let name = "no_packet_is_cut_behind_another";
    let _dog = watchdog(name);
    if !common::alone!() {
        return;
    }
    for way in WAYS {
        for (size, expected) in [(5000, 4000), (9000, 8000), (12_000, 12_000)] {
            let report = apart(|| {
                refuse(&[libc::SYS_vmsplice], libc::EPERM);
                check(way, size, None, Some(0))
            });
            let ended = (report.ended, report.written);
            assert_eq!(ended, (Ended::Size, expected), "{way} {size}");
        }
    }
}

/// If `splice(2)` is refused, `vmsplice(2)` takes a part of a packet. If both are
/// refused, a packet that does not fit stays.
#[test]
fn refused_calls_cut_no_packet() {
    let name = "refused_calls_cut_no_packet";
    let _dog = watchdog(name);
    if testkit::needs::missing(name, &[Need::Vmsplice]) {
        return;
    }
    for errno in [libc::EPERM, libc::ENOSYS] {
        for way in WAYS {
            for (size, fitting) in [(1000, 0), (5000, 4000), (9000, 8000), (12_000, 12_000)] {
                let mut calls = vec![libc::SYS_splice];
                for (call, expected) in [(libc::SYS_vmsplice, size), (libc::SYS_tee, fitting)] {
                    // The engine's threads inherit the filter.
                    let report = apart(|| {
                        refuse(&calls, errno);
                        check(way, size, None, None)
                    });
                    calls.push(call);
                    let case = format!("{way} {size} {errno} {report:?}");
                    assert_eq!(report.written, expected as u64, "{case}");
                    let failed = (expected == 0).then_some(Errno::EMSGSIZE);
                    assert_eq!(report.errno, failed, "{case}");
                }
            }
        }
    }
}

/// The same with `FIONREAD` refused as well, and with any two of the calls below.
#[test]
fn packets_that_nobody_counts_are_not_cut() {
    let name = "packets_that_nobody_counts_are_not_cut";
    let _dog = watchdog(name);
    if testkit::needs::missing(name, &[Need::Splice, Need::Vmsplice]) {
        return;
    }
    const CALLS: [libc::c_long; 4] = [
        libc::SYS_splice,
        libc::SYS_tee,
        libc::SYS_vmsplice,
        libc::SYS_readv,
    ];
    let sets = (0..16u32).filter(|set| set.count_ones() <= 2).map(|set| {
        let calls = CALLS.iter().enumerate();
        let refused = calls.filter(|(at, _)| set & 1 << at != 0);
        refused.map(|(_, call)| *call).collect::<Vec<_>>()
    });
    for (calls, errno) in sets.flat_map(|set| [(set.clone(), libc::EPERM), (set, libc::ENOSYS)]) {
        let inspected = ![libc::SYS_tee, libc::SYS_readv]
            .iter()
            .any(|c| calls.contains(c));
        for way in WAYS {
            for size in [1000, 9000, 12_000] {
                for block in [None, Some(1000), Some(4096)] {
                    let report = apart(|| {
                        refuse(&[&[libc::SYS_ioctl][..], &calls].concat(), errno);
                        check_as(inspected && block.is_none(), way, size, block, None)
                    });
                    let case = format!("{calls:?} {errno} {way} {size} {block:?} {report:?}");
                    match report.errno {
                        None => assert_eq!(report.ended, Ended::Size, "{case}"),
                        Some(errno) => assert_eq!(errno, Errno::EMSGSIZE, "{case}"),
                    }
                    // The remaining one of these calls takes a part of a packet,
                    // unless the sink's reader expects whole packets.
                    let part = calls != [libc::SYS_splice, libc::SYS_vmsplice];
                    if part && way != "datagrams" {
                        assert_eq!(report.written, size as u64, "{case}");
                    }
                }
            }
        }
    }
}
