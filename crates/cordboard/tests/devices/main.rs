//! Devices, terminals and the kernel's own records as sources and sinks.

mod at_once;
mod capacity;
#[path = "../common/mod.rs"]
mod common;
mod faults;
mod hung_up;
mod packets;
mod parts;
mod records;
mod staged;
mod thresholds;
mod twice;

use std::fs::File;
use std::io::Write;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use common::{any, content, file_with, only, pattern, pty, raw, run, watchdog, with_control};
use cordboard::DataPath::{Datagram, ReadWrite, Sendfile, Splice};
use cordboard::{Control, Ended, Errno, Report, Request, Side, Stage, Transfer};
use rustix::fs::OFlags;

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
        if paths == [Splice] && common::forcible(paths).is_empty() {
            continue;
        }
        let source = file_with(&pattern(300_000));
        let report = run(&source, &full, only(paths)).report;
        assert_eq!(report.errno, Some(Errno::ENOSPC), "{report:?}");
        assert_eq!(report.failed, Some(Side::Sink));
        assert_eq!((report.read, report.written, report.stranded), (0, 0, 0));
        assert_eq!(common::position(&source), 0);
    }
}

/// Whether a pipe has neither bytes nor an end of file to read.
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
    for polled in [false, true] {
        let (master, tty) = pty();
        // A line, the end of file, and a line that must not be read.
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
        // The first line is in the pipe.
        assert!(!is_silent(reader.as_fd()));
    }
}

/// How a transfer is run.
const WAYS: [&str; 4] = ["sleeping", "polled", "paced", "engine"];

fn by(way: &str, source: &OwnedFd, sink: &OwnedFd, request: Request, staged: bool) -> Report {
    let control = Control::new().unwrap();
    let [from, to] = [source, sink].map(|fd| fd.try_clone().unwrap());
    let mut transfer = Transfer::owning(from, to, request).unwrap();
    if staged {
        transfer = transfer.stage(Stage::transforming(common::Same)).unwrap();
    }
    match way {
        "sleeping" => transfer.run().report,
        "polled" => transfer.control(&control).run().report,
        "paced" => {
            control.set_schedule(cordboard::Schedule::rate(1 << 30));
            transfer.control(&control).run().report
        }
        _ => {
            let engine = cordboard::Engine::new(Default::default()).unwrap();
            engine.start(transfer).unwrap().wait().report
        }
    }
}

/// A program writes to a terminal and closes it. The reader of the other end gets all
/// bytes, and then `EIO`, which is the end and no error.
#[test]
fn the_end_of_a_pseudoterminal() {
    let _dog = watchdog("the_end_of_a_pseudoterminal");
    for way in WAYS {
        for nonblocking in [false, true] {
            // The last length exceeds the kernel's buffer, so a thread writes the
            // bytes.
            for length in [0, 5, 3000, 300_000] {
                for staged in [false, true] {
                    let (master, tty) = pty();
                    raw(&tty);
                    if nonblocking {
                        rustix::io::ioctl_fionbio(&master, true).unwrap();
                    }
                    let data = pattern(length);
                    let written = data.clone();
                    let writer = std::thread::spawn(move || {
                        File::from(tty).write_all(&written).unwrap();
                    });
                    let writer = if length > 3000 {
                        Some(writer)
                    } else {
                        writer.join().unwrap();
                        None
                    };
                    let sink = tempfile::tempfile().unwrap();
                    let to = sink.try_clone().unwrap().into();
                    let report = by(way, &master, &to, any(), staged);
                    let what = format!("{way}, {nonblocking}, {length}, {staged}: {report:?}");
                    assert_eq!((report.ended, report.errno), (Ended::Eof, None), "{what}");
                    let counts = (report.read, report.written, report.stranded);
                    assert_eq!(counts, (length as u64, length as u64, 0), "{what}");
                    assert_eq!(report.path, [ReadWrite], "{what}");
                    assert!(content(&sink) == data, "{what}");
                    if let Some(writer) = writer {
                        writer.join().unwrap();
                    }
                }
            }
        }
    }
}

