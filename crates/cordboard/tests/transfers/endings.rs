//! Endings that are not caused by the sink: the size reached, a cancel, the idle
//! limit, a source that fails. And signals, which end no transfer.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::datagrams::{BOTH, Sort, pair};
use crate::common::{
    self, BOUNDARIES, Cancelling, MIB, SOURCES, Source, any, audit, content, file_with, only,
    paths, pattern, run, watchdog,
};
use cordboard::DataPath::{ReadWrite, Splice};
use cordboard::{Control, Ended, Errno, Observer, Progress, Request, Side, Transfer};
use rustix::net::{RecvFlags, SendFlags, recv, send};

#[test]
fn a_source_that_is_reset() {
    let _dog = watchdog("a_source_that_is_reset");
    for path in common::forcible(&[Splice, ReadWrite]) {
        let (source, peer) = common::tcp_pair();
        let sink = tempfile::tempfile().unwrap();
        (&peer).write_all(b"hello").unwrap();
        rustix::net::sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).unwrap();
        drop(peer);
        let report = run(&source, &sink, only(&[path])).report;
        assert_eq!(report.failed, Some(Side::Source), "{report:?}");
        assert_eq!(report.errno, Some(Errno::ECONNRESET), "{report:?}");
        assert_eq!((report.written, report.stranded), (report.read, 0));
        assert_eq!(content(&sink).len() as u64, report.written);
    }
}

#[test]
fn the_size_is_reached_exactly_and_the_rest_stays() {
    let _dog = watchdog("the_size_is_reached_exactly_and_the_rest_stays");
    let data = pattern(2 * MIB);
    for n in BOUNDARIES {
        for from in SOURCES {
            for path in paths(from, true, false) {
                let what = format!("{from:?} by {path}, {n}");
                let source = Source::new(from, &data);
                let sink = tempfile::tempfile().unwrap();
                let request = Request {
                    size: (n as u64).into(),
                    ..only(&[path])
                };
                let outcome = run(&source.fd, &sink, request);
                let report = &outcome.report;
                assert_eq!((report.ended, report.written), (Ended::Size, n as u64));
                assert_eq!(report.stranded, 0, "{what}: {report:?}");
                assert!(content(&sink) == data[..n], "{what}");
                audit(&what, outcome, source, from, &data);
            }
        }
    }
}

/// Cancels after four checks without progress.
struct WhenStuck<'a> {
    control: &'a Control,
    last: u64,
    same: u32,
}

impl Observer for WhenStuck<'_> {
    fn progress(&mut self, progress: &Progress) {
        self.same = if progress.written == self.last {
            self.same + 1
        } else {
            0
        };
        self.last = progress.written;
        if self.same > 3 {
            self.control.cancel();
        }
    }

    fn interval(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }
}

#[test]
fn cancelled_or_idle_with_a_sink_that_is_full() {
    let _dog = watchdog("cancelled_or_idle_with_a_sink_that_is_full");
    let data = pattern(12 * MIB);
    for from in SOURCES {
        for path in common::forcible(&[Splice, ReadWrite]) {
            for idle in [false, true] {
                let what = format!("{from:?} by {path}, idle: {idle}");
                let source = Source::new(from, &data);
                let (sink, mut peer) = UnixStream::pair().unwrap();
                let control = Control::new().unwrap();
                let mut stuck = WhenStuck {
                    control: &control,
                    last: 0,
                    same: 0,
                };
                let request = Request {
                    idle: idle.then_some(Duration::from_millis(5)),
                    ..only(&[path])
                };
                let mut transfer = Transfer::new(source.fd.as_fd(), sink.as_fd(), request).unwrap();
                if !idle {
                    transfer = transfer.control(&control).observe(&mut stuck);
                }
                let outcome = transfer.run();
                let expected = if idle { Ended::Idle } else { Ended::Cancelled };
                assert_eq!(outcome.report.ended, expected, "{what}");
                drop(sink);
                let mut got = Vec::new();
                peer.read_to_end(&mut got).unwrap();
                assert_eq!(got.len() as u64, outcome.report.written, "{what}");
                assert!(got == data[..got.len()], "{what}");
                audit(&what, outcome, source, from, &data);
            }
        }
    }
}

