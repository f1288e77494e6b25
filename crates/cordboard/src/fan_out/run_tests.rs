//! The loop with an injected clock.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use rustix::event::PollFd;
use rustix::pipe::{PipeFlags, pipe_with};

use super::{FanOut, OnSlow, SinkEnded};
use crate::compose::{Poll, Refuses, Waiter};
use crate::errno::Errno;
use crate::report::Ended;
use crate::request::Request;
use crate::transfer::Control;

use super::outcome::FanOutOutcome;

/// Returns the number of descriptors of this process that refer to the file.
fn descriptors(file: &std::fs::File) -> usize {
    let link = |name: String| std::fs::read_link(format!("/proc/self/fd/{name}")).ok();
    let own = link(file.as_raw_fd().to_string());
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    let names = all.filter_map(|fd| fd.ok()?.file_name().into_string().ok());
    names.filter(|name| link(name.clone()) == own).count()
}

/// A [`Waiter`] that lets the engine end the transfer to the sink before it returns the
/// time.
struct Late<'a> {
    inner: Poll,
    sink: &'a std::fs::File,
}

impl Waiter for Late<'_> {
    fn now(&mut self) -> Duration {
        for _ in 0..200 {
            if descriptors(self.sink) == 1 {
                // A transfer reports its end after it has closed its descriptors.
                for _ in 0..200 {
                    std::thread::yield_now();
                }
                break;
            }
            std::thread::yield_now();
        }
        self.inner.now()
    }

    fn wait(&mut self, fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> Result<(), Errno> {
        assert!(
            !fds.is_empty() || timeout.is_some(),
            "the wait would never end"
        );
        self.inner.wait(fds, timeout)
    }
}

/// The transfer to the sink ends just before the wait for it.
#[test]
fn an_end_that_comes_before_the_wait_is_seen() {
    for _ in 0..20 {
        let source = tempfile::tempfile().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&source, &[7; 5000], 0).unwrap();
        let sink = tempfile::tempfile().unwrap();
        let fan = FanOut::new(source.as_fd(), &[sink.as_fd()], Request::default()).unwrap();
        let mut late = Late {
            inner: Poll::new(),
            sink: &sink,
        };
        let outcome = fan.run_with(&mut late).unwrap();
        assert_eq!(outcome.sinks[0].written, 5000);
    }
}

/// A [`Waiter`] that reads the first sink, and the second one only while the first is empty.
struct Uneven([OwnedFd; 2]);

impl Waiter for Uneven {
    fn now(&mut self) -> Duration {
        Duration::from_secs(1)
    }

    fn wait(&mut self, fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> Result<(), Errno> {
        Poll::new().wait(fds, Some(Duration::ZERO))?;
        if timeout != Some(Duration::ZERO) {
            let mut piece = vec![0; 1 << 20];
            let mut read = |sink: &OwnedFd| rustix::io::read(sink, &mut piece).is_ok();
            let _ = read(&self.0[0]) || read(&self.0[1]);
        }
        Ok(())
    }
}

#[test]
fn the_longest_limits_never_end() {
    let source = tempfile::tempfile().unwrap();
    source.set_len(8 << 20).unwrap();
    let pipe = || pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).unwrap();
    let ((fast, first), (slow, second)) = (pipe(), pipe());
    let request = Request {
        idle: Some(Duration::MAX),
        ..Request::default()
    };
    let fan = FanOut::new(source.as_fd(), &[first.as_fd(), second.as_fd()], request).unwrap();
    let fan = fan.on_slow(OnSlow::Detach).patience(Duration::MAX);
    let outcome = fan.run_with(&mut Uneven([fast, slow])).unwrap();
    assert!(outcome.is_complete(), "{outcome:?}");
    for sink in outcome.sinks {
        assert_eq!(sink.written, 8 << 20);
    }
}

/// Checks that each sink accounts for all bytes that were read.
fn check_accounts(outcome: &FanOutOutcome) {
    assert_eq!(outcome.read, outcome.source.written);
    for sink in &outcome.sinks {
        assert_eq!(sink.read, outcome.read, "{outcome:?}");
        let sum = sink.written + sink.dropped + sink.stranded;
        assert_eq!(sink.read, sum, "{outcome:?}");
        assert_eq!(sink.ended, SinkEnded::Stopped, "{outcome:?}");
    }
}

