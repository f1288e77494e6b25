//! One device as two sinks, or as two sources.

use super::*;
use cordboard::{FanIn, FanOut, Refusal};
use rustix::fs::Mode;

/// Makes a fan-out to both, and a fan-in from both, and checks whether these are refused.
fn both(one: &OwnedFd, other: &OwnedFd, are_one: bool, what: &str) {
    let file = file_with(b"");
    let ends = [one.as_fd(), other.as_fd()];
    let sinks = FanOut::new(file.as_fd(), &ends, any()).err();
    let sources = FanIn::new(&ends, file.as_fd(), any()).err();
    let found = [sinks.map(|r| r.refusal), sources.map(|r| r.refusal)];
    let expected = [Refusal::SameSinks, Refusal::SameSources].map(|r| are_one.then_some(r));
    assert_eq!(found, expected, "{what}");
}

fn open(name: impl rustix::path::Arg) -> OwnedFd {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(name, flags, Mode::empty()).unwrap()
}

#[test]
fn a_terminal_is_not_given_twice() {
    let (master, tty) = pty();
    let name = rustix::pty::ptsname(&master, Vec::new()).unwrap();
    both(&tty, &open(&name), true, "two opens");
    both(&tty, &tty.try_clone().unwrap(), true, "a duplicate");
    both(&tty, &pty().1, false, "two terminals");
    both(&tty, &master, false, "its two ends");
    // Both are /dev/ptmx.
    both(&master, &pty().0, false, "two masters");
    both(&master, &master, true, "one master");
}

/// `/dev/null` is any number of sinks.
#[test]
fn a_memory_device_may_be_given_twice() {
    let null = open("/dev/null");
    both(&null, &open("/dev/null"), false, "two opens");
    both(&null, &null, false, "one open");
}