#[test]
fn cancelled_before_it_began_and_while_it_waited() {
    let _dog = watchdog("cancelled_before_it_began_and_while_it_waited");
    for path in common::forcible(&[Splice, ReadWrite]) {
        let control = Control::new().unwrap();
        control.cancel();
        let source = file_with(b"never asked for");
        let sink = tempfile::tempfile().unwrap();
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), only(&[path])).unwrap();
        let report = transfer.control(&control).run().report;
        assert_eq!((report.ended, report.read), (Ended::Cancelled, 0));

        let control = Control::new().unwrap();
        let (reader, mut feed) = std::io::pipe().unwrap();
        let (mut out, writer) = std::io::pipe().unwrap();
        feed.write_all(b"hello").unwrap();
        let report = std::thread::scope(|scope| {
            scope.spawn(|| {
                out.read_exact(&mut [0; 5]).unwrap();
                control.cancel();
            });
            let transfer = Transfer::new(reader.as_fd(), writer.as_fd(), only(&[path])).unwrap();
            transfer.control(&control).run().report
        });
        assert_eq!((report.ended, report.written), (Ended::Cancelled, 5));
        assert_eq!((report.read, report.stranded), (5, 0));
    }
}

/// A cancelled transfer reads nothing more, however much its source has.
#[test]
fn a_cancelled_stream_takes_no_more() {
    let _dog = watchdog("a_cancelled_stream_takes_no_more");
    let data = pattern(12 * MIB);
    for from in SOURCES {
        for path in paths(from, false, false) {
            let what = format!("{from:?} by {path}");
            let source = Source::new(from, &data);
            let (sink, mut peer) = UnixStream::pair().unwrap();
            // Otherwise a transfer with a control would not send pages.
            sink.set_nonblocking(true).unwrap();
            let reader = std::thread::spawn(move || {
                let mut got = Vec::new();
                peer.read_to_end(&mut got).map(|_| got)
            });
            let control = Control::new().unwrap();
            let mut cancel = Cancelling::at(1, &control, 0);
            let transfer = Transfer::new(source.fd.as_fd(), sink.as_fd(), only(&[path])).unwrap();
            let outcome = transfer.control(&control).observe(&mut cancel).run();
            drop(sink);
            cancel.check(&outcome.report);
            let got = reader.join().unwrap().unwrap();
            assert_eq!(got.len() as u64, outcome.report.written, "{what}");
            assert!(got == data[..got.len()], "{what}");
            audit(&what, outcome, source, from, &data);
        }
    }
}

/// The same for datagrams, of which it may have received several.
#[test]
fn a_cancelled_transfer_receives_no_more_datagrams() {
    let _dog = watchdog("a_cancelled_transfer_receives_no_more_datagrams");
    for path in BOTH {
        let ((a, source), (sink, b)) = (pair(Sort::Unix), pair(Sort::Unix));
        let none = SendFlags::empty();
        let sender = std::thread::spawn(move || while send(&a, &[7; 100], none).is_ok() {});
        let reader = std::thread::spawn(move || {
            let mut got = 0;
            while let Ok((n @ 1.., _)) = recv(&b, &mut [0; 200][..], RecvFlags::empty()) {
                got += n as u64;
            }
            got
        });
        let control = Control::new().unwrap();
        let mut cancel = Cancelling::at(1, &control, 0);
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), only(&[path])).unwrap();
        let outcome = transfer.control(&control).observe(&mut cancel).run();
        drop(source);
        // An empty one ends the reader.
        send(&sink, &[], none).unwrap();
        sender.join().unwrap();
        let report = &outcome.report;
        cancel.check(report);
        assert_eq!(report.path, [path], "{report:?}");
        assert_eq!(reader.join().unwrap(), report.written, "{report:?}");
        assert_eq!(report.read, report.written + report.stranded, "{report:?}");
        let stranded = common::handed_back(outcome.stranded);
        assert_eq!(stranded.len() as u64, report.stranded, "{path}");
    }
}

extern "C" fn nothing(_: libc::c_int) {}

/// Installs a handler without `SA_RESTART`, so that calls fail with `EINTR`.
fn interruptible() {
    // SAFETY: an all-zero sigaction is valid; the handler does nothing.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as *const () as usize;
    // SAFETY: installs it for a signal that nothing else here uses.
    unsafe { libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()) };
}

