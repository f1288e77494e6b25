//! Sources that are locked, interrupted, or show an error all the time.

use std::io::Write;
use std::os::fd::AsFd;

use rustix::event::PollFd;
use testkit::stalled::{Trouble, silent};

use super::*;
use crate::compose::{Poll as Waits, Waiter};
use crate::request::{DataPath, Switches};

/// As by a server of FUSE. The composition looks for a cancel and at other sources then.
#[test]
fn a_source_that_is_interrupted_each_time_yields() {
    const READS: &[libc::c_long] = &[
        libc::SYS_read,
        libc::SYS_readv,
        libc::SYS_pread64,
        libc::SYS_preadv2,
        libc::SYS_splice,
        libc::SYS_sendfile,
    ];
    let name = "a_source_that_is_interrupted_each_time_yields";
    let _dog = testkit::watchdog::watch(name);
    let mut source = tempfile::tempfile().unwrap();
    source.write_all(b"never read").unwrap();
    std::io::Seek::rewind(&mut source).unwrap();
    let channel = Channel::new(false).unwrap();
    let request = Request::default();
    let mut intake = Intake::new(source.as_fd(), &channel, &request, None).unwrap();
    let mut halts = Vec::new();
    let advances = || {
        for _ in 0..3 {
            intake.advance();
            halts.push(intake.halt());
        }
    };
    let calls = testkit::midst::refusing(READS, advances, |_| Some(libc::EINTR));
    let Some(calls) = calls else {
        return testkit::skip::report(name, "no seccomp_unotify(2) here");
    };
    assert_eq!(halts, [Halt::Yield; 3]);
    assert!(calls > 2 * FRUITLESS as usize, "{calls} calls");
    // Without the interruptions.
    intake.advance();
    assert_eq!(intake.arrived(), 10);
}

/// A process that splices a silent socket into the source holds the lock of that pipe. A
/// read would wait for it.
#[test]
fn an_empty_pipe_is_not_read_while_another_process_has_its_lock() {
    let name = "an_empty_pipe_is_not_read_while_another_process_has_its_lock";
    if testkit::needs::missing(name, &[testkit::needs::Need::Splice]) {
        return;
    }
    let _dog = testkit::watchdog::watch(name);
    let (source, mut feed) = std::io::pipe().unwrap();
    let from = source.try_clone().unwrap();
    let channel = Channel::new(false).unwrap();
    let request = Request::default();
    let mut intake = Intake::new(from.as_fd(), &channel, &request, None).unwrap();
    feed.write_all(b"first").unwrap();
    intake.advance();
    assert_eq!((intake.arrived(), intake.halt()), (5, Halt::No));
    let locked = testkit::locked::Locked::of(source, feed);
    intake.advance();
    assert_eq!((intake.arrived(), intake.halt()), (0, Halt::Source));
    drop(locked.release());
    intake.resume(PollFlags::IN);
    intake.advance();
    assert_eq!(intake.arrived(), 1);
}

/// The socket shows `POLLERR` all the time.
#[test]
fn a_silent_source_with_something_in_its_error_queue_is_waited_for() {
    let name = "a_silent_source_with_something_in_its_error_queue_is_waited_for";
    if testkit::needs::missing(name, &[testkit::needs::Need::Splice]) {
        return;
    }
    let _dog = testkit::watchdog::watch(name);
    for path in [DataPath::Splice, DataPath::ReadWrite] {
        for is_nonblocking in [false, true] {
            let what = format!("{path} {is_nonblocking}");
            let (source, mut peer) = silent(Trouble::Timestamps);
            source.set_nonblocking(is_nonblocking).unwrap();
            let channel = Channel::new(false).unwrap();
            let request = Request {
                switches: Some(Switches::only(&[path])),
                ..Request::default()
            };
            let mut intake = Intake::new(source.as_fd(), &channel, &request, None).unwrap();
            let mut all = 0;
            for round in 0..10 {
                let mut waits = 0;
                loop {
                    intake.advance();
                    all += intake.arrived();
                    if intake.halt() != Halt::Source {
                        continue;
                    }
                    waits += 1;
                    assert!(waits < 50, "{what}: it is not waited for");
                    intake.prepare_wait();
                    let (wait, fd) = intake.wait().unwrap();
                    let mut fds: Vec<PollFd<'_>> = (fd.into_iter())
                        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
                        .collect();
                    // Without a limit, it is not woken by the error.
                    let (has_all, timeout) = (all == 5 * round, longest(&wait, fd.is_some()));
                    let most = if has_all {
                        Some(Duration::ZERO)
                    } else {
                        timeout
                    };
                    Waiter::wait(&mut Waits::new(), &mut fds, most).unwrap();
                    let shown: PollFlags = fds.iter().map(PollFd::revents).collect();
                    if timeout.is_none() && shown.is_empty() && has_all {
                        break;
                    }
                    intake.resume(shown);
                }
                peer.write_all(b"hello").unwrap();
            }
        }
    }
}
