//! Terminals that hang up: the master of a pseudoterminal is closed.

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use cordboard::{Ended, Errno, Report, Request, Side};
use rustix::event::PollFlags;
use testkit::stalled::shows;

use super::common::{any, pty, raw, watchdog};
use super::{WAYS, by};

/// Returns the ways to read a terminal: a request, and whether a stage inspects the
/// bytes.
fn requests() -> [(Request, bool); 4] {
    let idle = Request {
        idle: Some(Duration::from_secs(60)),
        ..any()
    };
    let stable = Request {
        stable: true,
        ..any()
    };
    [
        (any(), false),
        (idle, false),
        (stable, false),
        (any(), true),
    ]
}

fn every_way(mut then: impl FnMut(&str, bool, Request, bool)) {
    for way in WAYS {
        for nonblocking in [false, true] {
            for (request, staged) in requests() {
                then(way, nonblocking, request, staged);
            }
        }
    }
}

fn terminal(nonblocking: bool) -> (OwnedFd, OwnedFd) {
    let (master, tty) = pty();
    raw(&tty);
    rustix::io::ioctl_fionbio(&tty, nonblocking).unwrap();
    (master, tty)
}

fn is_hung_up(tty: BorrowedFd<'_>) -> bool {
    shows(tty).contains(PollFlags::HUP | PollFlags::ERR)
}

fn failed(report: &Report, written: u64, what: &str) {
    let end = (report.ended, report.failed, report.errno);
    let expected = (Ended::Error, Some(Side::Source), Some(Errno::EIO));
    assert_eq!(end, expected, "{what}: {report:?}");
    let counts = (report.read, report.written, report.stranded);
    assert_eq!(counts, (written, written, 0), "{what}: {report:?}");
}

/// `read(2)` returns 0 afterwards, and what the terminal held is lost.
#[test]
fn a_terminal_that_has_hung_up_is_an_error() {
    let _dog = watchdog("a_terminal_that_has_hung_up_is_an_error");
    every_way(|way, nonblocking, request, staged| {
        let what = format!("{way}, {nonblocking}, {request:?}, {staged}");
        let (master, tty) = terminal(nonblocking);
        rustix::io::write(&master, b"lost").unwrap();
        drop(master);
        assert!(is_hung_up(tty.as_fd()));
        assert_eq!(rustix::io::read(&tty, &mut [0; 16]), Ok(0));
        let (_reader, sink) = std::io::pipe().unwrap();
        failed(
            &by(way, &tty, &sink.into(), request.clone(), staged),
            0,
            &what,
        );
        if staged {
            return;
        }
        // The bytes are cut into messages.
        let (sink, _receiver) = UnixDatagram::pair().unwrap();
        failed(&by(way, &tty, &sink.into(), request, false), 0, &what);
    });
}

/// A read that sleeps returns `EIO`, a later one 0.
#[test]
fn a_terminal_that_hangs_up_meanwhile_is_an_error() {
    let _dog = watchdog("a_terminal_that_hangs_up_meanwhile_is_an_error");
    every_way(|way, nonblocking, request, staged| {
        let what = format!("{way}, {nonblocking}, {request:?}, {staged}");
        let (master, tty) = terminal(nonblocking);
        rustix::io::write(&master, b"hello").unwrap();
        let (mut reader, sink) = std::io::pipe().unwrap();
        let report = std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut got = [0; 5];
                reader.read_exact(&mut got).unwrap();
                assert_eq!(&got, b"hello");
                drop(master);
                assert_eq!(reader.read(&mut got).unwrap(), 0);
            });
            by(way, &tty, &sink.into(), request, staged)
        });
        failed(&report, 5, &what);
    });
}

/// The end of file that a user types ends the transfer.
#[test]
fn a_typed_end_is_no_hang_up() {
    let _dog = watchdog("a_typed_end_is_no_hang_up");
    every_way(|way, nonblocking, request, staged| {
        let (master, tty) = pty();
        rustix::io::ioctl_fionbio(&tty, nonblocking).unwrap();
        rustix::io::write(&master, b"one\n\x04").unwrap();
        let (_reader, sink) = std::io::pipe().unwrap();
        let report = by(way, &tty, &sink.into(), request, staged);
        let end = (report.ended, report.errno, report.written);
        assert_eq!(end, (Ended::Eof, None, 4), "{way}: {report:?}");
        assert!(!is_hung_up(tty.as_fd()));
    });
}
