//! Devices to which each write is a message.

use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;

use crate::common::{any, file_with, run, watchdog, with_control};
use crate::{WAYS, by};
use cordboard::DataPath::{ReadWrite, Sendfile, Splice};
use cordboard::{Control, Ended, Request, Schedule};
use rustix::pipe::PipeFlags;
use testkit::tun::Tun;

/// `None`: the test is skipped.
fn tun() -> Option<Tun> {
    let tun = Tun::new();
    if let Err(error) = &tun {
        testkit::skip::report("a network interface of our own", &error.to_string());
    }
    tun.ok()
}

/// A packet. The driver checks only the version, in the first byte.
fn packet(length: usize) -> Vec<u8> {
    let mut packet = vec![0; length];
    packet[0] = 0x45;
    packet
}

/// Each write to `/dev/net/tun` is a packet. No request joins or cuts packets.
#[test]
fn packets_stay_packets() {
    let _dog = watchdog("packets_stay_packets");
    let Some(tun) = tun() else { return };
    let packet = packet(1400);
    let before = tun.received().unwrap();
    for asynchronous in [false, true] {
        let (put, source) = UnixDatagram::pair().unwrap();
        for length in [100, 1400, 1400, 28] {
            put.send(&packet[..length]).unwrap();
        }
        let request = Request {
            size: 2928.into(),
            ..any()
        };
        let report = if asynchronous {
            cordboard::start(&source, &tun.fd, request)
                .unwrap()
                .wait()
                .report
        } else {
            run(&source, &tun.fd, request).report
        };
        assert_eq!((report.ended, report.written), (Ended::Size, 2928));
        assert_eq!(report.path, [ReadWrite]);
    }
    let after = tun.received().unwrap();
    assert_eq!(after.packets - before.packets, 8);
    assert_eq!(after.bytes - before.bytes, 2 * 2928);
}

/// A block of a file is one packet, also on a thread that must not block in a write. The
/// driver accepts no pages, and returns `EINVAL` for a part of a packet.
#[test]
fn a_block_of_a_file_is_a_packet() {
    const LENGTH: usize = 9000;
    let _dog = watchdog("a_block_of_a_file_is_a_packet");
    let Some(tun) = tun() else { return };
    let packet = packet(LENGTH);
    let mut expected = tun.received().unwrap();
    for way in WAYS {
        for (packets, block) in [(1, None), (3, NonZeroUsize::new(LENGTH))] {
            let source = OwnedFd::from(file_with(&packet.repeat(packets)));
            let request = Request { block, ..any() };
            let report = by(way, &source, &tun.fd, request, false);
            let what = format!("{way}, {packets}: {report:?}");
            assert_eq!((report.ended, report.errno), (Ended::Eof, None), "{what}");
            assert_eq!(report.path, [ReadWrite], "{what}");
            for path in [Sendfile, Splice] {
                let declined = report.declined.iter().find(|d| d.path == path);
                let why = declined.map(|declined| declined.why.to_string());
                let records = "each write to the sink may be a record";
                assert_eq!(why.as_deref(), Some(records), "{what}");
            }
            expected.packets += packets as u64;
            expected.bytes += (packets * LENGTH) as u64;
            assert_eq!(tun.received().unwrap(), expected, "{what}");
        }
    }
}

/// A schedule grants less than a packet at a time. The last packet is longer than the
/// pieces that a schedule does not divide without a block.
#[test]
fn a_rate_divides_no_packet() {
    let _dog = watchdog("a_rate_divides_no_packet");
    let Some(tun) = tun() else { return };
    let mut expected = tun.received().unwrap();
    for (length, packets, block) in [(9000, 1, false), (9000, 3, true), (100_000, 2, true)] {
        let packet = packet(length);
        // The driver limits the length to what it can allocate.
        if rustix::io::write(&tun.fd, &packet) != Ok(length) {
            testkit::skip::report("a_rate_divides_no_packet", &format!("{length} bytes"));
            continue;
        }
        let source = OwnedFd::from(file_with(&packet.repeat(packets)));
        let request = Request {
            block: NonZeroUsize::new(length).filter(|_| block),
            ..any()
        };
        let control = Control::new().unwrap();
        control.set_schedule(Schedule::rate(800_000));
        let report = with_control(&source, &tun.fd, request, &control).report;
        assert_eq!(
            (report.ended, report.errno),
            (Ended::Eof, None),
            "{report:?}"
        );
        expected.packets += 1 + packets as u64;
        expected.bytes += (length * (1 + packets)) as u64;
        assert_eq!(tun.received().unwrap(), expected, "{report:?}");
    }
}

/// The pipe holds more than the buffer, or the grant of a schedule is less than a packet.
#[test]
fn packets_of_a_pipe_stay_packets() {
    const LENGTH: usize = 1000;
    let _dog = watchdog("packets_of_a_pipe_stay_packets");
    let Some(tun) = tun() else { return };
    let packet = packet(LENGTH);
    let mut expected = tun.received().unwrap();
    for (capacity, size, rate) in [
        (None, Some(8), None),
        (Some(1 << 20), None, None),
        (None, None, Some(800_000)),
        (Some(1 << 20), Some(8), Some(800_000)),
    ] {
        let flags = PipeFlags::CLOEXEC | PipeFlags::DIRECT;
        let (source, feed) = rustix::pipe::pipe_with(flags).unwrap();
        if let Some(capacity) = capacity
            && rustix::pipe::fcntl_setpipe_size(&feed, capacity).is_err()
        {
            testkit::skip::report("packets_of_a_pipe_stay_packets", "no larger pipe");
            continue;
        }
        for _ in 0..8 {
            assert_eq!(rustix::io::write(&feed, &packet), Ok(LENGTH));
        }
        drop(feed);
        let request = Request {
            size: size.map_or(cordboard::Size::Eof, |count| (count * LENGTH as u64).into()),
            ..any()
        };
        let control = Control::new().unwrap();
        control.set_schedule(rate.map_or(Schedule::Unlimited, Schedule::rate));
        let report = with_control(&source, &tun.fd, request, &control).report;
        assert_eq!((report.errno, report.written), (None, 8000), "{report:?}");
        assert_eq!(report.path, [ReadWrite]);
        expected.packets += 8;
        expected.bytes += 8000;
        assert_eq!(tun.received().unwrap(), expected, "{report:?}");
    }
}
