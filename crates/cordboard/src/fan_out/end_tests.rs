//! The ends of the sinks, with an injected clock.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::net::SocketType;
use rustix::pipe::{PipeFlags, fcntl_getpipe_size, pipe_with};

use super::script::{HOUR, Script, real};
use super::{FanOut, OnSlow, SinkEnded};
use crate::compose::{Poll, Waiter};
use crate::errno::Errno;
use crate::report::Ended;
use crate::request::{Request, Schedule};
use crate::transfer::{Control, Observer, Progress};
use testkit::file::file_with;

/// Stores the number of bytes that the slowest sink has accepted.
struct Written(Arc<AtomicU64>);

impl Observer for Written {
    fn progress(&mut self, progress: &Progress) {
        self.0.store(progress.written, Ordering::Relaxed);
    }
}

/// Sends eight bytes to a file and to a full socket. `at_last` is called for each wait while
/// only the transfer to the socket is left.
fn beside_a_full_socket(
    policy: OnSlow,
    mut at_last: impl FnMut(&mut Option<OwnedFd>, &mut Duration, &mut [PollFd<'_>], Option<Duration>),
) -> super::FanOutOutcome {
    let _dog = testkit::watchdog::watch("beside_a_full_socket");
    let source = file_with(b"to both.");
    let (socket, peer) = testkit::full::unix(SocketType::STREAM, 4096, true);
    let (file, mut peer) = (file_with(b""), Some(peer));
    let sinks = [file.as_fd(), socket.as_fd()];
    let fan = FanOut::new(source.as_fd(), &sinks, Request::default()).unwrap();
    let mut script = Script::new(
        |_, now: &mut Duration, fds: &mut [PollFd<'_>], timeout| match fds.len() {
            1 => at_last(&mut peer, now, fds, timeout),
            _ => real(fds),
        },
    );
    let fan = fan.on_slow(policy).patience(HOUR);
    let outcome = fan.run_with(&mut script).unwrap();
    assert_eq!(outcome.sinks[0].ended, SinkEnded::Complete, "{outcome:?}");
    assert_eq!(outcome.sinks[0].written, 8);
    outcome
}

#[test]
fn a_sink_that_is_not_read_is_detached_after_the_last_byte() {
    let outcome = beside_a_full_socket(OnSlow::Detach, |_, now, _, timeout| {
        *now += timeout.expect("the wait would never end");
    });
    assert_eq!((outcome.ended, outcome.failed_sink), (Ended::Eof, None));
    let sink = &outcome.sinks[1];
    assert_eq!(sink.ended, SinkEnded::Detached, "{sink:?}");
    assert_eq!((sink.written, sink.stranded), (0, 8));
}

/// The caller waits for each of them, although no other sink does.
#[test]
fn each_sink_that_is_not_read_is_detached_after_the_last_byte() {
    let _dog = testkit::watchdog::watch("each_sink_that_is_not_read_is_detached");
    let full = || testkit::full::unix(SocketType::STREAM, 4096, true);
    for fails in [false, true] {
        let source = file_with(b"to both.");
        let ((a, peer_a), (b, _peer_b)) = (full(), full());
        let mut peer = Some(peer_a);
        let mut detached_at = None;
        let mut script = Script::new(
            |wait, now: &mut Duration, fds: &mut [PollFd<'_>], timeout: Option<Duration>| {
                if fails && wait == 1 {
                    peer.take();
                    return real(fds);
                }
                *now += timeout.expect("the wait would never end");
                detached_at = Some(*now);
            },
        );
        let sinks = [a.as_fd(), b.as_fd()];
        let fan = FanOut::new(source.as_fd(), &sinks, Request::default()).unwrap();
        let fan = fan.on_slow(OnSlow::Detach).patience(HOUR);
        let outcome = fan.run_with(&mut script).unwrap();
        let ended = [0, 1].map(|sink| outcome.sinks[sink].ended);
        let first = match fails {
            true => SinkEnded::Failed,
            false => SinkEnded::Detached,
        };
        assert_eq!(ended, [first, SinkEnded::Detached], "{outcome:?}");
        assert_eq!(detached_at, Some(HOUR));
        for sink in &outcome.sinks {
            assert_eq!((sink.written, sink.stranded), (0, 8), "{sink:?}");
        }
        assert_eq!(outcome.failed_sink, fails.then_some(0));
    }
}

/// No other sink waits for it any more.
#[test]
fn a_slow_sink_that_accepts_bytes_is_not_detached_after_the_last_byte() {
    const SIZE: usize = 1 << 20;
    let _dog = testkit::watchdog::watch("a_slow_sink_that_accepts_bytes");
    let data = testkit::pattern::noise(SIZE);
    let source = file_with(&data);
    let (socket, mut peer) = UnixStream::pair().unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size(&socket, 16 << 10).unwrap();
    let position = Arc::new(AtomicU64::new(0));
    let (mut got, mut last) = (Vec::<u8>::new(), 0);
    let mut script = Script::new(
        |_, now: &mut Duration, fds: &mut [PollFd<'_>], _: Option<Duration>| {
            Poll::new().wait(fds, Some(Duration::ZERO)).unwrap();
            let seen = position.load(Ordering::Relaxed);
            let held = rustix::io::ioctl_fionread(&peer).unwrap();
            // The transfer counts bytes when the write returns that has sent them. It sends no
            // more until the peer reads.
            if seen == last || seen != got.len() as u64 + held {
                return std::thread::yield_now();
            }
            last = seen;
            let from = got.len();
            got.resize(from + held as usize, 0);
            peer.read_exact(&mut got[from..]).unwrap();
            // Only the transfer to the socket is left. A check of the fan-out may see more than
            // the report before it: at most two of these times pass without bytes that the
            // check counts.
            if fds.len() == 1 {
                *now += HOUR / 3;
            }
        },
    );
    let file = file_with(b"");
    let sinks = [file.as_fd(), socket.as_fd()];
    let fan = FanOut::new(source.as_fd(), &sinks, Request::default()).unwrap();
    let fan = fan.on_slow(OnSlow::Detach).patience(HOUR);
    let fan = fan.observe(Written(position.clone()));
    let outcome = fan.run_with(&mut script).unwrap();
    for sink in &outcome.sinks {
        assert_eq!(
            (sink.ended, sink.written),
            (SinkEnded::Complete, SIZE as u64),
            "{sink:?}"
        );
    }
    assert!(script.now > 2 * HOUR, "{:?}", script.now);
    // The transfer may have ended before the last bytes were read.
    drop(socket);
    peer.read_to_end(&mut got).unwrap();
    assert!(got == data);
}

#[test]
fn a_sink_that_fails_after_the_last_byte_was_read_is_named() {
    for policy in [OnSlow::Block, OnSlow::Detach] {
        let outcome = beside_a_full_socket(policy, |peer, _, fds, _| {
            peer.take();
            real(fds);
        });
        assert_eq!(outcome.sinks[1].ended, SinkEnded::Failed, "{outcome:?}");
        let expected = match policy {
            OnSlow::Block => (Ended::Error, Some(1), outcome.sinks[1].errno),
            OnSlow::Drop | OnSlow::Detach => (Ended::Eof, None, None),
        };
        let got = (outcome.ended, outcome.failed_sink, outcome.errno);
        assert_eq!(got, expected);
    }
}

/// Both sinks fail while a block waits for them. Its bytes are in the account of the source.
#[test]
fn a_block_that_reaches_no_sink_is_stranded() {
    let _dog = testkit::watchdog::watch("a_block_that_reaches_no_sink_is_stranded");
    let data = testkit::pattern::noise(6 << 20);
    let source = file_with(&data);
    let full = || testkit::full::unix(SocketType::STREAM, 4096, true);
    let ((a, peer_a), (b, peer_b)) = (full(), full());
    let mut peers = Some((peer_a, peer_b));
    let mut script = Script::new(|_, _: &mut Duration, fds: &mut [PollFd<'_>], _| {
        peers.take();
        real(fds);
    });
    let sinks = [a.as_fd(), b.as_fd()];
    let fan = FanOut::new(source.as_fd(), &sinks, Request::default()).unwrap();
    let mut outcome = fan.on_slow(OnSlow::Detach).run_with(&mut script).unwrap();
    assert_eq!(
        (outcome.ended, outcome.failed_sink),
        (Ended::Error, Some(0))
    );
    let left = crate::compose::bytes_of(outcome.stranded.take()).concat();
    let given = outcome.read as usize;
    assert!(!left.is_empty() && left == data[given..given + left.len()]);
    assert_eq!(outcome.source.stranded, left.len() as u64);
    assert_eq!(outcome.source.read, (given + left.len()) as u64);
    for sink in outcome.sinks {
        assert_eq!((sink.ended, sink.written), (SinkEnded::Failed, 0));
        assert_eq!((sink.read, sink.stranded), (given as u64, given as u64));
    }
}

#[test]
fn a_cancel_after_the_last_byte_changes_nothing() {
    let _dog = testkit::watchdog::watch("a_cancel_after_the_last_byte_changes_nothing");
    let source = file_with(b"everything");
    // The transfer to the sink cannot end before the first wait.
    let (sink, peer) = testkit::full::unix(SocketType::STREAM, 4096, true);
    rustix::io::ioctl_fionbio(&peer, true).unwrap();
    let control = Control::new().unwrap();
    let mut script = Script::new(|_, _: &mut Duration, fds: &mut [PollFd<'_>], _| {
        while rustix::io::read(&peer, &mut [0; 4096][..]).is_ok_and(|n| n > 0) {}
        real(fds);
        control.cancel();
    });
    let fan = FanOut::new(source.as_fd(), &[sink.as_fd()], Request::default()).unwrap();
    let outcome = fan.control(&control).run_with(&mut script).unwrap();
    assert!(control.is_cancelled());
    assert_eq!(outcome.ended, Ended::Eof, "{outcome:?}");
    assert_eq!(outcome.sinks[0].ended, SinkEnded::Complete);
}

/// Cancels after the fan-out has checked for a cancellation.
struct Cancels(Control);

impl Observer for Cancels {
    fn progress(&mut self, _: &Progress) {
        self.0.cancel();
    }
}

#[test]
fn a_cancel_just_before_the_wait_ends_the_wait() {
    let _dog = testkit::watchdog::watch("a_cancel_just_before_the_wait_ends_the_wait");
    let (source, _feed) = std::io::pipe().unwrap();
    let sink = file_with(b"");
    let control = Control::new().unwrap();
    let fan = FanOut::new(source.as_fd(), &[sink.as_fd()], Request::default()).unwrap();
    let fan = fan.control(&control).observe(Cancels(control.clone()));
    assert_eq!(fan.run().unwrap().ended, Ended::Cancelled);
}

/// The transfer to a sink that lacks no byte reaches its end, which includes the sync.
#[test]
fn a_sink_that_has_everything_is_not_cancelled_at_the_idle_limit() {
    let (source, mut feed) = std::io::pipe().unwrap();
    feed.write_all(b"everything").unwrap();
    let sink = file_with(b"");
    let written = Arc::new(AtomicU64::new(0));
    let mut script = Script::new(
        |_, now: &mut Duration, fds: &mut [PollFd<'_>], timeout: Option<Duration>| match timeout {
            // Not only a pause: without splice(2), a pipe is read only after a poll.
            _ if written.load(Ordering::Relaxed) < 10 => {
                Poll::new().wait(fds, Some(Duration::ZERO)).unwrap();
                std::thread::yield_now();
            }
            Some(timeout) => *now += timeout,
            None => real(fds),
        },
    );
    let request = Request {
        idle: Some(HOUR),
        sync: true,
        ..Request::default()
    };
    let fan = FanOut::new(source.as_fd(), &[sink.as_fd()], request).unwrap();
    let fan = fan.observe(Written(Arc::clone(&written)));
    let outcome = fan.run_with(&mut script).unwrap();
    assert_eq!(outcome.ended, Ended::Idle);
    let sink = &outcome.sinks[0];
    assert_eq!(sink.ended, SinkEnded::Complete, "{sink:?}");
    assert_eq!(sink.transfer.as_ref().unwrap().ended, Ended::Eof);
}

#[test]
fn the_idle_limit_does_not_run_during_a_rest_of_the_schedule() {
    let source = file_with(&[7; 8 * 4096]);
    let (_first, a) = std::io::pipe().unwrap();
    let (_second, b) = std::io::pipe().unwrap();
    let request = Request {
        idle: Some(HOUR),
        block: std::num::NonZeroUsize::new(4096),
        ..Request::default()
    };
    let control = Control::new().unwrap();
    control.set_schedule(Schedule::blocks(1, Duration::from_millis(10)));
    let mut script = Script::new(|_, now: &mut Duration, fds: &mut [PollFd<'_>], timeout| {
        assert_ne!(timeout, Some(Duration::from_millis(5)), "it polls");
        // The schedule has a clock of its own.
        Poll::new().wait(fds, timeout).unwrap();
        *now += 2 * HOUR;
    });
    let fan = FanOut::new(source.as_fd(), &[a.as_fd(), b.as_fd()], request).unwrap();
    let outcome = fan.control(&control).run_with(&mut script).unwrap();
    assert_eq!((outcome.ended, outcome.read), (Ended::Eof, 8 * 4096));
    assert!(outcome.is_complete(), "{outcome:?}");
    assert!(script.waits > 0);
}

/// The read that finds the end would need a grant, which comes after an hour.
#[test]
fn sinks_that_have_all_bytes_may_be_closed_before_the_next_grant() {
    let _dog = testkit::watchdog::watch("sinks_that_have_all_bytes");
    let source = file_with(&[7; 4096]);
    let (reader, a) = std::io::pipe().unwrap();
    let b = file_with(b"");
    let request = Request {
        block: std::num::NonZeroUsize::new(4096),
        ..Request::default()
    };
    let control = Control::new().unwrap();
    control.set_schedule(Schedule::blocks(1, HOUR));
    let mut reader = Some(reader);
    let mut script = Script::new(|_, _: &mut Duration, fds: &mut [PollFd<'_>], _| {
        drop(reader.take_if(|reader| rustix::io::ioctl_fionread(reader) == Ok(4096)));
        Poll::new().wait(fds, Some(Duration::ZERO)).unwrap();
    });
    let fan = FanOut::new(source.as_fd(), &[a.as_fd(), b.as_fd()], request).unwrap();
    let outcome = fan.control(&control).run_with(&mut script).unwrap();
    assert_eq!((outcome.ended, outcome.read), (Ended::Eof, 4096));
    assert!(outcome.is_complete(), "{outcome:?}");
}

/// The reader leaves while the source waits for its next grant, or for the end of a pause.
#[test]
fn a_sink_that_is_closed_before_the_end_is_found_is_complete() {
    for pauses in [false, true] {
        let _dog = testkit::watchdog::watch("a_sink_that_is_closed");
        let source = file_with(b"hello");
        let (reader, a) = std::io::pipe().unwrap();
        let b = file_with(b"");
        let control = Control::new().unwrap();
        control.set_schedule(Schedule::rate(100));
        let mut reader = Some(reader);
        let mut script = Script::new(|_, _: &mut Duration, fds: &mut [PollFd<'_>], timeout| {
            let has_all =
                |reader: &mut std::io::PipeReader| rustix::io::ioctl_fionread(reader) == Ok(5);
            if reader.take_if(has_all).is_some() && pauses {
                control.pause();
            }
            Poll::new().wait(fds, timeout).unwrap();
        });
        let fan = FanOut::new(source.as_fd(), &[a.as_fd(), b.as_fd()], Request::default());
        let fan = fan.unwrap().control(&control);
        let outcome = fan.run_with(&mut script).unwrap();
        assert_eq!((outcome.ended, outcome.read), (Ended::Eof, 5));
        assert!(outcome.is_complete(), "{outcome:?}");
    }
}

/// The same behind a private channel, whose transfer notices the reader first.
#[test]
fn a_reader_that_has_all_bytes_may_leave_before_the_end_is_found() {
    let _dog = testkit::watchdog::watch("a_reader_that_has_all_bytes_may_leave");
    let pipe = || {
        let (reader, sink) = std::io::pipe().unwrap();
        (OwnedFd::from(reader), OwnedFd::from(sink))
    };
    let socket = || {
        let (reader, sink) = UnixStream::pair().unwrap();
        (reader.into(), sink.into())
    };
    for policy in [OnSlow::Block, OnSlow::Drop, OnSlow::Detach] {
        for has_ended in [true, false] {
            let (reader, sink) = match policy {
                OnSlow::Block => socket(),
                OnSlow::Drop | OnSlow::Detach => pipe(),
            };
            let (source, mut feed) = std::io::pipe().unwrap();
            feed.write_all(b"12345").unwrap();
            let mut feed = Some(feed);
            let mut reader = Some(std::fs::File::from(reader));
            let mut script = Script::new(|_, _: &mut Duration, fds: &mut [PollFd<'_>], _| {
                let Some(mut reader) = reader.take() else {
                    return real(fds);
                };
                drop(feed.take_if(|_| has_ended));
                reader.read_exact(&mut [0; 5]).unwrap();
                drop(reader);
                // The end of the transfer to the sink.
                real(&mut fds[..1]);
            });
            let fan = FanOut::new(source.as_fd(), &[sink.as_fd()], Request::default()).unwrap();
            let outcome = fan.on_slow(policy).run_with(&mut script).unwrap();
            let expected = match has_ended {
                true => (Ended::Eof, None),
                false => (Ended::Error, Some(Errno::EPIPE)),
            };
            assert_eq!((outcome.ended, outcome.errno), expected, "{outcome:?}");
            assert_eq!(outcome.is_complete(), has_ended, "{outcome:?}");
            assert_eq!(outcome.sinks[0].written, 5);
        }
    }
}

/// Another transfer that shares the handle may consume the wakeup.
#[test]
fn a_paused_fan_out_checks_whether_it_was_resumed() {
    let source = file_with(b"later");
    let (_reader, sink) = std::io::pipe().unwrap();
    let control = Control::new().unwrap();
    control.pause();
    let mut script = Script::new(
        |_, _: &mut Duration, _: &mut [PollFd<'_>], timeout: Option<Duration>| {
            assert!(timeout.is_some(), "the wait would never end");
            control.resume();
        },
    );
    let fan = FanOut::new(source.as_fd(), &[sink.as_fd()], Request::default()).unwrap();
    let outcome = fan.control(&control).run_with(&mut script).unwrap();
    assert!(outcome.is_complete(), "{outcome:?}");
}

/// The source is not read any more, and the second sink has no room for the last block.
#[test]
fn a_sink_that_is_closed_before_the_last_block_keeps_no_thread_busy() {
    let pipe = || pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).unwrap();
    let ((source, feed), (closed, a), (slow, b), (failing, c)) = (pipe(), pipe(), pipe(), pipe());
    let put = |fd: &OwnedFd, bytes: &[u8]| rustix::io::write(fd, bytes);
    put(&feed, &[1; 5000]).unwrap();
    while put(&b, &[0; 4096]).is_ok() {}
    let (mut closed, mut failing) = (Some(closed), Some(failing));
    let mut script = Script::new(|wait, _: &mut Duration, fds: &mut [PollFd<'_>], _| {
        match wait {
            1 => drop(put(&feed, &[2; 5000])),
            2 => drop(failing.take()),
            3 => drop(closed.take()),
            _ => {}
        }
        Poll::new().wait(fds, Some(Duration::ZERO)).unwrap();
        if wait > 3 {
            let is_closed = |fd: &PollFd<'_>| fd.revents().contains(PollFlags::ERR);
            assert!(!fds.iter().any(is_closed), "wait {wait} would end at once");
            while rustix::io::read(&slow, &mut [0; 4096][..]).is_ok_and(|n| n > 0) {}
        }
    });
    let sinks = [a.as_fd(), b.as_fd(), c.as_fd()];
    let fan = FanOut::new(source.as_fd(), &sinks, Request::default()).unwrap();
    let outcome = fan.run_with(&mut script).unwrap();
    assert_eq!(
        (outcome.ended, outcome.failed_sink),
        (Ended::Error, Some(2))
    );
    let ended = [0, 1, 2].map(|sink| outcome.sinks[sink].ended);
    let expected = [SinkEnded::Failed, SinkEnded::Complete, SinkEnded::Failed];
    assert_eq!(ended, expected, "{outcome:?}");
    assert!(script.waits > 3);
}

/// No descriptor is left for the transfer to the file, after the pipe was examined.
#[test]
fn a_pipe_keeps_its_capacity_if_a_later_sink_is_refused() {
    let source = file_with(&[7; 1 << 20]);
    let (reader, pipe) = std::io::pipe().unwrap();
    let file = file_with(b"");
    let before = fcntl_getpipe_size(&reader).unwrap();
    let sinks = [pipe.as_fd(), file.as_fd()];
    let refused = testkit::refuse::apart(|| {
        let copies = libc::F_DUPFD_CLOEXEC as u32;
        testkit::refuse::refuse_where(testkit::refuse::FCNTL, 1, copies, libc::EMFILE);
        let fan = FanOut::new(source.as_fd(), &sinks, Request::default()).unwrap();
        fan.run().unwrap_err()
    });
    assert_eq!(refused.sink, 1, "{refused}");
    assert_eq!(fcntl_getpipe_size(&reader).unwrap(), before);
}
