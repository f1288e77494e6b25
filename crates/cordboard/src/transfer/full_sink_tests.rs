//! Sinks that are full, with waits that take their whole timeout.

use std::io::Write;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::{Shutdown, SocketType, shutdown};

use super::idle_tests::{LIMIT, pipe, request};
use super::stepper::FULL_SINK_RETRY;
use super::wait::{Clock, Interest, Poll, Waiter, Wakeup};
use super::{Transfer, drive};
use crate::Side;
use crate::errno::Errno;
use crate::report::Ended;
use crate::request::Request;
use testkit::full;

/// The real `poll(2)`, with waits that take their whole timeout.
struct Sleeps<F> {
    now: Duration,
    poll: Poll,
    /// The timeout of each wait for the sink.
    for_sink: Vec<Option<Duration>>,
    /// What other processes do before the end of a wait for the sink.
    meanwhile: F,
}

impl<F> Sleeps<F> {
    fn new(meanwhile: F) -> Sleeps<F> {
        Sleeps {
            now: Duration::from_secs(1000),
            poll: Poll::new(),
            for_sink: Vec::new(),
            meanwhile,
        }
    }
}

impl<F> Clock for Sleeps<F> {
    fn now(&mut self) -> Duration {
        self.now
    }
}

impl<F: FnMut(usize)> Waiter for Sleeps<F> {
    fn spin(&mut self, interest: &Interest<'_>, _: Duration) -> Result<Wakeup, Errno> {
        self.poll.wait(interest, Some(Duration::ZERO))
    }

    fn wait(
        &mut self,
        interest: &Interest<'_>,
        timeout: Option<Duration>,
    ) -> Result<Wakeup, Errno> {
        let wakeup = self.poll.wait(interest, Some(Duration::ZERO))?;
        if wakeup != Wakeup::default() || timeout == Some(Duration::ZERO) {
            return Ok(wakeup);
        }
        assert!(
            interest.ready.is_some_and(|(_, sink)| sink),
            "the sink is full"
        );
        (self.meanwhile)(self.for_sink.len());
        self.for_sink.push(timeout);
        let wakeup = self.poll.wait(interest, Some(Duration::ZERO))?;
        if wakeup == Wakeup::default() {
            self.now += timeout.expect("it would wait forever");
        }
        Ok(wakeup)
    }
}

const UNIX: [SocketType; 3] = [SocketType::STREAM, SocketType::SEQPACKET, SocketType::DGRAM];

/// `poll(2)` does not show that a full UNIX socket is shut down, and a write fails:
/// the transfer tries every second.
#[test]
fn a_full_socket_that_is_shut_down_is_found_out() {
    for kind in UNIX {
        for nonblocking in [false, true] {
            for by_peer in [false, true] {
                // A datagram that finds no room is not offered to the peer
                // (`unix_dgram_sendmsg`, net/unix/af_unix.c).
                if by_peer && kind == SocketType::DGRAM {
                    continue;
                }
                for tries in [1, 3] {
                    let (sink, peer) = full::unix(kind, 4096, nonblocking);
                    let (source, mut feed) = pipe().unwrap();
                    feed.write_all(b"hello").unwrap();
                    let end = sink.try_clone().unwrap();
                    let mut time = Sleeps::new(|past| {
                        assert!(past < tries, "{kind:?}: the shutdown was not detected");
                        if past + 1 == tries && by_peer {
                            shutdown(&peer, Shutdown::Read).unwrap();
                        } else if past + 1 == tries {
                            shutdown(&end, Shutdown::Write).unwrap();
                        }
                    });
                    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request()).unwrap();
                    let report = drive::run(transfer, &mut time).report;
                    let end = (report.failed, report.errno, report.written);
                    let expected = (Some(Side::Sink), Some(Errno::EPIPE), 0);
                    assert_eq!(end, expected, "{kind:?} {nonblocking} {by_peer}");
                    assert_eq!(time.for_sink, vec![Some(FULL_SINK_RETRY); tries]);
                    assert_eq!(report.elapsed, FULL_SINK_RETRY * tries as u32);
                }
            }
        }
    }
}

/// An attempt to write is not progress.
#[test]
fn a_full_socket_that_is_tried_is_idle_all_the_same() {
    for kind in UNIX {
        for nonblocking in [false, true] {
            let (sink, _peer) = full::unix(kind, 4096, nonblocking);
            let (source, mut feed) = pipe().unwrap();
            feed.write_all(b"hello").unwrap();
            let limit = FULL_SINK_RETRY * 5 / 2;
            let request = Request {
                idle: Some(limit),
                ..request()
            };
            let mut time = Sleeps::new(|_| {});
            let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
            let report = drive::run(transfer, &mut time).report;
            let counts = (report.ended, report.failed, report.written);
            assert_eq!(counts, (Ended::Idle, None, 0), "{kind:?} {nonblocking}");
            assert_eq!(report.elapsed, limit);
            let waits = [FULL_SINK_RETRY, FULL_SINK_RETRY, FULL_SINK_RETRY / 2].map(Some);
            assert_eq!(time.for_sink, waits, "{kind:?} {nonblocking}");
        }
    }
}

/// A wait reports its end, and nothing else wakes the thread.
#[test]
fn a_full_pipe_is_not_tried() {
    let (_reader, sink) = pipe().unwrap();
    rustix::io::ioctl_fionbio(&sink, true).unwrap();
    (&sink).write_all(&[1; 64 << 10]).unwrap();
    let (source, mut feed) = pipe().unwrap();
    feed.write_all(b"hello").unwrap();
    let mut time = Sleeps::new(|_| {});
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request()).unwrap();
    let report = drive::run(transfer, &mut time).report;
    assert_eq!(report.ended, Ended::Idle);
    assert_eq!(time.for_sink, [Some(LIMIT)]);
}
