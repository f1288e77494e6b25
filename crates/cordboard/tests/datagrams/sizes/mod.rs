//! Datagrams of unusual sizes: blocks that do not match the writes, blocks larger
//! than memory, messages that the kernel joins or cuts.

mod ahead;
mod families;
mod joined;
mod memory;

use std::io::Write;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::common::datagrams::{BOTH, SORTS, Sort, all, idle, pair, put};
use crate::common::{self, content, file_with, meanwhile, only, pattern, position, run, watchdog};
use cordboard::{DataPath, Ended, Errno, Request, Side, Size, Stranded, Transfer};

fn option(fd: &OwnedFd, level: i32, name: i32, value: i32) -> Result<(), Errno> {
    let length = size_of::<i32>() as libc::socklen_t;
    let value = &raw const value;
    // SAFETY: the kernel reads `length` bytes, which is what an i32 has.
    match unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.cast(), length) } {
        0 => Ok(()),
        _ => Err(Errno::from_raw(
            std::io::Error::last_os_error().raw_os_error().unwrap(),
        )),
    }
}

/// Packets of a pipe stay apart, even if the rest of the size is shorter than the
/// longest possible packet. The last packet may be cut.
#[test]
fn packets_of_a_pipe_are_datagrams_whatever_the_size() {
    use rustix::pipe::{PipeFlags, pipe_with};
    let _dog = watchdog("packets_of_a_pipe_are_datagrams_whatever_the_size");
    let lengths = [1, 512, 10, 1500, 7];
    let data = pattern(lengths.iter().sum());
    let cases = [
        (None, &lengths[..]),
        (Some(100_000), &lengths),
        (Some(2031), &lengths),
        (Some(2030), &lengths),
        (Some(1000), &[1, 512, 10, 477]),
        (Some(513), &[1, 512]),
        (Some(1), &[1]),
    ];
    let mut sinks: Vec<_> = (BOTH.into_iter())
        .flat_map(|path| SORTS.map(|sort| (path, Some(sort))))
        .collect();
    sinks.push((DataPath::ReadWrite, None));
    for ((by, sort), (size, expected)) in
        (sinks.into_iter()).flat_map(|sink| cases.map(|case| (sink, case)))
    {
        if size == Some(1000) && !common::is_open(DataPath::Splice) {
            continue;
        }
        let (source, feed) = pipe_with(PipeFlags::DIRECT).unwrap();
        let mut at = 0;
        for length in lengths {
            rustix::io::write(&feed, &data[at..at + length]).unwrap();
            at += length;
        }
        drop(feed);
        let (sink, b) = match sort {
            Some(sort) => pair(sort),
            None => {
                let (reader, writer) = pipe_with(PipeFlags::DIRECT | PipeFlags::NONBLOCK).unwrap();
                (writer, reader)
            }
        };
        let request = Request {
            size: size.map_or(cordboard::Size::Eof, cordboard::Size::Bytes),
            ..only(&[by])
        };
        let report = run(&source, &sink, request).report;
        let got: Vec<usize> = match sort {
            Some(_) => all(&b).iter().map(Vec::len).collect(),
            None => std::iter::from_fn(|| rustix::io::read(&b, &mut [0; 4096]).ok()).collect(),
        };
        assert_eq!(got, expected, "{by} {sort:?} {size:?}: {report:?}");
        assert_eq!(report.written, expected.iter().sum::<usize>() as u64);
    }
}

#[test]
fn only_the_last_one_is_short_whatever_the_writes() {
    let _dog = watchdog("only_the_last_one_is_short_whatever_the_writes");
    for path in BOTH {
        for (writes, expected) in [
            (&[2500, 1500][..], &[1000, 1000, 1000, 1000][..]),
            (&[1, 998, 2, 5000], &[1000, 1000, 1000, 1000, 1000, 1000, 1]),
        ] {
            let (sink, b) = pair(Sort::Unix);
            let (source, mut feed) = std::io::pipe().unwrap();
            let data = pattern(writes.iter().sum());
            let request = Request {
                block: NonZeroUsize::new(1000),
                ..only(&[path])
            };
            let report = std::thread::scope(|scope| {
                let data = &data;
                scope.spawn(move || {
                    let mut at = 0;
                    for length in writes {
                        feed.write_all(&data[at..at + length]).unwrap();
                        at += length;
                        // The second transfer finds the first datagram taken.
                        std::thread::sleep(std::time::Duration::from_millis(10));
                    }
                });
                run(&source, &sink, request).report
            });
            assert_eq!(report.ended, Ended::Eof, "{path}: {report:?}");
            let got = all(&b);
            let lengths: Vec<_> = got.iter().map(Vec::len).collect();
            assert_eq!(lengths, expected, "{path}: {report:?}");
            assert!(got.concat() == data, "{path}");
        }
    }
}

