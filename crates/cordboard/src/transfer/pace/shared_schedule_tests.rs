//! Two transfers that share the schedule of a handle. One of them is only its requests for
//! grants.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::pacer::Returned;
use super::pacer_tests::{MS, any};
use crate::errno::Errno;
use crate::report::Ended;
use crate::request::{Request, Schedule, Size};
use crate::transfer::wait::{Clock, Interest, Poll, Waiter, Wakeup};
use crate::transfer::{Control, Transfer, drive};

/// The real `poll(2)`. Time passes in waits, and the other transfer takes all that is granted
/// while this one waits for its source.
struct BesideBusy {
    now: Duration,
    poll: Poll,
    control: Control,
    grants: u32,
}

impl Clock for BesideBusy {
    fn now(&mut self) -> Duration {
        self.now
    }
}

impl Waiter for BesideBusy {
    fn wait(
        &mut self,
        interest: &Interest<'_>,
        timeout: Option<Duration>,
    ) -> Result<Wakeup, Errno> {
        let wakeup = self.poll.wait(interest, Some(Duration::ZERO))?;
        if wakeup != Wakeup::default() || timeout == Some(Duration::ZERO) {
            return Ok(wakeup);
        }
        self.now += timeout.expect("it would wait forever");
        if interest.ready.is_some() {
            while self.control.grant(self.now, any()).is_ok() {}
        } else {
            self.grants += 1;
            assert!(self.grants < 10, "the source is never idle");
        }
        Ok(wakeup)
    }
}

/// A silent source ends at its limit, although its transfer then has to wait for a grant before
/// it reads.
#[test]
fn a_silent_source_is_idle_beside_a_busy_transfer() {
    let (source, _feed) = UnixStream::pair().unwrap();
    let (_reader, sink) = std::io::pipe().unwrap();
    let control = Control::without_descriptor().exclusive();
    control.set_schedule(Schedule::rate(1_000_000));
    let limit = Duration::from_millis(15);
    let request = Request {
        idle: Some(limit),
        ..Request::default()
    };
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
    let mut time = BesideBusy {
        now: Duration::from_secs(1000),
        poll: Poll::new(),
        control: control.clone(),
        grants: 0,
    };
    let report = drive::run(transfer.control(&control), &mut time).report;
    assert_eq!(report.ended, Ended::Idle, "{report:?}");
    // A wait for a grant at the beginning, and one after the limit.
    assert_eq!(time.grants, 2);
    assert_eq!(report.elapsed, limit + 20 * MS);
}

/// A step returns unused bytes to the pacers that have granted them, and not to a limit that was
/// added during the step.
#[test]
fn a_limit_gets_no_bytes_of_a_grant_before_it() {
    let zero = std::fs::File::open("/dev/zero").unwrap();
    let null = std::fs::File::options().write(true).open("/dev/null");
    let null = null.unwrap();
    let control = Control::without_descriptor();
    control.set_schedule(Schedule::rate(1_000_000_000));
    let request = Request {
        size: Size::Bytes(1 << 30),
        ..Request::default()
    };
    let transfer = Transfer::new(zero.as_fd(), null.as_fd(), request).unwrap();
    let mut transfer = transfer.control(&control);
    let mut time = BesideBusy {
        now: Duration::ZERO,
        poll: Poll::new(),
        control: control.clone(),
        grants: 0,
    };
    assert_eq!(transfer.take_grant(&mut time), Some(10 * MS));
    time.now = 40 * MS;
    assert_eq!(transfer.take_grant(&mut time), None);
    assert_eq!(transfer.flow.allowance.now(), 40_000_000);
    let rest = Duration::from_secs(1);
    control.limit_schedule(Schedule::blocks(1, rest), 128 << 10);
    let now = 80 * MS;
    let bytes = |grant: Result<(u64, u64), _>| grant.map(|(bytes, _)| bytes);
    let (granted, changes) = control.grant(now, any()).unwrap();
    assert_eq!(granted, 128 << 10);
    // The other one takes all of it.
    control.give_back(Returned {
        unused: 0,
        overdrawn: 0,
        changes,
    });
    transfer.return_grant();
    assert_eq!(bytes(control.grant(now, any())), Err(rest));
    assert_eq!(bytes(control.grant(now + rest, any())), Ok(128 << 10));
}

/// Only a step in progress can return bytes of a burst, so a request after it waits for the rest.
#[test]
fn a_step_that_has_used_its_grant_returns_nothing() {
    let zero = std::fs::File::open("/dev/zero").unwrap();
    let null = std::fs::File::options().write(true).open("/dev/null");
    let null = null.unwrap();
    let control = Control::without_descriptor();
    let rest = Duration::from_secs(1);
    control.limit_schedule(Schedule::blocks(1, rest), 128 << 10);
    let transfer = Transfer::new(zero.as_fd(), null.as_fd(), Request::default()).unwrap();
    let mut transfer = transfer.control(&control);
    let mut time = BesideBusy {
        now: Duration::ZERO,
        poll: Poll::new(),
        control: control.clone(),
        grants: 0,
    };
    assert_eq!(transfer.take_grant(&mut time), None);
    assert_eq!(control.grant(Duration::ZERO, any()), Err(MS));
    transfer.flow.took(128 << 10);
    transfer.return_grant();
    assert_eq!(control.grant(Duration::ZERO, any()), Err(rest));
}

/// A schedule that divides the throughput distinguishes such a step from work.
#[test]
fn a_step_between_blocking_descriptors_may_sleep() {
    let (source, _feed) = UnixStream::pair().unwrap();
    let (_reader, sink) = UnixStream::pair().unwrap();
    let zero = std::fs::File::open("/dev/zero").unwrap();
    let file = tempfile::tempfile().unwrap();
    let may_sleep = |source: &dyn AsFd, sink: &dyn AsFd, in_calls| {
        let request = Request::default();
        let mut transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        transfer.flow.set_may_sleep(in_calls);
        transfer.need().may_sleep
    };
    assert!(may_sleep(&source, &file, true));
    assert!(may_sleep(&zero, &sink, true));
    assert!(!may_sleep(&source, &file, false));
    assert!(!may_sleep(&zero, &file, true));
    sink.set_nonblocking(true).unwrap();
    assert!(!may_sleep(&zero, &sink, true));
}