/// The first sink needs the bytes in a buffer, which the pages do not give.
#[test]
fn a_block_that_cannot_be_read_is_stranded_for_every_sink() {
    if !testkit::needs::Need::Splice.is_met() {
        return testkit::skip::report(
            "a_block_that_cannot_be_read_is_stranded_for_every_sink",
            "no splice(2) here",
        );
    }
    let source = tempfile::tempfile().unwrap();
    source.set_len(100_000).unwrap();
    let (first, second) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
    let sinks = [first.1.as_fd(), second.1.as_fd()];
    let outcome = testkit::refuse::apart(|| {
        testkit::refuse::refuse(&[libc::SYS_tee], libc::ENOSYS);
        testkit::refuse::refuse(&[libc::SYS_read], libc::EIO);
        let fan = FanOut::new(source.as_fd(), &sinks, Request::default()).unwrap();
        fan.run().unwrap()
    });
    assert_eq!((outcome.ended, outcome.wait_failed), (Ended::Error, false));
    assert_eq!(outcome.errno, Some(Errno::EIO));
    check_accounts(&outcome);
    assert!(outcome.read > 0);
    assert_eq!(outcome.sinks[0].stranded, outcome.read);
    assert_eq!(outcome.sinks[1].stranded, outcome.read);
}

/// A [`Waiter`] that cancels instead of waiting.
struct Cancelling(Control);

impl Waiter for Cancelling {
    fn now(&mut self) -> Duration {
        Duration::ZERO
    }

    fn wait(&mut self, _: &mut [PollFd<'_>], _: Option<Duration>) -> Result<(), Errno> {
        self.0.cancel();
        Ok(())
    }
}

/// The sinks are full when the fan-out is cancelled, and the pages that were kept for them
/// are lost.
#[test]
fn pages_that_cannot_be_read_at_the_end_are_counted() {
    if !testkit::needs::Need::Splice.is_met() {
        return testkit::skip::report(
            "pages_that_cannot_be_read_at_the_end_are_counted",
            "no splice(2) here",
        );
    }
    let source = tempfile::tempfile().unwrap();
    source.set_len(8 << 20).unwrap();
    let (first, second) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
    let sinks = [first.1.as_fd(), second.1.as_fd()];
    let control = Control::new().unwrap();
    let outcome = testkit::refuse::apart(|| {
        testkit::refuse::refuse(&[libc::SYS_read], libc::EIO);
        let fan = FanOut::new(source.as_fd(), &sinks, Request::default()).unwrap();
        let fan = fan.control(&control);
        fan.run_with(&mut Cancelling(control.clone())).unwrap()
    });
    assert_eq!(outcome.ended, Ended::Cancelled);
    check_accounts(&outcome);
    for sink in outcome.sinks {
        assert!(sink.written > 0 && sink.stranded > 0, "{sink:?}");
    }
}

/// A [`Waiter`] whose first wait makes room in the sink, after half of the idle limit, and
/// waits for the fan-out's descriptors. Each further wait times out.
struct HalfIdle {
    now: Duration,
    idle: Duration,
    reader: UnixDatagram,
    waits: u32,
}

impl Waiter for HalfIdle {
    fn now(&mut self) -> Duration {
        self.now
    }