/// A read of a file ends at the size that the file had when the read began.
#[test]
fn a_file_that_grows_is_cut_the_same_way() {
    let _dog = watchdog("a_file_that_grows_is_cut_the_same_way");
    for path in BOTH {
        let (sink, b) = pair(Sort::Unix);
        let data = pattern(7300);
        let source = file_with(&data[..3500]);
        let grow = || {
            std::os::unix::fs::FileExt::write_all_at(&source, &data[3500..], 3500).unwrap();
        };
        let mut grow = meanwhile(grow);
        let request = Request {
            block: NonZeroUsize::new(1000),
            ..only(&[path])
        };
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        let report = transfer.observe(&mut grow).run().report;
        let lengths: Vec<_> = all(&b).iter().map(Vec::len).collect();
        let (last, whole) = lengths.split_last().unwrap();
        assert!(whole.iter().all(|n| *n == 1000), "{path}: {lengths:?}");
        assert!(*last <= 1000, "{path}: {lengths:?}");
        assert_eq!(report.written, 7300, "{path}: {report:?}");
    }
}

#[test]
fn a_block_larger_than_any_memory() {
    let _dog = watchdog("a_block_larger_than_any_memory");
    for block in [usize::MAX, isize::MAX as usize, 1 << (usize::BITS * 5 / 8)] {
        for path in BOTH {
            let request = || Request {
                block: NonZeroUsize::new(block),
                ..only(&[path])
            };
            for sort in SORTS {
                let (sink, b) = pair(sort);
                let data = pattern(10_000);
                let report = run(file_with(&data), &sink, request()).report;
                assert_eq!(report.ended, Ended::Eof, "{sort:?} by {path}: {report:?}");
                assert!(all(&b) == [data], "{sort:?} by {path}");
            }
            // Longer than any datagram may be: the kernel refuses it.
            let (sink, b) = pair(Sort::Udp);
            let source = file_with(&pattern(70_000));
            let report = run(&source, &sink, request()).report;
            let failure = (report.failed, report.errno, report.written);
            let expected = (Some(Side::Sink), Some(Errno::EMSGSIZE), 0);
            assert_eq!(failure, expected, "{path}: {report:?}");
            assert_eq!((position(&source), all(&b).len()), (0, 0), "{path}");
            let sink = tempfile::tempfile().unwrap();
            let data = pattern(70_000);
            run(
                file_with(&data),
                &sink,
                Request {
                    block: NonZeroUsize::new(block),
                    ..only(&[cordboard::DataPath::ReadWrite])
                },
            );
            assert!(content(&sink) == data);
        }
    }
}

/// `UDP_GRO`, set by the owner of the socket, joins datagrams of one sender.
#[test]
fn what_the_kernel_has_joined_comes_apart_again() {
    let name = "what_the_kernel_has_joined_comes_apart_again";
    let _dog = watchdog(name);
    if testkit::needs::missing(name, &[testkit::needs::Need::JoinedDatagrams]) {
        return;
    }
    BOTH.into_iter().for_each(joined);
    // Before Linux 5.13 the option cannot be read.
    testkit::refuse::apart(|| {
        let (call, option) = (libc::SYS_getsockopt, libc::UDP_GRO as u32);
        testkit::refuse::refuse_where(call, 2, option, libc::ENOPROTOOPT);
        BOTH.into_iter().for_each(joined);
    });
}

