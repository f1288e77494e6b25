//! The idle limit, with an injected clock.

use std::io::Write;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::PollFd;

use super::FanOut;
use super::script::{HOUR, Script, poll};
use crate::compose::Waiter;
use crate::errno::Errno;
use crate::report::Ended;
use crate::request::{DataPath, Request, Switches};
use testkit::file::file_with;

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
