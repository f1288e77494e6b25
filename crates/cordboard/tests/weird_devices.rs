//! Devices, terminals and the kernel's own records as sources and sinks.

mod common;

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use common::{any, content, file_with, only, pattern, run, watchdog, with_control};
use cordboard::PathName::{ReadWrite, Sendfile, Splice};
use cordboard::{Control, Ended, Errno, Request, Side, Transfer};
use rustix::fs::OFlags;

#[test]
fn counters_timers_and_file_events_are_read_whole() {
    use rustix::event::{EventfdFlags, eventfd};
    let _dog = watchdog("counters_timers_and_file_events_are_read_whole");
    for block in [None, std::num::NonZeroUsize::new(1)] {
        for size in [8, 12] {
            let counter = eventfd(7, EventfdFlags::NONBLOCK).unwrap();
            let sink = tempfile::tempfile().unwrap();
            let request = Request {
                block,
                size: size.into(),
                idle: Some(Duration::from_millis(1)),
                ..any()
            };
            let report = run(&counter, &sink, request).report;
            assert_eq!(content(&sink), 7u64.to_ne_bytes(), "{report:?}");
            assert_eq!((report.written, &report.path[..]), (8, &[ReadWrite][..]));
            assert_ne!(report.ended, Ended::Error, "{report:?}");
            let why = report.declined.iter().find(|d| d.path == Splice).unwrap();
            assert_eq!(why.why.to_string(), "EINVAL");
        }
        // Less than a record: none is cut.
        let counter = eventfd(7, EventfdFlags::NONBLOCK).unwrap();
        let request = Request {
            block,
            size: 4.into(),
            ..any()
        };
        let report = run(&counter, tempfile::tempfile().unwrap(), request).report;
        assert_eq!((report.ended, report.read), (Ended::Size, 0), "{report:?}");
    }
    let dir = tempfile::tempdir().unwrap();
    let events = rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::NONBLOCK).unwrap();
    let watched = rustix::fs::inotify::WatchFlags::CREATE;
    rustix::fs::inotify::add_watch(&events, dir.path(), watched).unwrap();
    for name in ["a", "b"] {
        File::create(dir.path().join(name)).unwrap();
    }
    let sink = tempfile::tempfile().unwrap();
    let request = Request {
        idle: Some(Duration::from_millis(1)),
        ..any()
    };
    let report = run(&events, &sink, request).report;
    assert_eq!(
        (report.ended, report.written),
        (Ended::Idle, 64),
        "{report:?}"
    );
}

/// A counter near its maximum is writable to `poll(2)`, and takes no more than
/// a 1: whatever is to end the transfer must still reach it.
#[test]
fn a_counter_without_room_holds_nobody() {
    use rustix::event::{EventfdFlags, eventfd};
    let _dog = watchdog("a_counter_without_room_holds_nobody");
    let numbers = [1u64, 40, 2];
    let data: Vec<u8> = numbers.iter().flat_map(|n| n.to_ne_bytes()).collect();
    let full = |value: u64| {
        let counter = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&counter, &value.to_ne_bytes()).unwrap();
        counter
    };
    let count = |counter: &OwnedFd| {
        let mut number = [0; 8];
        rustix::io::read(counter, &mut number).unwrap();
        u64::from_ne_bytes(number)
    };
    let counter = full(u64::MAX - 40);
    let source = file_with(&data);
    let request = Request {
        idle: Some(Duration::from_millis(1)),
        ..any()
    };
    let report = run(&source, &counter, request).report;
    assert_eq!(
        (report.ended, report.written, report.read),
        (Ended::Idle, 8, 8),
        "{report:?}"
    );
    assert_eq!(report.path, [ReadWrite]);
    assert_eq!(common::position(&source), 8, "the rest was given back");
    assert_eq!(count(&counter), u64::MAX - 39);

    // Read meanwhile, it takes them all.
    let counter = full(u64::MAX - 40);
    let control = Control::new().unwrap();
    let source = file_with(&data);
    let transfer = Transfer::new(source.as_fd(), counter.as_fd(), any()).unwrap();
    let report = std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel();
        let counter = &counter;
        scope.spawn(move || {
            receiver.recv().unwrap();
            count(counter)
        });
        transfer
            .control(&control)
            .observe(common::meanwhile(move || sender.send(()).unwrap()))
            .run()
            .report
    });
    assert_eq!(
        (report.ended, report.written),
        (Ended::Eof, 24),
        "{report:?}"
    );
    assert_eq!(count(&counter), 42);
}