#[test]
fn signals_without_end_change_nothing() {
    interruptible();
    let data = pattern(6 * MIB);
    for from in SOURCES {
        for path in paths(from, true, false) {
            for polled in [false, true] {
                let what = format!("{from:?} by {path}, polled: {polled}");
                let _dog = watchdog(format!("signals without end, {what}"));
                let source = Source::new(from, &data);
                let sink = tempfile::tempfile().unwrap();
                let control = Control::new().unwrap();
                let done = AtomicBool::new(false);
                // A number, or a pointer with musl.
                // SAFETY: takes nothing and returns this thread's handle.
                let me = unsafe { libc::pthread_self() } as usize;
                let outcome = std::thread::scope(|scope| {
                    let _ends = testkit::ends::Ends(&done);
                    scope.spawn(|| {
                        while !done.load(Ordering::Relaxed) {
                            // SAFETY: the thread outlives this scope.
                            unsafe { libc::pthread_kill(me as libc::pthread_t, libc::SIGUSR1) };
                            std::thread::yield_now();
                        }
                    });
                    let mut transfer =
                        Transfer::new(source.fd.as_fd(), sink.as_fd(), only(&[path])).unwrap();
                    if polled {
                        transfer = transfer.control(&control);
                    }
                    transfer.run()
                });
                let report = &outcome.report;
                assert_eq!(report.ended, Ended::Eof, "{what}: {report:?}");
                assert_eq!(report.written, data.len() as u64, "{what}");
                assert!(content(&sink) == data, "{what}");
                audit(&what, outcome, source, from, &data);
            }
        }
    }
}

/// Bytes that the kernel generates cannot be read a second time.
#[test]
fn what_cannot_be_made_up_again_is_handed_back() {
    let _dog = watchdog("what_cannot_be_made_up_again_is_handed_back");
    let source = std::fs::File::open("/proc/version").unwrap();
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let outcome = run(&source, &full, only(&[ReadWrite]));
    let report = &outcome.report;
    assert_eq!(report.errno, Some(Errno::ENOSPC), "{report:?}");
    assert_eq!((report.written, report.read), (0, report.stranded));
    let back = common::handed_back(outcome.stranded);
    assert_eq!(back, std::fs::read("/proc/version").unwrap());
}

/// Every step is reported before the thread sleeps in the next one.
#[test]
fn an_observer_hears_of_what_moved_before_the_next_wait() {
    struct Tell(std::sync::mpsc::Sender<u64>);
    impl Observer for Tell {
        fn progress(&mut self, progress: &Progress) {
            let _ = self.0.send(progress.written);
        }
    }
    let _dog = watchdog("an_observer_hears_of_what_moved_before_the_next_wait");
    for path in common::forcible(&[Splice, ReadWrite]) {
        let (source, mut feed) = UnixStream::pair().unwrap();
        let sink = tempfile::tempfile().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let heard = std::thread::spawn(move || {
            feed.write_all(b"hello").unwrap();
            while let Ok(written) = told.recv_timeout(testkit::watchdog::patience()) {
                if written == 5 {
                    return true;
                }
            }
            false
        });
        let mut tell = Tell(tell);
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), only(&[path])).unwrap();
        transfer.observe(&mut tell).run();
        assert!(heard.join().unwrap(), "{path}");
    }
}

/// A read/write loop would find the end of the source and never write, and so
/// never detect the closed reader.
#[test]
fn nobody_misses_a_reader_for_whom_there_is_nothing() {
    let empty_pipe = || -> std::os::fd::OwnedFd { std::io::pipe().unwrap().0.into() };
    let empty_file = || -> std::os::fd::OwnedFd { tempfile::tempfile().unwrap().into() };
    let closed_peer =
        || -> std::os::fd::OwnedFd { std::os::unix::net::UnixStream::pair().unwrap().0.into() };
    for source in [empty_pipe(), empty_file(), closed_peer()] {
        let (reader, sink) = std::io::pipe().unwrap();
        drop(reader);
        let report = run(&source, &sink, any()).report;
        assert_eq!((report.ended, report.read), (Ended::Eof, 0), "{report:?}");
        let report = cordboard::start(&source, &sink, any())
            .unwrap()
            .wait()
            .report;
        assert_eq!((report.ended, report.read), (Ended::Eof, 0), "{report:?}");
    }
    // With bytes to write it fails.
    let (source, mut feed) = std::io::pipe().unwrap();
    feed.write_all(b"x").unwrap();
    drop(feed);
    let (reader, sink) = std::io::pipe().unwrap();
    drop(reader);
    let report = run(&source, &sink, any()).report;
    assert_eq!(report.errno, Some(Errno::EPIPE));
}
