//! Filters that refuse the call by which the threads of the library wait.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::event::{EventfdFlags, eventfd};

use super::*;
use crate::common::{is_due, wait};

const EPOLL: [libc::c_long; 2] = [libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2];

/// Making an engine fails if it could not wait.
#[test]
fn an_engine_that_may_not_wait() {
    let _dog = watchdog("an_engine_that_may_not_wait");
    for errno in [Errno::EPERM, Errno::ENOSYS, Errno::EINVAL] {
        let refused = apart(|| {
            refuse(&EPOLL, errno);
            cordboard::Engine::new(Default::default()).err()
        });
        assert_eq!(refused, Some(errno));
    }
}

/// So does making a control descriptor, instead of one that answers nothing.
#[test]
fn a_control_descriptor_that_may_not_wait() {
    let _dog = watchdog("a_control_descriptor_that_may_not_wait");
    if !common::alone!() {
        return;
    }
    let (source, sink) = std::io::pipe().unwrap();
    for errno in [Errno::EPERM, Errno::ENOSYS, Errno::EINVAL] {
        let refused = apart(|| {
            refuse(&EPOLL, errno);
            cordboard::Cue::new(&source, &sink).err()
        });
        assert_eq!(refused, Some(errno));
    }
    assert!(cordboard::Cue::new(&source, &sink).is_ok());
}

/// A filter that is installed during transfers: they fail, and no thread spins.
#[test]
fn an_engine_that_may_not_wait_any_more() {
    let _dog = watchdog("an_engine_that_may_not_wait_any_more");
    if !common::alone!() {
        return;
    }
    let pipes = [(); 4].map(|()| std::io::pipe().unwrap());
    let [
        (first, mut feed),
        (mut end, to),
        (silent, _feed),
        (_end, nowhere),
    ] = pipes;
    let both = [
        cordboard::start(&silent, &nowhere, any()).unwrap(),
        cordboard::start(&first, &to, any()).unwrap(),
    ];
    feed.write_all(b"a").unwrap();
    end.read_exact(&mut [0]).unwrap();
    refuse_all(&EPOLL, Errno::EPERM);
    // Ends the wait of the thread, if it waits.
    feed.write_all(b"b").unwrap();
    for (running, written) in both.into_iter().zip([0..=0, 1..=2]) {
        let report = running.wait().report;
        assert_eq!(
            (report.errno, report.failed),
            (Some(Errno::EPERM), None),
            "{report:?}"
        );
        assert!(written.contains(&report.written) && report.read == report.written);
    }
    let failure = cordboard::start(&first, &to, any()).unwrap_err();
    let errno = Errno::ESHUTDOWN;
    assert_eq!(failure.refusal, Some(Refusal::NoEngine { errno }));
}

/// A filter returns the errno by which `epoll_ctl(2)` refuses a file without poll: a blocking
/// descriptor is not used before it is ready.
#[test]
fn an_engine_without_registrations() {
    let name = "an_engine_without_registrations";
    let _dog = watchdog(name);
    if testkit::needs::missing(name, &[Need::Eventfd]) || !common::alone!() {
        return;
    }
    let counter = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let sink = tempfile::tempfile().unwrap();
    let engine = cordboard::Engine::new(Default::default()).unwrap();
    refuse_all(&[libc::SYS_epoll_ctl], Errno::EPERM);
    let request = Request {
        idle: Some(std::time::Duration::from_millis(100)),
        ..any()
    };
    let transfer = Transfer::duplicating(counter.as_fd(), sink.as_fd(), request).unwrap();
    let report = engine.start(transfer).unwrap().wait().report;
    assert_eq!((report.ended, report.read), (Ended::Idle, 0), "{report:?}");
}

/// A transfer for the caller's event loop cannot fetch its events: `poll(2)` shows what is ready.
#[test]
fn steps_without_events() {
    let _dog = watchdog("steps_without_events");
    for (errno, waits) in [Errno::EPERM, Errno::ENOSYS, Errno::EINVAL]
        .into_iter()
        .flat_map(|errno| [(errno, false), (errno, true)])
    {
        let [(source, mut feed), (mut end, sink)] = [(); 2].map(|()| UnixStream::pair().unwrap());
        for socket in [&source, &sink] {
            socket.set_nonblocking(!waits).unwrap();
        }
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), any()).unwrap();
        let mut stepping = transfer.stepping().unwrap();
        let outcome = apart(|| {
            refuse(&EPOLL, errno);
            for bytes in [b"one", b"two"] {
                // Until it waits for the source.
                while stepping.is_due() {
                    assert!(stepping.step().is_none(), "{errno}");
                }
                feed.write_all(bytes).unwrap();
                let ended = stepping.step();
                assert!(ended.is_none(), "{errno}: {ended:?}");
            }
            drop(feed);
            std::iter::repeat_with(|| stepping.step())
                .flatten()
                .next()
                .unwrap()
        });
        let mut all = [0; 6];
        end.read_exact(&mut all).unwrap();
        assert_eq!((outcome.report.ended, &all), (Ended::Eof, b"onetwo"));
    }
}

