//! Sources that `poll(2)` reports later than a read would return.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::time::Duration;

use cordboard::{Ended, Request};
use rustix::termios::{OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr};

use super::common::{any, pty, raw, tcp_pair, watchdog};
use super::{WAYS, by};

/// Opens a terminal with this VMIN and VTIME: both ends.
fn terminal(least: u8, time: u8, nonblocking: bool) -> (OwnedFd, OwnedFd) {
    let (master, tty) = pty();
    raw(&tty);
    let mut modes = tcgetattr(&tty).unwrap();
    modes.special_codes[SpecialCodeIndex::VMIN] = least;
    modes.special_codes[SpecialCodeIndex::VTIME] = time;
    tcsetattr(&tty, OptionalActions::Now, &modes).unwrap();
    rustix::io::ioctl_fionbio(&tty, nonblocking).unwrap();
    (master, tty)
}

/// Makes a connection that polls readable from this many bytes on: both ends.
fn connection(least: i32) -> (OwnedFd, OwnedFd) {
    use std::os::fd::AsRawFd;
    let (peer, socket) = tcp_pair();
    // SAFETY: takes an integer.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const least).cast(),
            size_of_val(&least) as libc::socklen_t,
        )
    };
    assert_eq!(done, 0);
    (peer.into(), socket.into())
}

/// With a VMIN of 0, a read returns 0 after VTIME tenths of a second: the end.
#[test]
fn a_silent_terminal_has_ended_where_it_waits_for_no_byte() {
    let _dog = watchdog("a_silent_terminal_has_ended_where_it_waits_for_no_byte");
    for way in WAYS {
        for nonblocking in [false, true] {
            for staged in [false, true] {
                for data in ["", "abc"] {
                    let (master, tty) = terminal(0, 1, nonblocking);
                    rustix::io::write(&master, data.as_bytes()).unwrap();
                    let (mut reader, sink) = std::io::pipe().unwrap();
                    let request = Request {
                        idle: Some(Duration::from_secs(3600)),
                        ..any()
                    };
                    let report = by(way, &tty, &sink.into(), request, staged);
                    let what = format!("{way}, {nonblocking}, {staged}, {data:?}: {report:?}");
                    assert_eq!((report.ended, report.errno), (Ended::Eof, None), "{what}");
                    let counts = (report.read, report.written);
                    assert_eq!(counts, (data.len() as u64, data.len() as u64), "{what}");
                    let mut got = String::new();
                    reader.read_to_string(&mut got).unwrap();
                    assert_eq!(got, data, "{what}");
                }
            }
        }
    }
}

/// A read of the rest of the size returns, even if the rest is below the threshold.
/// So does a read of a block.
#[test]
fn less_than_the_mark_is_read_where_no_more_is_wanted() {
    let _dog = watchdog("less_than_the_mark_is_read_where_no_more_is_wanted");
    for way in WAYS {
        for (what, block) in [
            ("terminal", None),
            ("terminal", Some(3)),
            ("connection", None),
        ] {
            for (first, nonblocking) in [(5, false), (5, true), (0, false), (0, true)] {
                let (feed, source) = match what {
                    "terminal" => terminal(5, 0, nonblocking),
                    _ => connection(5),
                };
                if what == "connection" {
                    rustix::io::ioctl_fionbio(&source, nonblocking).unwrap();
                }
                let (mut reader, sink) = std::io::pipe().unwrap();
                let request = Request {
                    size: (first + 3).into(),
                    block: block.and_then(NonZeroUsize::new),
                    ..any()
                };
                let what = format!("{way}, {what}, {block:?}, {first}, {nonblocking}");
                let report = std::thread::scope(|scope| {
                    let work = scope.spawn(|| by(way, &source, &sink.into(), request, false));
                    let mut feed = File::from(feed.try_clone().unwrap());
                    let mut got = [0; 5];
                    for part in [&b"abcde"[..first as usize], b"fgh"] {
                        feed.write_all(part).unwrap();
                        reader.read_exact(&mut got[..part.len()]).unwrap();
                        assert_eq!(&got[..part.len()], part, "{what}");
                    }
                    work.join().unwrap()
                });
                assert_eq!(report.ended, Ended::Size, "{what}: {report:?}");
                assert_eq!(report.written, first + 3, "{what}: {report:?}");
            }
        }
    }
}
