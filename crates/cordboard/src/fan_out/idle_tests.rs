//! The idle limit, with an injected clock.

use std::io::Write;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::PollFd;

use super::outcome::SinkReport;
use super::script::{HOUR, Script, poll, real};
use super::{FanOut, SinkEnded};
use crate::compose::Waiter;
use crate::errno::Errno;
use crate::report::Ended;
use crate::request::{DataPath, Request, Switches};
use crate::transfer::Control;
use testkit::file::file_with;
use testkit::{Sink, SinkKind, Spec};

fn limited() -> Request {
    Request {
        idle: Some(HOUR),
        ..Request::default()
    }
}

/// The process is stopped (SIGSTOP) in its first wait, and bytes arrive meanwhile.
#[test]
fn bytes_that_are_ready_after_a_stop_are_moved_first() {
    let _dog = testkit::watchdog::watch("bytes_that_are_ready_after_a_stop_are_moved_first");
    let (source, mut feed) = std::io::pipe().unwrap();
    let (_reader, sink) = std::io::pipe().unwrap();
    let mut is_stopped = true;
    let mut script = Script::new(
        |_, now: &mut Duration, fds: &mut [PollFd<'_>], timeout: Option<Duration>| {
            *now += timeout.expect("the wait would never end");
            if std::mem::take(&mut is_stopped) {
                *now += HOUR;
                feed.write_all(b"meanwhile").unwrap();
            }
            poll(fds);
        },
    );
    let fan = FanOut::new(source.as_fd(), &[sink.as_fd()], limited()).unwrap();
    let outcome = fan.run_with(&mut script).unwrap();
    assert_eq!((outcome.ended, outcome.read), (Ended::Idle, 9));
    assert_eq!(outcome.sinks[0].written, 9, "{outcome:?}");
    // The limit began again at the last byte.
    assert_eq!(script.now, 3 * HOUR);
}

/// Another transfer that shares the handle takes the wakeups of the pause.
#[test]
fn a_pause_within_one_wait_restarts_the_limit() {
    let _dog = testkit::watchdog::watch("a_pause_within_one_wait_restarts_the_limit");
    let (source, _feed) = std::io::pipe().unwrap();
    let (_reader, sink) = std::io::pipe().unwrap();
    let control = Control::new().unwrap();
    let mut other = control.clone();
    other.listen();
    let mut script = Script::new(
        |wait, now: &mut Duration, fds: &mut [PollFd<'_>], timeout: Option<Duration>| {
            if wait == 1 {
                control.pause();
                control.resume();
                other.clear_wake();
                *now = HOUR;
            } else {
                *now += timeout.expect("the wait would never end");
            }
            poll(fds);
        },
    );
    let fan = FanOut::new(source.as_fd(), &[sink.as_fd()], limited()).unwrap();
    let outcome = fan.control(&control).run_with(&mut script).unwrap();
    assert_eq!((outcome.ended, outcome.read), (Ended::Idle, 0));
    // The limit began again at the end of the wait.
    assert_eq!(script.now, 2 * HOUR);
}

/// A clock that advances each time it is read.
struct Advances(Duration);

impl Waiter for Advances {
    fn now(&mut self) -> Duration {
        self.0 += HOUR / 8;
        self.0
    }