/// `epoll_ctl(2)` has no room for another descriptor (`max_user_watches`), or a filter refuses it:
/// a timer and `poll(2)` take the place of events, also for a pause and a cancellation.
#[test]
fn steps_without_registrations() {
    let _dog = watchdog("steps_without_registrations");
    for errno in [Errno::ENOSPC, Errno::EPERM] {
        let unix = |waits: bool| {
            let (source, feed) = UnixStream::pair().unwrap();
            source.set_nonblocking(!waits).unwrap();
            (source.into(), feed.into())
        };
        let (reader, writer) = std::io::pipe().unwrap();
        let mut sources: Vec<((OwnedFd, OwnedFd), Request)> = vec![
            (unix(false), any()),
            (unix(true), any()),
            ((reader.into(), writer.into()), only(&[DataPath::ReadWrite])),
        ];
        if !testkit::needs::missing("steps with an eventfd", &[Need::Eventfd]) {
            let counter = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
            sources.push(((counter.try_clone().unwrap(), counter), any()));
        }
        for ((source, feed), request) in sources {
            let sink = tempfile::tempfile().unwrap();
            let control = cordboard::Control::new().unwrap();
            let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
            let mut stepping = transfer.control(&control).stepping().unwrap();
            let mut feed = File::from(feed);
            let outcome = apart(|| {
                refuse(&[libc::SYS_epoll_ctl], errno);
                for number in [1u64, 2] {
                    control.pause();
                    feed.write_all(&number.to_ne_bytes()).unwrap();
                    for _ in 0..3 {
                        wait(&stepping);
                        assert!(stepping.step().is_none());
                        while stepping.is_due() {
                            assert!(stepping.step().is_none());
                        }
                    }
                    let written = stepping.progress().written + 8;
                    control.resume();
                    while stepping.progress().written < written {
                        wait(&stepping);
                        assert!(stepping.step().is_none());
                    }
                }
                control.cancel();
                loop {
                    wait(&stepping);
                    if let Some(outcome) = stepping.step() {
                        break outcome;
                    }
                }
            });
            let ended = (outcome.report.ended, outcome.report.written);
            assert_eq!(ended, (Ended::Cancelled, 16), "{errno}: {outcome:?}");
            let numbers = [1u64, 2].map(u64::to_ne_bytes);
            assert_eq!(content(&sink), numbers.as_flattened());
        }
    }
}

/// A filter refuses to set the timer of a wait that only the timer ends.
#[test]
fn steps_without_a_timer() {
    let _dog = watchdog("steps_without_a_timer");
    let calls = [libc::SYS_timerfd_settime];
    for errno in [Errno::EPERM, Errno::ENOSYS, Errno::EINVAL] {
        let data = pattern(300_000);
        let (source, sink) = (common::file_with(&data), tempfile::tempfile().unwrap());
        let control = cordboard::Control::new().unwrap();
        control.set_schedule(cordboard::Schedule::rate(100 << 20));
        let paced = || {
            let transfer = Transfer::new(source.as_fd(), sink.as_fd(), any()).unwrap();
            transfer.control(&control).stepping()
        };
        let mut stepping = paced().unwrap();
        let report = apart(|| {
            refuse(&calls, errno);
            let refused = paced().err().and_then(|failure| failure.refusal);
            assert_eq!(refused, Some(Refusal::NoStepping { errno }));
            loop {
                wait(&stepping);
                if let Some(outcome) = stepping.step() {
                    break outcome.report;
                }
            }
        });
        assert_eq!(report.ended, Ended::Eof, "{errno}: {report:?}");
        assert!(content(&sink) == data);
    }
}

/// A filter refuses to read the eventfd of the steps: it stays readable, and no step is possible.
#[test]
fn steps_whose_event_cannot_be_cleared() {
    let name = "steps_whose_event_cannot_be_cleared";
    let _dog = watchdog(name);
    if testkit::needs::missing(name, &[Need::Splice]) {
        return;
    }
    let calls = [libc::SYS_read, libc::SYS_readv];
    for errno in [Errno::EPERM, Errno::ENOSYS, Errno::EINVAL] {
        let [(source, mut feed), (mut end, sink)] = [(); 2].map(|()| std::io::pipe().unwrap());
        let request = only(&[DataPath::Splice]);
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        let mut stepping = transfer.stepping().unwrap();
        let outcome = apart(|| {
            refuse(&calls, errno);
            for bytes in [b"one", b"two"] {
                while is_due(&stepping) {
                    assert!(stepping.step().is_none());
                }
                assert!(!stepping.is_due());
                feed.write_all(bytes).unwrap();
                assert!(is_due(&stepping));
            }
            drop(feed);
            loop {
                wait(&stepping);
                if let Some(outcome) = stepping.step() {
                    break outcome;
                }
            }
        });
        assert!(is_due(&stepping), "it stays readable");
        let mut all = [0; 6];
        end.read_exact(&mut all).unwrap();
        assert_eq!((outcome.report.ended, &all), (Ended::Eof, b"onetwo"));
    }
}
