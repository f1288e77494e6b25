//! Slow and failing sinks, with an injected clock.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::PollFd;
use rustix::pipe::{PipeFlags, pipe_with};

use super::run::half;
use super::script::{HOUR, Script, poll};
use super::{FanOut, OnSlow, SinkEnded};
use crate::report::Ended;
use crate::request::{DataPath, Request, Size, Switches};
use crate::transfer::{Control, Observer, Progress};
use testkit::file::file_with;

/// A pipe whose ends do not block: (the read end, the write end).
fn pipe() -> (OwnedFd, OwnedFd) {
    pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).unwrap()
}

/// Fills a pipe.
fn fill(pipe: &OwnedFd) {
    while rustix::io::write(pipe, &[0; 4096]).is_ok() {}
}

/// Reads all that a pipe holds. Returns the number of bytes.
fn empty(pipe: &OwnedFd) -> usize {
    let mut bytes = vec![0; 1 << 20];
    let mut all = 0;
    while let Ok(n @ 1..) = rustix::io::read(pipe, &mut bytes) {
        all += n;
    }
    all
}

/// Stores the number of bytes read, and closes a pipe once there are as many as this.
struct Closes<'t> {
    read: &'t AtomicU64,
    at: u64,
    pipe: &'t Mutex<Option<OwnedFd>>,
}

impl Observer for Closes<'_> {
    fn progress(&mut self, progress: &Progress) {
        self.read.store(progress.read, Ordering::Relaxed);
        if progress.read >= self.at {
            self.pipe.lock().unwrap().take();
        }
    }
}

/// The block has been read when the reader of the other sink closes it.
#[test]
fn a_block_that_the_other_sink_refuses_is_not_dropped() {
    let name = "a_block_that_the_other_sink_refuses_is_not_dropped";
    let _dog = testkit::watchdog::watch(name);
    let ((source, feed), (reader, fast), (slow, late)) = (pipe(), pipe(), pipe());
    let put = |fd: &OwnedFd| assert_eq!(rustix::io::write(fd, &[7; 5000]), Ok(5000));
    put(&feed);
    fill(&late);
    let before = rustix::io::ioctl_fionread(&slow).unwrap();
    let (mut feed, reader) = (Some(feed), Mutex::new(Some(reader)));
    let read = AtomicU64::new(0);
    let mut got = 0;
    let mut script = Script::new(|_, _: &mut Duration, fds: &mut [PollFd<'_>], _| {
        match read.load(Ordering::Relaxed) {
            5000 => feed.take().iter().for_each(put),
            10_000 => got += empty(&slow),
            _ => {}
        }
        poll(fds);
    });
    let sinks = [fast.as_fd(), late.as_fd()];
    let fan = FanOut::new(source.as_fd(), &sinks, Request::default()).unwrap();
    let fan = fan.on_slow(OnSlow::Drop).observe(Closes {
        read: &read,
        at: 10_000,
        pipe: &reader,
    });
    // Private pipes in front of the sinks would take the block. Without descriptors for the
    // engine, there are none.
    let outcome = testkit::refuse::apart(|| {
        let copies = libc::F_DUPFD_CLOEXEC as u32;
        testkit::refuse::refuse_where(testkit::refuse::FCNTL, 1, copies, libc::EMFILE);
        fan.run_with(&mut script).unwrap()
    });
    got += empty(&slow);
    assert_eq!((outcome.ended, outcome.read), (Ended::Eof, 10_000));
    let [failed, late] = &outcome.sinks[..] else {
        panic!("{outcome:?}");
    };
    assert_eq!((failed.ended, failed.written), (SinkEnded::Failed, 5000));
    assert_eq!((failed.read, failed.stranded), (5000, 0), "{failed:?}");
    assert_eq!((late.ended, late.dropped), (SinkEnded::Complete, 0));
    assert_eq!((late.written, got as u64), (10_000, before + 10_000));
    assert!(late.transfer.is_none() && failed.transfer.is_none());
}