#[test]
fn dev_zero_by_pages_or_by_bytes() {
    let _dog = watchdog("dev_zero_by_pages_or_by_bytes");
    let zero = File::open("/dev/zero").unwrap();
    for paths in [&[Splice, ReadWrite][..], &[ReadWrite]] {
        let sink = file_with(&[1; 100_000]);
        let request = Request {
            size: 70_000.into(),
            ..only(paths)
        };
        let report = run(&zero, &sink, request).report;
        assert_eq!((report.ended, report.written), (Ended::Size, 70_000));
        assert!(content(&sink) == [vec![0; 70_000], vec![1; 30_000]].concat());
    }
}

#[test]
fn a_full_device_is_the_sinks_failure_and_the_file_is_rewound() {
    let _dog = watchdog("a_full_device_is_the_sinks_failure_and_the_file_is_rewound");
    let full = File::options().write(true).open("/dev/full").unwrap();
    for paths in [&[Sendfile, Splice, ReadWrite][..], &[Splice], &[ReadWrite]] {
        let source = file_with(&pattern(300_000));
        let report = run(&source, &full, only(paths)).report;
        assert_eq!(report.errno, Some(Errno::ENOSPC), "{report:?}");
        assert_eq!(report.failed, Some(Side::Sink));
        assert_eq!((report.read, report.written, report.stranded), (0, 0, 0));
        assert_eq!(common::position(&source), 0);
    }
}

/// Bytes that stay in a pipe without an end of file behind them.
fn is_silent(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [rustix::event::PollFd::from_borrowed_fd(
        fd,
        rustix::event::PollFlags::IN,
    )];
    rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default())).unwrap() == 0
}

#[test]
fn a_terminals_end_is_typed_once() {
    let _dog = watchdog("a_terminals_end_is_typed_once");
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    for polled in [false, true] {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let tty = rustix::fs::open(
            &name,
            OFlags::RDWR | OFlags::NOCTTY,
            rustix::fs::Mode::empty(),
        )
        .unwrap();
        // A line, the end, and a line that is nobody's business here.
        rustix::io::write(&master, b"one\n\x04two\n").unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let control = Control::new().unwrap();
        let report = if polled {
            with_control(&tty, &writer, any(), &control).report
        } else {
            run(&tty, &writer, any()).report
        };
        assert_eq!(
            (report.ended, report.written),
            (Ended::Eof, 4),
            "{report:?}"
        );
        assert_eq!(report.path, [ReadWrite]);
        let mut line = [0; 16];
        assert_eq!(
            rustix::io::read(&tty, &mut line),
            Ok(4),
            "the next line is still there"
        );
        assert_eq!(&line[..4], b"two\n");
        // With the pipe unlocked while nothing is typed, others may use it.
        assert!(!is_silent(reader.as_fd()));
    }
}

/// Each write to `/dev/net/tun` is a packet: none is joined with another, or
/// cut, however it is asked for.
#[test]
fn packets_stay_packets() {
    use std::os::unix::net::UnixDatagram;
    let _dog = watchdog("packets_stay_packets");
    let tun = match testkit::tun::Tun::new() {
        Ok(tun) => tun,
        Err(error) => {
            return testkit::skip::report("a network interface of our own", &error.to_string());
        }
    };
    let mut packet = vec![0; 1400];
    packet[0] = 0x45;
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
