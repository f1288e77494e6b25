//! The loop with an injected waiter.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::PollFd;
use testkit::file::file_with;
use testkit::locked::Locked;

use super::{FanIn, Turn};
use crate::compose::{Poll, Refuses, Waiter};
use crate::errno::Errno;
use crate::report::Ended;
use crate::request::{Request, Size};
use crate::transfer::Control;

/// A [`Waiter`] that feeds the second source in its first wait. In the second one, it takes
/// the bytes, has another thread hold the lock of the pipe, and lets the transfer to the sink
/// continue. Later it releases the lock.
struct Takes {
    control: Control,
    ends: Option<(PipeReader, PipeWriter)>,
    locked: Option<Locked>,
    waits: u32,
}

impl Waiter for Takes {
    fn now(&mut self) -> Duration {
        Duration::ZERO
    }

    fn wait(&mut self, fds: &mut [PollFd<'_>], _: Option<Duration>) -> Result<(), Errno> {
        self.waits += 1;
        match (self.waits, self.ends.take()) {
            (1, Some((reader, mut feed))) => {
                feed.write_all(b"taken").unwrap();
                self.ends = Some((reader, feed));
            }
            (2, Some((mut reader, feed))) => {
                reader.read_exact(&mut [0; 5]).unwrap();
                self.locked = Some(Locked::of(reader, feed));
                self.control.resume();
            }
            // The turn of the first source goes on first.
            (3..8, _) => {}
            _ => drop(self.locked.take().map(Locked::release)),
        }
        let timeout = (self.waits == 2).then_some(Duration::from_secs(60));
        Poll::new().wait(fds, timeout.or(Some(Duration::ZERO)))
    }
}

/// A wait has found bytes in the second source. The channel is then full before its turn.
#[test]
fn a_source_is_polled_again_after_a_turn_that_was_late() {
    let name = "a_source_is_polled_again_after_a_turn_that_was_late";
    if testkit::needs::missing(name, &[testkit::needs::Need::Splice]) {
        return;
    }
    let _dog = testkit::watchdog::watch(name);
    let first = tempfile::tempfile().unwrap();
    first.set_len(4 << 20).unwrap();
    let (reader, feed) = std::io::pipe().unwrap();
    let second = reader.try_clone().unwrap();
    let sink = tempfile::tempfile().unwrap();
    let control = Control::new().unwrap();
    control.pause();
    let mut waiter = Takes {
        control: control.clone(),
        ends: Some((reader, feed)),
        locked: None,
        waits: 0,
    };
    let sources = [first.as_fd(), second.as_fd()];
    let fan = FanIn::new(&sources, sink.as_fd(), Request::default()).unwrap();
    // More than half of the channel.
    let fan = fan.turn(Turn::ByTurn { bytes: 700 << 10 }).unwrap();
    let outcome = fan.control(&control).run_with(&mut waiter).unwrap();
    assert_eq!(outcome.ended, Ended::Eof, "{outcome:?}");
    let read = [0, 1].map(|source| outcome.sources[source].read);
    assert_eq!(read, [4 << 20, 1], "{outcome:?}");
}

/// A [`Waiter`] in whose first wait the source ends, the reader takes five bytes and leaves, and
/// the transfer to the sink ends.
struct Leaves(Option<(Option<PipeWriter>, PipeReader)>);

impl Waiter for Leaves {
    fn now(&mut self) -> Duration {
        Duration::ZERO
    }

    fn wait(&mut self, fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> Result<(), Errno> {
        let Some((feed, mut reader)) = self.0.take() else {
            return Poll::new().wait(fds, timeout);
        };
        drop(feed);
        reader.read_exact(&mut [0; 5]).unwrap();
        drop(reader);
        let end = fds.len() - 1;
        Poll::new().wait(&mut fds[end..], None)
    }
}

/// It knows how many bytes there are.
#[test]
fn a_reader_that_has_all_bytes_may_leave_before_the_end_is_found() {
    let _dog = testkit::watchdog::watch("a_reader_that_has_all_bytes_may_leave");
    let pipe = || {
        let (source, mut feed) = std::io::pipe().unwrap();
        feed.write_all(b"12345").unwrap();
        (OwnedFd::from(source), Some(feed))
    };
    let file = |bytes| (OwnedFd::from(file_with(bytes)), None);
    let lines = Turn::ByRecord { delimiter: b'5' };
    let (five, turn) = (Size::Bytes(5), Turn::ByTurn { bytes: 5 });
    let cases = [
        (pipe(), turn, Size::Eof),
        (pipe(), lines, Size::Eof),
        (file(b"12345"), turn, Size::Eof),
        (file(b"123456"), turn, five),
    ];
    for ((source, feed), turn, size) in cases {
        let (reader, sink) = std::io::pipe().unwrap();
        let request = Request {
            size,
            ..Request::default()
        };
        let fan = FanIn::new(&[source.as_fd()], sink.as_fd(), request).unwrap();
        let mut waiter = Leaves(Some((feed, reader)));
        let outcome = fan.turn(turn).unwrap().run_with(&mut waiter).unwrap();
        let ended = match size {
            Size::Eof => Ended::Eof,
            Size::Bytes(_) => Ended::Size,
        };
        assert_eq!((outcome.ended, outcome.errno), (ended, None), "{turn:?}");
        assert!(outcome.is_complete(), "{outcome:?}");
    }
}

#[test]
fn a_wait_that_fails_is_a_failure_of_neither_side() {
    let (source, _feed) = std::io::pipe().unwrap();
    let sink = file_with(b"");
    let fan = FanIn::new(&[source.as_fd()], sink.as_fd(), Request::default()).unwrap();
    let outcome = fan.run_with(&mut Refuses).unwrap();
    assert_eq!(
        (outcome.ended, outcome.errno),
        (Ended::Error, Some(Errno::EPERM))
    );
    assert_eq!((outcome.failed_source, outcome.wait_failed), (None, true));
}