fn joined(path: DataPath) {
    let ((a, source), (sink, b)) = (pair(Sort::Udp), pair(Sort::Unix));
    option(&source, libc::SOL_UDP, libc::UDP_GRO, 1).unwrap();
    let data = pattern(2500);
    put(&a, b"alone");
    option(&a, libc::SOL_UDP, libc::UDP_SEGMENT, 1000).unwrap();
    put(&a, &data);
    option(&a, libc::SOL_UDP, libc::UDP_SEGMENT, 0).unwrap();
    put(&a, b"");
    put(&a, b"last");
    let request = || Request {
        idle: idle(),
        ..only(&[path])
    };
    let report = run(&source, &sink, request()).report;
    assert_eq!(report.written, 2509, "{path}: {report:?}");
    let expected: [&[u8]; 6] = [
        b"alone",
        &data[..1000],
        &data[1000..2000],
        &data[2000..],
        b"",
        b"last",
    ];
    assert!(all(&b) == expected, "{path}: {report:?}");
    // Into a stream, in order. Datagrams that are handed back are apart too.
    option(&a, libc::SOL_UDP, libc::UDP_SEGMENT, 1000).unwrap();
    put(&a, &data);
    let sink = tempfile::tempfile().unwrap();
    run(&source, &sink, request());
    assert!(content(&sink) == data, "{path}");
    put(&a, &data);
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let Some(Stranded::Datagrams(back)) = run(&source, &full, request()).stranded else {
        panic!("{path}: nothing is handed back");
    };
    assert!(back == expected[1..4], "{path}");
}

/// Timestamps that the host has enabled do not hide that a message is empty.
#[test]
fn timestamps_beside_the_credentials() {
    let _dog = watchdog("timestamps_beside_the_credentials");
    let ((a, source), (sink, b)) = (pair(Sort::Seqpacket), pair(Sort::Seqpacket));
    option(&source, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1).unwrap();
    let software = libc::SOF_TIMESTAMPING_SOFTWARE | libc::SOF_TIMESTAMPING_RX_SOFTWARE;
    option(
        &source,
        libc::SOL_SOCKET,
        libc::SO_TIMESTAMPING,
        software as i32,
    )
    .unwrap();
    for bytes in [&b"one"[..], b"", b"two"] {
        put(&a, bytes);
    }
    drop(a);
    let report = run(&source, &sink, common::any()).report;
    assert_eq!(
        (report.ended, report.written),
        (Ended::Eof, 6),
        "{report:?}"
    );
    assert_eq!(all(&b), [&b"one"[..], b"", b"two"]);
}

/// Sends a datagram longer than an unprivileged sender can. Returns `false` if that
/// is not possible.
fn put_long(a: &OwnedFd, data: &[u8]) -> bool {
    if option(a, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, 32 << 20).is_err()
        || rustix::net::send(a, data, rustix::net::SendFlags::DONTWAIT).is_err()
    {
        testkit::skip::here("datagrams of a MiB take privilege and memory");
        return false;
    }
    true
}

/// Into another such socket, several in a batch; into a stream; up to a size; after a
/// wait.
#[test]
fn long_ones_arrive_whole() {
    let _dog = watchdog("long_ones_arrive_whole");
    for path in BOTH {
        for sort in [Sort::Unix, Sort::Seqpacket] {
            for length in [(1 << 20) + 4096 * 3, (4 << 20) + 5000] {
                let ((a, source), (sink, b)) = (pair(sort), pair(sort));
                option(&sink, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, 64 << 20).ok();
                let data = pattern(length);
                let parts = [&b"first"[..], &data, b"next", &data[1..], b"last"];
                if !parts.iter().all(|part| put_long(&a, part)) {
                    return;
                }
                let whole: u64 = parts.iter().map(|part| part.len() as u64).sum();
                let request = || Request {
                    idle: idle(),
                    ..only(&[path])
                };
                let report = run(&source, &sink, request()).report;
                let what = format!("{sort:?} {length} by {path}: {report:?}");
                assert_eq!((report.read, report.written), (whole, whole), "{what}");
                assert_eq!((report.truncated, report.errno), (0, None), "{what}");
                for part in parts {
                    let mut got = vec![0; length + 1];
                    let (_, n) =
                        rustix::net::recv(&b, &mut got[..], rustix::net::RecvFlags::DONTWAIT)
                            .unwrap();
                    assert!(got[..n] == *part, "{n} of {}, {what}", part.len());
                }
                // Into a stream, with a size for some of them.
                for size in [whole, whole - 1] {
                    if !parts.iter().all(|part| put_long(&a, part)) {
                        return;
                    }
                    let sink = tempfile::tempfile().unwrap();
                    let request = Request {
                        size: cordboard::Size::Bytes(size),
                        ..request()
                    };
                    let report = run(&source, &sink, request).report;
                    let what = format!("{sort:?} {size} by {path}: {report:?}");
                    let expected = match size == whole {
                        true => parts.concat(),
                        false => parts[..4].concat(),
                    };
                    assert_eq!(report.written, expected.len() as u64, "{what}");
                    assert_eq!((report.truncated, report.errno), (0, None), "{what}");
                    assert!(content(&sink) == expected, "{what}");
                    let rest = all(&source);
                    assert_eq!(rest.len(), usize::from(size < whole), "{what}");
                }
            }
        }
    }
}