/// The kernel looks for bytes first, and for a closed slave after that. A program that
/// writes and closes in between makes one read `EIO`, with bytes that are still to be read.
#[test]
fn the_last_bytes_of_a_pseudoterminal_after_an_error() {
    let _dog = watchdog("the_last_bytes_of_a_pseudoterminal_after_an_error");
    for nonblocking in [false, true] {
        let (master, tty) = pty();
        raw(&tty);
        rustix::io::ioctl_fionbio(&master, nonblocking).unwrap();
        rustix::io::write(&tty, b"last").unwrap();
        drop(tty);
        let sink = tempfile::tempfile().unwrap();
        let mut report = None;
        let run = || report = Some(run(&master, &sink, any()).report);
        let first = |count| (count == 0).then_some(libc::EIO);
        if testkit::midst::refusing(&[libc::SYS_read], run, first).is_none() {
            return testkit::skip::here("calls of another thread cannot be held");
        }
        let report = report.unwrap();
        assert_eq!(
            (report.ended, report.written),
            (Ended::Eof, 4),
            "{report:?}"
        );
        assert!(content(&sink) == b"last");
    }
}

/// The same into a sink of messages.
#[test]
fn the_end_of_a_pseudoterminal_that_is_cut_into_messages() {
    use std::os::unix::net::UnixDatagram;
    let _dog = watchdog("the_end_of_a_pseudoterminal_that_is_cut_into_messages");
    for block in [None, NonZeroUsize::new(4)] {
        for way in WAYS {
            let (master, tty) = pty();
            raw(&tty);
            rustix::io::write(&tty, b"a message").unwrap();
            drop(tty);
            let (sink, receiver) = UnixDatagram::pair().unwrap();
            let request = Request { block, ..any() };
            let report = by(way, &master, &sink.into(), request, false);
            let what = format!("{way}: {report:?}");
            assert_eq!((report.ended, report.written), (Ended::Eof, 9), "{what}");
            assert_eq!(report.path, [ReadWrite], "{what}");
            let mut message = [0; 16];
            let most = block.map_or(9, usize::from);
            for length in [most, most, 1].into_iter().take(9usize.div_ceil(most)) {
                assert_eq!(receiver.recv(&mut message).unwrap(), length, "{what}");
            }
        }
    }
}

/// A terminal whose slave is still open elsewhere has not ended, and one whose slave
/// was never opened has not begun.
#[test]
fn a_pseudoterminal_that_is_open_has_not_ended() {
    let _dog = watchdog("a_pseudoterminal_that_is_open_has_not_ended");
    let (master, tty) = pty();
    raw(&tty);
    let second = tty.try_clone().unwrap();
    rustix::io::write(&tty, b"one").unwrap();
    drop(tty);
    let sink = tempfile::tempfile().unwrap();
    let request = || Request {
        idle: Some(Duration::from_millis(1)),
        ..any()
    };
    let report = run(&master, &sink, request()).report;
    assert_eq!(
        (report.ended, report.written),
        (Ended::Idle, 3),
        "{report:?}"
    );
    // Closed and opened again, the transfer goes on.
    let name = rustix::pty::ptsname(&master, Vec::new()).unwrap();
    drop(second);
    let third = rustix::fs::open(
        &name,
        OFlags::RDWR | OFlags::NOCTTY,
        rustix::fs::Mode::empty(),
    );
    rustix::io::write(third.as_ref().unwrap(), b"two").unwrap();
    let report = run(&master, &sink, request()).report;
    assert_eq!(
        (report.ended, report.written),
        (Ended::Idle, 3),
        "{report:?}"
    );
    drop(third);
    // A child of another test may hold a copy of it for a while.
    let report = run(&master, &sink, any()).report;
    assert_eq!(
        (report.ended, report.written),
        (Ended::Eof, 0),
        "{report:?}"
    );
    assert_eq!(content(&sink), b"onetwo");
}

/// `EIO` of a slave is an error, not the end: that of a program in the background,
/// which may not read its terminal.
#[test]
fn a_terminal_that_may_not_be_read_is_an_error() {
    use rustix::process::{getpid, setpgid, setsid};
    let _dog = watchdog("a_terminal_that_may_not_be_read_is_an_error");
    if !common::alone!() {
        return;
    }
    let (_master, tty) = pty();
    let sink = tempfile::tempfile().unwrap();
    let in_the_background = || {
        setpgid(None, None).unwrap();
        assert_ne!(rustix::termios::tcgetpgrp(&tty).unwrap(), getpid());
        // SAFETY: no handler is set, and this process has but one thread.
        unsafe { libc::signal(libc::SIGTTIN, libc::SIG_IGN) };
        let report = run(&tty, &sink, any()).report;
        eprintln!("{report:?}");
        (report.ended, report.failed, report.errno)
            == (Ended::Error, Some(Side::Source), Some(Errno::EIO))
    };
    assert!(testkit::child::in_a_child(|| {
        setsid().unwrap();
        rustix::process::ioctl_tiocsctty(&tty).unwrap();
        testkit::child::in_a_child(in_the_background)
    }));
}