/// The process is stopped (SIGSTOP) in the first wait for the second sink.
#[test]
fn the_time_of_a_stop_is_no_patience() {
    const SIZE: usize = 8 << 20;
    let _dog = testkit::watchdog::watch("the_time_of_a_stop_is_no_patience");
    let source = file_with(&vec![7; SIZE]);
    let ((fast, first), (slow, second)) = (pipe(), pipe());
    let (mut got, mut is_stopped) = (0, false);
    let mut script = Script::new(
        |_, now: &mut Duration, fds: &mut [PollFd<'_>], timeout: Option<Duration>| {
            empty(&fast);
            if is_stopped {
                got += empty(&slow);
            } else if timeout.is_some() {
                is_stopped = true;
                *now += 10 * HOUR;
            }
            poll(fds);
        },
    );
    let sinks = [first.as_fd(), second.as_fd()];
    let fan = FanOut::new(source.as_fd(), &sinks, Request::default()).unwrap();
    let fan = fan.on_slow(OnSlow::Detach).patience(HOUR);
    let outcome = fan.run_with(&mut script).unwrap();
    assert!(script.now > HOUR, "no sink was waited for");
    got += empty(&slow);
    for sink in &outcome.sinks {
        let its = (sink.ended, sink.written);
        assert_eq!(its, (SinkEnded::Complete, SIZE as u64), "{sink:?}");
    }
    assert_eq!(got, SIZE);
}

#[test]
fn two_waits_use_up_any_patience() {
    let least = Duration::from_nanos(1);
    for patience in [Duration::ZERO, least, 3 * least, HOUR] {
        let all = half(patience).saturating_add(half(patience));
        assert!(
            all >= patience && half(patience) <= patience,
            "{patience:?}"
        );
    }
}

/// The first pipe has no room for all bytes that one call reads.
fn in_large_blocks() -> Request {
    Request {
        block: std::num::NonZeroUsize::new(BLOCK),
        size: Size::Bytes(4 * BLOCK as u64),
        switches: Some(Switches::only(&[DataPath::ReadWrite])),
        ..Request::default()
    }
}

const BLOCK: usize = 4 << 20;

/// A source that is not rewound over bytes that were read.
fn zeros() -> File {
    File::open("/dev/zero").unwrap()
}

#[test]
fn the_others_get_every_byte_that_was_read_before_a_failure() {
    let _dog = testkit::watchdog::watch("the_others_get_every_byte_that_was_read");
    let ((reader, failing), (other, sink)) = (pipe(), pipe());
    let (source, reader, read) = (zeros(), Mutex::new(Some(reader)), AtomicU64::new(0));
    let control = Control::new().unwrap();
    let mut got = 0;
    let mut script = Script::new(|_, _: &mut Duration, fds: &mut [PollFd<'_>], _| {
        // A pause concerns only what was not read.
        if read.load(Ordering::Relaxed) > 0 {
            control.pause();
        }
        got += empty(&other);
        poll(fds);
    });
    let sinks = [failing.as_fd(), sink.as_fd()];
    let fan = FanOut::new(source.as_fd(), &sinks, in_large_blocks()).unwrap();
    let fan = fan.control(&control).observe(Closes {
        read: &read,
        at: 1,
        pipe: &reader,
    });
    let outcome = fan.run_with(&mut script).unwrap();
    got += empty(&other);
    assert_eq!(
        (outcome.ended, outcome.failed_sink),
        (Ended::Error, Some(0))
    );
    let source = &outcome.source;
    assert_eq!((source.ended, source.stranded), (Ended::Cancelled, 0));
    let other = &outcome.sinks[1];
    assert_eq!((other.ended, other.stranded), (SinkEnded::Complete, 0));
    assert_eq!((other.written, got), (BLOCK as u64, BLOCK));
}

/// A pause begins while the transfer from the source holds bytes.
#[test]
fn a_pause_keeps_no_byte_that_was_read_from_the_sinks() {
    let _dog = testkit::watchdog::watch("a_pause_keeps_no_byte_that_was_read_from_the_sinks");
    let ((first, a), (second, b)) = (pipe(), pipe());
    let (source, read) = (zeros(), AtomicU64::new(0));
    let control = Control::new().unwrap();
    let (mut got, mut silent, mut at_the_end) = ([0; 2], 0, None);
    let mut script = Script::new(|_, _: &mut Duration, fds: &mut [PollFd<'_>], _| {
        let new = [empty(&first), empty(&second)];
        got = [got[0] + new[0], got[1] + new[1]];
        let is_paused = control.is_paused();
        silent = if is_paused && new == [0; 2] {
            silent + 1
        } else {
            0
        };
        if silent > 10 {
            at_the_end = Some(got);
            control.resume();
        } else if at_the_end.is_none() && read.load(Ordering::Relaxed) > 0 {
            control.pause();
        }
        poll(fds);
    });
    let none = Mutex::new(None);
    let fan = FanOut::new(source.as_fd(), &[a.as_fd(), b.as_fd()], in_large_blocks()).unwrap();
    let fan = fan.control(&control).observe(Closes {
        read: &read,
        at: u64::MAX,
        pipe: &none,
    });
    let outcome = fan.run_with(&mut script).unwrap();
    assert!(outcome.is_complete(), "{outcome:?}");
    assert_eq!(at_the_end, Some([BLOCK; 2]));
}
