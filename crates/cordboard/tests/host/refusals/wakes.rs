//! Calls by which threads wake each other, refused.

use std::io::{Read, Write};
use std::os::fd::AsFd;

use super::{into_a_file, refuse};
use crate::common::{From, any, has_rings, only, watchdog};
use cordboard::{DataPath, Ended, Errno, Request, Transfer};
use testkit::needs::{self, Need};
use testkit::refuse::apart;

/// A control has no descriptor to wake the waiting thread, which checks the control
/// periodically.
#[test]
fn a_control_without_a_descriptor() {
    let _dog = watchdog("a_control_without_a_descriptor");
    for by_engine in [false, true] {
        let (source, mut feed) = std::io::pipe().unwrap();
        let (mut end, sink) = std::io::pipe().unwrap();
        let control = cordboard::Control::without_descriptor();
        let theirs = control.clone();
        let body = move || {
            let transfer = Transfer::owning(source.into(), sink.into(), any()).unwrap();
            let transfer = transfer.control(&theirs);
            match by_engine {
                true => transfer.start().unwrap().wait().report,
                false => transfer.run().report,
            }
        };
        let thread = std::thread::spawn(body);
        feed.write_all(b"silent from now on").unwrap();
        end.read_exact(&mut [0; 18]).unwrap();
        control.wake();
        control.cancel();
        let report = thread.join().unwrap();
        assert_eq!((report.ended, report.written), (Ended::Cancelled, 18));
    }
    for errno in [Errno::EPERM, Errno::EMFILE] {
        let refused = apart(|| {
            refuse(&[libc::SYS_eventfd2, libc::SYS_pipe2], errno);
            cordboard::Control::new().err()
        });
        assert_eq!(refused, Some(errno));
    }
}

/// The control's descriptor stays readable: a transfer that polled it would never
/// sleep and never be idle.
#[test]
fn a_wake_up_that_cannot_be_read() {
    let _dog = watchdog("a_wake_up_that_cannot_be_read");
    let name = "a transfer without read(2)";
    if needs::missing(name, &[Need::Splice]) {
        return;
    }
    let calls = [libc::SYS_read, libc::SYS_readv];
    for errno in [Errno::EPERM, Errno::ENOSYS, Errno::EINVAL] {
        let [(source, _feed), (_end, sink)] = [(); 2].map(|()| std::io::pipe().unwrap());
        let (report, made) = apart(|| {
            let control = cordboard::Control::new().unwrap();
            refuse(&calls, errno);
            control.wake();
            let request = Request {
                idle: Some(std::time::Duration::from_millis(1)),
                ..only(&[DataPath::Splice])
            };
            let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
            let report = transfer.control(&control).run().report;
            (report, cordboard::Control::new())
        });
        assert_eq!((report.ended, report.written), (Ended::Idle, 0));
        assert_eq!(made.err(), Some(errno));
    }
}

/// An engine's threads wake each other by a descriptor: by a pipe if eventfds are
/// refused, with `writev(2)` if `write(2)` is refused. If these are refused too, or
/// the descriptor cannot be read, no engine can be made.
#[test]
fn an_engine_that_cannot_be_woken() {
    let _dog = watchdog("an_engine_that_cannot_be_woken");
    let mut works = vec![&[libc::SYS_eventfd2][..], &[libc::SYS_write]];
    if !needs::missing("engines without pipes", &[Need::Eventfd]) {
        works.push(&[libc::SYS_pipe2]);
    }
    let not = [
        &[libc::SYS_eventfd2, libc::SYS_pipe2][..],
        &[libc::SYS_write, libc::SYS_writev],
        &[libc::SYS_read, libc::SYS_readv],
    ];
    for errno in [Errno::EPERM, Errno::ENOSYS, Errno::EINVAL] {
        for calls in &works {
            let [(source, feed), (end, sink)] = [(); 2].map(|()| std::io::pipe().unwrap());
            let transfer = Transfer::owning(source.into(), sink.into(), any()).unwrap();
            rustix::io::write(&feed, b"call").unwrap();
            let report = apart(|| {
                refuse(calls, errno);
                let engine = cordboard::Engine::new(Default::default()).unwrap();
                let running = engine.start(transfer).unwrap();
                assert_eq!(rustix::io::read(&end, &mut [0; 4]), Ok(4));
                running.cancel();
                running.wait().report
            });
            assert_eq!((report.ended, report.written), (Ended::Cancelled, 4));
        }
        for calls in not {
            let refused = apart(|| {
                refuse(calls, errno);
                cordboard::Engine::new(Default::default()).err()
            });
            assert_eq!(refused, Some(errno), "{calls:?}");
        }
    }
}

/// The kernel signals completions of rings by eventfds only. Without eventfds an
/// engine that must use rings fails at once, and any other has threads do its direct
/// I/O.
#[test]
fn a_ring_that_can_wake_nobody() {
    use cordboard::engine::{Backend, Options};
    let _dog = watchdog("a_ring_that_can_wake_nobody");
    if !crate::common::alone!() {
        return;
    }
    let request = Request {
        direct: cordboard::Direct::Always,
        ..only(&[DataPath::Direct])
    };
    let rings = has_rings();
    for errno in [Errno::EPERM, Errno::EACCES, Errno::ENOSYS, Errno::EINVAL] {
        let calls = [libc::SYS_eventfd2];
        let report = into_a_file(From::File, request.clone(), &calls, errno);
        assert_eq!(report.path, [DataPath::Direct], "by threads: {report:?}");
        let refused = apart(|| {
            refuse(&calls, errno);
            let backend = Backend::Uring;
            let options = Options {
                backend,
                ..Default::default()
            };
            cordboard::Engine::new(options).err()
        });
        if rings {
            assert_eq!(refused, Some(errno));
        }
        assert!(refused.is_some(), "an engine with rings");
    }
}
