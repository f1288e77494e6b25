//! The idle limit, with an injected clock.

use std::io::Write;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::PollFd;

use super::{FanIn, FanInOutcome, SourceEnded, Turn};
use crate::compose::{Poll, Waiter};
use crate::errno::Errno;
use crate::report::Ended;
use crate::request::Request;
use crate::transfer::Control;

const LIMIT: Duration = Duration::from_secs(3600);
const LINES: Turn = Turn::ByRecord { delimiter: b'\n' };

/// The real `poll(2)`, without waiting. If nothing is ready, a function returns the time that
/// passes, from the timeout of the wait.
struct Silence<F> {
    now: Duration,
    passes: F,
}

impl<F: FnMut(Duration) -> Duration> Waiter for Silence<F> {
    fn now(&mut self) -> Duration {
        self.now
    }

    fn wait(&mut self, fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> Result<(), Errno> {
        let Some(timeout) = timeout else {
            // Only the end of the transfer to the sink is left.
            assert_eq!(fds.len(), 1, "the wait would never end");
            return Poll::new().wait(fds, None);
        };
        Poll::new().wait(fds, Some(Duration::ZERO))?;
        if fds.iter().all(|fd| fd.revents().is_empty()) {
            self.now += (self.passes)(timeout);
            Poll::new().wait(fds, Some(Duration::ZERO))?;
            std::thread::yield_now();
        }
        Ok(())
    }
}

/// Runs a fan-in from one source, with the limit.
fn run(
    source: &impl AsFd,
    sink: &impl AsFd,
    control: &Control,
    passes: impl FnMut(Duration) -> Duration,
) -> (FanInOutcome, Duration) {
    let request = Request {
        idle: Some(LIMIT),
        ..Request::default()
    };
    let fan = FanIn::new(&[source.as_fd()], sink.as_fd(), request).unwrap();
    let mut silence = Silence {
        now: Duration::ZERO,
        passes,
    };
    let fan = fan.turn(LINES).unwrap().control(control);
    let outcome = fan.run_with(&mut silence).unwrap();
    (outcome, silence.now)
}

#[test]
fn an_incomplete_record_is_written_at_the_limit() {
    let _dog = testkit::watchdog::watch("an_incomplete_record_is_written_at_the_limit");
    let (source, mut feed) = std::io::pipe().unwrap();
    feed.write_all(b"whole\nabc").unwrap();
    let sink = tempfile::tempfile().unwrap();
    let control = Control::new().unwrap();
    let (outcome, now) = run(&source, &sink, &control, |timeout| timeout);
    assert_eq!((outcome.ended, outcome.errno), (Ended::Idle, None));
    let its = &outcome.sources[0];
    assert_eq!((its.ended, its.written), (SourceEnded::Stopped, 9));
    assert_eq!(outcome.stranded, 0, "{outcome:?}");
    assert!(now >= LIMIT, "{now:?}");
    drop(feed);
}

/// Its bytes do not reach the transfer to the sink before the end of the record.
#[test]
fn a_source_that_gives_parts_of_a_record_is_not_idle() {
    let _dog = testkit::watchdog::watch("a_source_that_gives_parts_of_a_record_is_not_idle");
    let (source, feed) = std::io::pipe().unwrap();
    let sink = tempfile::tempfile().unwrap();
    let (mut feed, mut left) = (Some(feed), 5);
    let control = Control::new().unwrap();
    let (outcome, now) = run(&source, &sink, &control, |_| {
        left -= 1;
        match &mut feed {
            Some(feed) if left > 0 => feed.write_all(b"a").unwrap(),
            _ => drop(feed.take()),
        }
        LIMIT * 3 / 4
    });
    assert_eq!((outcome.ended, outcome.written), (Ended::Eof, 4));
    assert!(outcome.is_complete(), "{outcome:?}");
    assert!(now > 2 * LIMIT, "{now:?}");
}

#[test]
fn the_limit_does_not_run_during_a_pause() {
    let _dog = testkit::watchdog::watch("the_limit_does_not_run_during_a_pause");
    let (source, mut feed) = std::io::pipe().unwrap();
    feed.write_all(b"whole\nabc").unwrap();
    let sink = tempfile::tempfile().unwrap();
    let control = Control::new().unwrap();
    control.pause();
    let mut waits = 0;
    let (outcome, now) = run(&source, &sink, &control, |timeout| {
        waits += 1;
        if waits < 4 {
            return LIMIT;
        }
        control.resume();
        timeout
    });
    assert_eq!((outcome.ended, outcome.written), (Ended::Idle, 9));
    assert!(now >= 4 * LIMIT, "{now:?}");
    drop(feed);
}

/// The handle wakes only the transfer to the sink.
#[test]
fn a_pause_within_one_wait_restarts_the_limit() {
    let _dog = testkit::watchdog::watch("a_pause_within_one_wait_restarts_the_limit");
    let (source, feed) = std::io::pipe().unwrap();
    let sink = tempfile::tempfile().unwrap();
    let control = Control::new().unwrap();
    let mut is_first = true;
    let (outcome, now) = run(&source, &sink, &control, |timeout| {
        if std::mem::take(&mut is_first) {
            control.pause();
            control.resume();
            return LIMIT;
        }
        timeout
    });
    assert_eq!((outcome.ended, outcome.written), (Ended::Idle, 0));
    assert!(now >= 2 * LIMIT, "{now:?}");
    drop(feed);
}

/// The process is stopped (SIGSTOP) in its first wait, and bytes arrive meanwhile.
#[test]
fn bytes_that_are_ready_after_a_stop_are_moved_first() {
    let _dog = testkit::watchdog::watch("bytes_that_are_ready_after_a_stop_are_moved_first");
    let (source, mut feed) = std::io::pipe().unwrap();
    let sink = tempfile::tempfile().unwrap();
    let control = Control::new().unwrap();
    let mut is_stopped = true;
    let (outcome, _) = run(&source, &sink, &control, |timeout| {
        if std::mem::take(&mut is_stopped) {
            feed.write_all(b"meanwhile").unwrap();
            return 2 * LIMIT;
        }
        timeout
    });
    assert_eq!((outcome.ended, outcome.written), (Ended::Idle, 9));
}
