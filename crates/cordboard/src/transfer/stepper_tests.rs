use std::os::fd::AsFd;

use super::*;
use crate::request::Request;

struct Fake(Duration);

impl Clock for Fake {
    fn now(&mut self) -> Duration {
        self.0
    }
}

/// A pause ends the silence of the source, and a wait for the schedule only interrupts it.
#[test]
fn a_wait_for_the_schedule_is_subtracted() {
    let (source, _feed) = std::io::pipe().unwrap();
    let (_reader, sink) = std::io::pipe().unwrap();
    let request = Request::default();
    let mut transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
    let second = Duration::from_secs(1);
    let mut time = Fake(100 * second);
    let mut stepper = Stepper::begin(time.0);
    time.0 += 2 * second;
    assert_eq!(stepper.silence(&mut time), Duration::ZERO);
    time.0 += 3 * second;
    for (target, silent, idle) in [
        (WaitFor::Grant, Some(106 * second), 104 * second),
        (WaitFor::Resume, None, 113 * second),
    ] {
        let wait = stepper.new_wait(&transfer, target, &mut time);
        time.0 += 4 * second;
        let next = stepper.resume(&mut transfer, wait, Wakeup::default(), &mut time);
        assert_eq!(next, Next::Step);
        let since = (stepper.silent_since, stepper.last_progress);
        assert_eq!(since, (silent, idle), "{target:?}");
    }
}