/// Into another such socket or a file: datagrams that fit into the size are moved
/// whole, even a single one, and the next one stays whole in the source.
#[test]
fn a_size_cuts_no_long_one() {
    let _dog = watchdog("a_size_cuts_no_long_one");
    let long = pattern(3 << 20);
    let cases = (BOTH.into_iter())
        .flat_map(|path| [Sort::Unix, Sort::Seqpacket].map(|sort| (path, sort)))
        .flat_map(|(path, sort)| [false, true].map(|joins| (path, sort, joins)));
    for (path, sort, joins) in cases {
        for (parts, more, goes) in [
            (vec![&long[..]], 7 << 20, 1),
            (vec![&long], 0, 1),
            (vec![&long], -1, 0),
            (vec![&long], -(2 << 20), 0),
            (vec![&long], 300_000 - (3 << 20), 0),
            (vec![b"first", &long, b"next", &long, b"last"], 7 << 20, 5),
            (vec![b"first", &long, b"next", &long, b"last"], 0, 5),
            (vec![b"first", &long, b"next", &long, b"last"], -1, 4),
            (vec![b"first", &long, b"next", &long, b"last"], -5, 3),
            (
                vec![b"first", &long, b"next", &long, b"last"],
                -(4 << 20),
                1,
            ),
        ] {
            let ((a, source), (to, b)) = (pair(sort), pair(sort));
            option(&to, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, 64 << 20).ok();
            if !parts.iter().all(|part| put_long(&a, part)) {
                return;
            }
            let whole: usize = parts.iter().map(|part| part.len()).sum();
            let size = whole.checked_add_signed(more).unwrap() as u64;
            let request = Request {
                size: cordboard::Size::Bytes(size),
                idle: idle(),
                ..only(&[path])
            };
            let file = tempfile::tempfile().unwrap();
            let report = match joins {
                true => run(&source, &file, request).report,
                false => run(&source, &to, request).report,
            };
            let what = format!("{sort:?} {more} by {path}: {report:?}");
            let (gone, rest) = parts.split_at(goes);
            assert_eq!((report.truncated, report.errno), (0, None), "{what}");
            assert_eq!(report.written, gone.concat().len() as u64, "{what}");
            match joins {
                true => assert!(content(&file) == gone.concat(), "{what}"),
                false => assert!(all(&b) == gone, "{what}"),
            }
            assert!(all(&source) == rest, "{what}");
        }
    }
}

/// A schedule grants less than a packet at a time.
#[test]
fn a_rate_divides_no_packet_of_a_pipe() {
    use rustix::pipe::{PipeFlags, pipe_with};
    let _dog = watchdog("a_rate_divides_no_packet_of_a_pipe");
    for (by, nonblocking) in BOTH.into_iter().zip([false, true]) {
        let (source, feed) = pipe_with(PipeFlags::DIRECT).unwrap();
        rustix::io::ioctl_fionbio(&source, nonblocking).unwrap();
        let sent: Vec<Vec<u8>> = (1..8).map(|n| vec![n; 500 * usize::from(n)]).collect();
        for packet in &sent {
            assert_eq!(rustix::io::write(&feed, packet), Ok(packet.len()));
        }
        drop(feed);
        let (sink, end) = pair(Sort::Seqpacket);
        let control = cordboard::Control::new().unwrap();
        control.set_schedule(cordboard::Schedule::rate(64_000));
        let report = common::with_control(&source, &sink, only(&[by]), &control).report;
        assert_eq!(report.ended, Ended::Eof, "{report:?}");
        assert!(all(&end) == sent, "{by}");
    }
}

/// What follows the last datagram of the size belongs to the next reader, also an empty
/// datagram.
#[test]
fn nothing_is_received_behind_the_size() {
    let _dog = watchdog("nothing_is_received_behind_the_size");
    let request = || Request {
        size: 6.into(),
        ..only(&[DataPath::Datagram])
    };
    for sort in SORTS {
        let (source, feed) = pair(sort);
        for datagram in [&b"one"[..], b"two", b"", b"four"] {
            put(&feed, datagram);
        }
        let report = run(&source, file_with(b""), request()).report;
        assert_eq!((report.ended, report.written), (Ended::Size, 6), "{sort:?}");
        assert_eq!(all(&source), [&b""[..], b"four"], "{sort:?}");
    }
}
