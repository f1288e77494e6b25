//! The final sync, which signals interrupt.

use std::os::fd::AsFd;
use std::time::Duration;

use crate::endpoint::Side;
use crate::errno::Errno;
use crate::report::{Ended, Report};
use crate::request::Request;
use crate::transfer::wait::{Clock, Interest, Waiter, Wakeup};
use crate::transfer::{Transfer, Turn};

/// A clock that advances a minute at each call.
#[derive(Default)]
struct Slow {
    now: Duration,
    cancelled: bool,
}

impl Clock for Slow {
    fn now(&mut self) -> Duration {
        self.now += Duration::from_secs(60);
        self.now
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled
    }
}

impl Waiter for Slow {
    fn wait(&mut self, _: &Interest<'_>, _: Option<Duration>) -> Result<Wakeup, Errno> {
        panic!("it must not wait");
    }
}

/// Returns the report of a transfer whose first `interrupted` syncs return `EINTR`,
/// and the number of its syncs; `None` if system calls cannot be intercepted.
fn synced(interrupted: usize, cancelled: bool) -> Option<(Report, usize)> {
    let (source, sink) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    let mut report = None;
    let body = || {
        let request = Request {
            sync: true,
            idle: Some(Duration::from_secs(7)),
            switches: Some(crate::Switches::all()),
            ..Request::default()
        };
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        let mut waiter = Slow {
            cancelled,
            ..Slow::default()
        };
        let turn = Turn::Done(Ended::Eof);
        report = Some(transfer.settle(&turn, &mut waiter, Duration::ZERO).report);
    };
    let count = testkit::midst::refusing(&[libc::SYS_fsync], body, |count| {
        (count < interrupted).then_some(libc::EINTR)
    });
    let Some(count) = count else {
        testkit::skip::here("no seccomp_unotify(2) here");
        return None;
    };
    Some((report.unwrap(), count))
}

#[test]
fn a_signal_after_the_idle_limit_fails_no_sync() {
    for interrupted in [0, 1, 5] {
        let Some((report, count)) = synced(interrupted, false) else {
            return;
        };
        assert_eq!(
            (report.ended, report.errno),
            (Ended::Eof, None),
            "{report:?}"
        );
        assert_eq!(count, interrupted + 1);
    }
}

#[test]
fn a_sync_that_is_interrupted_each_time_fails() {
    let Some((report, count)) = synced(usize::MAX, false) else {
        return;
    };
    let right = (Ended::Error, Some(Side::Sink), Some(Errno::EINTR));
    assert_eq!((report.ended, report.failed, report.errno), right);
    assert!((2..100).contains(&count), "{count}");
}

#[test]
fn a_sync_that_is_interrupted_by_a_cancel_is_not_made_again() {
    let Some((report, count)) = synced(usize::MAX, true) else {
        return;
    };
    let right = (Ended::Cancelled, None, None, 1);
    assert_eq!((report.ended, report.failed, report.errno, count), right);
}