/// `O_APPEND` has no effect on a block device: all bytes are written at its position,
/// also those that direct I/O does not carry.
#[test]
fn a_block_device_is_written_at_its_position() {
    use rustix::fs::{OFlags, SeekFrom};
    let _dog = watchdog("a_block_device_is_written_at_its_position");
    if let Some(why) = testkit::loopdev::unavailable() {
        return testkit::skip::report("a_block_device_is_written_at_its_position", &why);
    }
    let (data, old) = (pattern(70_000), vec![0x55; 200_000]);
    let device = testkit::loopdev::LoopDevice::take().unwrap();
    for flags in [OFlags::empty(), OFlags::DIRECT] {
        for at in [8192, 700] {
            let sink = device.open(OFlags::RDWR | OFlags::APPEND | flags).unwrap();
            let plain = std::fs::File::from(device.open(OFlags::RDWR).unwrap());
            std::os::unix::fs::FileExt::write_all_at(&plain, &old, 0).unwrap();
            rustix::fs::seek(&sink, SeekFrom::Start(at)).unwrap();
            let report = run(file_with(&data), &sink, only(&[ReadWrite])).report;
            assert_eq!(report.written, 70_000, "{flags:?} {at}: {report:?}");
            assert_eq!(rustix::fs::tell(&sink), Ok(at + 70_000), "{flags:?} {at}");
            let mut found = vec![0; old.len()];
            std::os::unix::fs::FileExt::read_exact_at(&plain, &mut found, 0).unwrap();
            let mut right = old.clone();
            right[at as usize..][..data.len()].copy_from_slice(&data);
            assert!(found == right, "{flags:?} {at}: {report:?}");
        }
    }
}

/// The program of a terminal reads nothing. A write that exceeds the room would
/// block, and the master cannot be opened again as nonblocking.
#[test]
fn an_idle_limit_holds_for_the_master_of_a_pseudoterminal() {
    let _dog = watchdog("an_idle_limit_holds_for_the_master_of_a_pseudoterminal");
    let data = pattern(1 << 20);
    let ways = [(true, true), (true, false), (false, true), (false, false)];
    let ways = ways.into_iter().flat_map(|way| [(way, false), (way, true)]);
    for ((on_an_engine, is_open), messages) in ways {
        let (master, slave) = pty();
        raw(&slave);
        // A closed slave may be opened again at any time: that is no end.
        let slave = is_open.then_some(slave);
        let (source, _feed) = match messages {
            true => packets(&data),
            false => (OwnedFd::from(file_with(&data)), None),
        };
        let idle = Request {
            idle: Some(Duration::from_millis(20)),
            ..any()
        };
        let report = match on_an_engine {
            true => {
                cordboard::start(&source, &master, idle)
                    .unwrap()
                    .wait()
                    .report
            }
            false => run(&source, &master, idle).report,
        };
        assert_eq!(report.ended, Ended::Idle, "{report:?}");
        let source = File::from(source);
        match messages {
            true => assert_eq!(report.path, [Datagram]),
            false => assert_eq!(common::position(&source), report.written),
        }
        assert!(0 < report.written && report.written < data.len() as u64);
        if let Some(slave) = slave {
            let mut got = vec![0; report.written as usize];
            std::io::Read::read_exact(&mut File::from(slave), &mut got).unwrap();
            assert!(got == data[..got.len()]);
        }
    }
}

/// Makes a sequenced-packet socket that is full of packets of `data`, a page each,
/// and the end that could send more.
fn packets(data: &[u8]) -> (OwnedFd, Option<OwnedFd>) {
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (source, feed) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    let mut pages = data.chunks(4096);
    let sent = pages.all(|page| send(&feed, page, SendFlags::DONTWAIT).is_ok());
    assert!(!sent, "less than the terminal takes");
    (source, Some(feed))
}