    fn wait(&mut self, fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> Result<(), Errno> {
        let Some(timeout) = timeout else {
            // Only the end of the transfer is left.
            return Poll::new().wait(fds, None);
        };
        self.waits += 1;
        if self.waits > 1 {
            self.now += timeout;
            return Ok(());
        }
        self.now += self.idle / 2;
        while self.reader.recv(&mut [0; 16]).is_ok() {}
        Poll::new().wait(fds, Some(Duration::from_secs(60)))?;
        let woken = fds.iter().any(|fd| !fd.revents().is_empty());
        assert!(woken, "the transfer to the sink wakes no thread");
        Ok(())
    }
}

/// The idle limit begins when the sink accepts the last datagram, and not when the next wait
/// ends.
#[test]
fn the_idle_limit_begins_at_the_last_datagram() {
    let (feed, source) = UnixDatagram::pair().unwrap();
    let (sink, reader) = UnixDatagram::pair().unwrap();
    for socket in [&sink, &reader] {
        socket.set_nonblocking(true).unwrap();
    }
    while sink.send(b"before").is_ok() {}
    feed.send(b"the last").unwrap();
    let idle = Duration::from_secs(3600);
    let request = Request {
        idle: Some(idle),
        ..Request::default()
    };
    let fan = FanOut::new(source.as_fd(), &[sink.as_fd()], request).unwrap();
    let mut waiter = HalfIdle {
        now: Duration::ZERO,
        idle,
        reader,
        waits: 0,
    };
    let outcome = fan.run_with(&mut waiter).unwrap();
    assert_eq!(outcome.ended, Ended::Idle, "{outcome:?}");
    assert_eq!(outcome.sinks[0].written, 8, "{outcome:?}");
    // The wakeup may come before the datagram counts. Then the second wait does, whose time
    // passes at once.
    let ends = [(idle / 2 + idle, 2), (idle / 2 + 2 * idle, 3)];
    let end = (waiter.now, waiter.waits);
    assert!(ends.contains(&end), "{end:?}");
}

/// The fan-out is paused just after a wait has found bytes in the source. Another process
/// takes them during the pause, and a third one then holds the lock of the pipe.
#[test]
fn after_a_pause_the_source_is_polled_again() {
    let name = "after_a_pause_the_source_is_polled_again";
    if testkit::needs::missing(name, &[testkit::needs::Need::Splice]) {
        return;
    }
    let _dog = testkit::watchdog::watch(name);
    let (reader, feed) = std::io::pipe().unwrap();
    let source = reader.try_clone().unwrap();
    let (_reader, sink) = std::io::pipe().unwrap();
    let control = Control::new().unwrap();
    let mut waiter = Paused {
        control: control.clone(),
        ends: Some((reader, feed)),
        locked: None,
        waits: 0,
    };
    let fan = FanOut::new(source.as_fd(), &[sink.as_fd()], Request::default()).unwrap();
    let outcome = fan.control(&control).run_with(&mut waiter).unwrap();
    assert_eq!((outcome.ended, outcome.read), (Ended::Eof, 1));
}

/// A [`Waiter`] that pauses the fan-out in its first wait, takes the bytes in the second one,
/// and releases the lock in the third one.
struct Paused {
    control: Control,
    ends: Option<(PipeReader, PipeWriter)>,
    locked: Option<testkit::locked::Locked>,
    waits: u32,
}

impl Waiter for Paused {
    fn now(&mut self) -> Duration {
        Duration::ZERO
    }

    fn wait(&mut self, fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> Result<(), Errno> {
        if timeout == Some(Duration::ZERO) {
            return Poll::new().wait(fds, timeout);
        }
        self.waits += 1;
        match (self.waits, self.ends.take()) {
            (1, Some((reader, mut feed))) => {
                feed.write_all(b"taken").unwrap();
                self.control.pause();
                self.ends = Some((reader, feed));
            }
            (2, Some((mut reader, feed))) => {
                reader.read_exact(&mut [0; 5]).unwrap();
                self.locked = Some(testkit::locked::Locked::of(reader, feed));
                self.control.resume();
            }
            _ => drop(self.locked.take().map(testkit::locked::Locked::release)),
        }
        Poll::new().wait(fds, Some(Duration::ZERO))
    }
}

#[test]
fn a_wait_that_fails_is_a_failure_of_neither_side() {
    let (source, _feed) = std::io::pipe().unwrap();
    let sink = tempfile::tempfile().unwrap();
    let fan = FanOut::new(source.as_fd(), &[sink.as_fd()], Request::default()).unwrap();
    let outcome = fan.run_with(&mut Refuses).unwrap();
    assert_eq!(
        (outcome.ended, outcome.errno),
        (Ended::Error, Some(Errno::EPERM))
    );
    assert_eq!((outcome.failed_sink, outcome.wait_failed), (None, true));
}