    fn wait(&mut self, fds: &mut [PollFd<'_>], _: Option<Duration>) -> Result<(), Errno> {
        poll(fds);
        Ok(())
    }
}

/// As by a server of FUSE. No wait follows such a step.
#[test]
fn a_source_that_is_interrupted_each_time_reaches_the_limit() {
    let name = "a_source_that_is_interrupted_each_time_reaches_the_limit";
    if testkit::needs::missing(name, &[testkit::needs::Need::Splice]) {
        return;
    }
    let _dog = testkit::watchdog::watch(name);
    let source = file_with(b"never read");
    let (_reader, sink) = std::io::pipe().unwrap();
    let request = Request {
        switches: Some(Switches::only(&[DataPath::Splice])),
        ..limited()
    };
    let outcome = testkit::refuse::apart(|| {
        testkit::refuse::refuse(&[libc::SYS_splice], libc::EINTR);
        let fan = FanOut::new(source.as_fd(), &[sink.as_fd()], request).unwrap();
        fan.run_with(&mut Advances(Duration::ZERO)).unwrap()
    });
    assert_eq!((outcome.ended, outcome.read), (Ended::Idle, 0));
}

/// The private pipe has the bytes, for which the sink has no room before the limit.
#[test]
fn a_sink_has_the_same_time_again_after_the_limit() {
    let _dog = testkit::watchdog::watch("a_sink_has_the_same_time_again_after_the_limit");
    for has_room in [true, false] {
        let (source, mut feed) = std::io::pipe().unwrap();
        feed.write_all(b"accepted").unwrap();
        let (sink, peer) = testkit::full::unix(rustix::net::SocketType::STREAM, 4096, true);
        rustix::io::ioctl_fionbio(&peer, true).unwrap();
        let mut script = Script::new(
            |_, now: &mut Duration, fds: &mut [PollFd<'_>], timeout: Option<Duration>| match timeout
            {
                // Without splice(2), a pipe is read only after a poll.
                Some(_) if rustix::io::ioctl_fionread(&source) != Ok(0) => poll(fds),
                Some(_) if has_room && *now == HOUR => {
                    while rustix::io::read(&peer, &mut [0; 4096][..]).is_ok_and(|n| n > 0) {}
                    real(fds);
                }
                Some(timeout) => *now += timeout,
                None => real(fds),
            },
        );
        let fan = FanOut::new(source.as_fd(), &[sink.as_fd()], limited()).unwrap();
        let outcome = fan.run_with(&mut script).unwrap();
        assert_eq!((outcome.ended, outcome.read), (Ended::Idle, 8));
        let its = &outcome.sinks[0];
        let (ended, written, limits) = match has_room {
            true => (SinkEnded::Complete, 8, 1),
            false => (SinkEnded::Stopped, 0, 2),
        };
        assert_eq!((its.ended, its.written), (ended, written), "{its:?}");
        assert_eq!(script.now, limits * HOUR);
    }
}

/// Moves less than a block to a sink with `O_DIRECT` that is to be synced. `None`: the test is
/// skipped.
fn less_than_a_block(
    test: &str,
    control: &Control,
    first_wait: impl Fn(&mut Duration),
) -> Option<SinkReport> {
    if let Some(why) = SinkKind::Direct.unavailable() {
        testkit::skip::report(test, &why);
        return None;
    }
    let (source, mut feed) = std::io::pipe().unwrap();
    feed.write_all(b"the tail").unwrap();
    let sink = Sink::make(SinkKind::Direct, &Spec::verify(8)).unwrap();
    let mut is_first = true;
    let mut script = Script::new(|_, now: &mut Duration, fds: &mut [PollFd<'_>], _| {
        if rustix::io::ioctl_fionread(&source) != Ok(0) {
            poll(fds);
        } else if std::mem::take(&mut is_first) {
            first_wait(now);
        } else {
            real(fds);
        }
    });
    let request = Request {
        sync: true,
        ..limited()
    };
    let fan = FanOut::new(source.as_fd(), &[sink.as_fd()], request).unwrap();
    let outcome = fan.control(control).run_with(&mut script).unwrap();
    Some({ outcome }.sinks.remove(0))
}

#[test]
fn a_sink_that_holds_less_than_a_block_is_synced_at_the_limit() {
    let name = "a_sink_that_holds_less_than_a_block_is_synced_at_the_limit";
    let _dog = testkit::watchdog::watch(name);
    let control = Control::new().unwrap();
    let sink = less_than_a_block(name, &control, |now| *now = HOUR);
    let Some(sink) = sink else { return };
    assert_eq!((sink.ended, sink.written), (SinkEnded::Complete, 8));
    // It was not cancelled, which leaves the sync out.
    assert_eq!(sink.transfer.map(|its| its.ended), Some(Ended::Eof));
}

/// The transfer writes what it holds, and does not sync.
#[test]
fn a_sink_that_is_not_synced_is_not_complete() {
    let name = "a_sink_that_is_not_synced_is_not_complete";
    let _dog = testkit::watchdog::watch(name);
    let control = Control::new().unwrap();
    let sink = less_than_a_block(name, &control, |_| {
        // The transfer may read its pipe meanwhile.
        for _ in 0..200 {
            std::thread::yield_now();
        }
        control.cancel();
    });
    let Some(sink) = sink else { return };
    assert_eq!(sink.ended, SinkEnded::Stopped, "{sink:?}");
}
