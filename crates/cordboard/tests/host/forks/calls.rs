//! A signal handler forks during a call that makes a transfer or a control descriptor. The child
//! continues the call, which is that of the parent.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use cordboard::cue::{Command, Cue, Record};
use cordboard::{Ended, Engine, Errno, Origin, Running, Transfer, start};

use super::carries;
use super::inherited::{FORKED, fork_here, forks_in, install, status_of};
use crate::common::{self, watchdog};

/// Calls that may be made again after the handler. A handler that forks just before `epoll_ctl(2)`
/// would let both processes change the instance.
const CALLS: &[libc::c_long] = &[
    testkit::refuse::FCNTL,
    libc::SYS_kcmp,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_epoll_create1,
    libc::SYS_timerfd_create,
    libc::SYS_eventfd2,
    libc::SYS_socketpair,
];

fn is_child() -> bool {
    FORKED.load(Ordering::Acquire) == 0
}

/// Forks at each of the calls of `make`, which fails in the child, and gives `check` what it has
/// made in the parent.
fn forks_at_each_call<T: Send>(
    make: impl Fn() -> Result<T, Option<Errno>> + Sync,
    check: impl Fn(T),
) {
    install(fork_here);
    for moment in 0.. {
        let starter = &AtomicI32::new(0);
        FORKED.store(-1, Ordering::Release);
        let mut made = None;
        let body = || {
            starter.store(rustix::thread::gettid().as_raw_pid(), Ordering::Release);
            let result = make();
            if is_child() {
                let fails = matches!(result, Err(Some(Errno::ECHILD)));
                drop(result);
                testkit::child::end(fails);
            }
            made = Some(result);
        };
        let mut calls = 0;
        let held = testkit::midst::at_each(CALLS, body, || {
            if calls == moment {
                forks_in(starter.load(Ordering::Acquire));
            }
            calls += 1;
        });
        if held.is_none() {
            return testkit::skip::report("a child", "calls of another thread cannot be held");
        }
        let child = FORKED.load(Ordering::Acquire);
        if child >= 0 {
            assert_eq!(status_of(child), 0, "forked at call {moment}");
        }
        let made = made.expect("the call returns");
        check(made.unwrap_or_else(|errno| panic!("{errno:?}: forked at call {moment}")));
        if child < 0 {
            return assert!(moment > 1, "{moment}");
        }
    }
}

fn pipes() -> [(PipeReader, PipeWriter); 2] {
    [std::io::pipe().unwrap(), std::io::pipe().unwrap()]
}

/// A transfer that the parent starts, the caller's ends, and the descriptors that it was given: a
/// drop queries them, in a call that would be held.
type Started = (Running, PipeWriter, PipeReader, Vec<OwnedFd>);

fn moves_all((running, mut feed, mut end, given): Started) {
    drop(given);
    feed.write_all(b"abc").unwrap();
    drop(feed);
    let report = running.wait().report;
    assert_eq!((report.ended, report.written), (Ended::Eof, 3));
    let mut text = String::new();
    end.read_to_string(&mut text).unwrap();
    assert_eq!(text, "abc");
}

/// The child has no thread that would run the transfer on the parent's engine. On an engine of its
/// own it would take the parent's bytes.
#[test]
fn a_child_that_is_forked_in_a_start_starts_nothing() {
    let _dog = watchdog("a_child_that_is_forked_in_a_start_starts_nothing");
    if !common::alone!() {
        return;
    }
    let own = Engine::new(Default::default()).unwrap();
    // The calls of the engine's threads must not be held.
    assert!(carries());
    for engine in [None, Some(&own)] {
        let make = || {
            let [(source, feed), (end, sink)] = pipes();
            let given: Vec<OwnedFd> = vec![source.into(), sink.into()];
            let started = match engine {
                None => start(&given[0], &given[1], common::any()),
                Some(engine) => {
                    let [source, sink] = [0, 1].map(|n| given[n].as_fd());
                    Transfer::duplicating(source, sink, common::any())
                        .and_then(|transfer| engine.start(transfer))
                }
            };
            let running = started.map_err(|failure| failure.report.errno)?;
            match is_child() {
                true => Err(running.wait().report.errno),
                false => Ok((running, feed, end, given)),
            }
        };
        forks_at_each_call(make, moves_all);
    }
}

/// The child would remove the timer and the wakeup from the epoll instance that it shares with
/// the parent.
#[test]
fn a_child_that_is_forked_while_a_stepping_is_made_leaves_it_alone() {
    let _dog = watchdog("a_child_that_is_forked_while_a_stepping_is_made_leaves_it_alone");
    if !common::alone!() {
        return;
    }
    let make = || {
        let origin = Origin::here();
        let [(source, feed), (end, sink)] = pipes();
        let transfer = Transfer::owning(source.into(), sink.into(), common::any());
        let stepping = transfer.and_then(|transfer| transfer.stepping_in(origin));
        let stepping = stepping.map_err(|f| f.refusal.map(|refusal| refusal.errno()))?;
        Ok((stepping, feed, end))
    };
    forks_at_each_call(make, |(mut stepping, mut feed, _end)| {
        feed.write_all(b"abc").unwrap();
        drop(feed);
        let outcome = loop {
            let mut fds = [rustix::event::PollFd::new(
                &stepping,
                rustix::event::PollFlags::IN,
            )];
            rustix::event::poll(&mut fds, None).unwrap();
            if let Some(outcome) = stepping.step() {
                break outcome;
            }
        };
        assert_eq!(outcome.report.written, 3);
    });
}

/// No thread would serve the control descriptor of the child.
#[test]
fn a_child_that_is_forked_while_a_cue_is_made_gets_none() {
    let _dog = watchdog("a_child_that_is_forked_while_a_cue_is_made_gets_none");
    if !common::alone!() {
        return;
    }
    let make = || {
        let [(source, feed), (end, sink)] = pipes();
        let cue = Cue::new(source.as_fd(), sink.as_fd()).map_err(Some)?;
        Ok((cue, feed, end, source, sink))
    };
    // The calls of the thread that serves control descriptors must not be held.
    drop(make().unwrap());
    forks_at_each_call(make, |(mut cue, mut feed, ..)| {
        cue.send(Command::Write(3)).unwrap();
        feed.write_all(b"abc").unwrap();
        loop {
            match cue.receive().unwrap() {
                Some(Record::Done(done)) => return assert_eq!(done.written, 3),
                Some(_) => {}
                None => panic!("the service has ended"),
            }
        }
    });
}
