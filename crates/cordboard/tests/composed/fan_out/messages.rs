//! Datagrams stay whole.

use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::inotify;
use rustix::net::{RecvFlags, recv, sockopt};
use testkit::needs::Need;
use testkit::tun::Tun;

use cordboard::{Control, Ended, Errno, OnSlow, Request};

use super::readers::{audit, request};
use crate::common::datagrams::{SORTS, Sort, all, pair, put};
use crate::common::{pty, watchdog};

#[test]
fn datagrams_keep_their_boundaries_at_every_sink() {
    let _dog = watchdog("datagrams_keep_their_boundaries_at_every_sink");
    for sort in SORTS {
        let (source, feed) = pair(sort);
        let sent: Vec<Vec<u8>> = (1..40u8).map(|n| vec![n; 37 * usize::from(n)]).collect();
        sent.iter().for_each(|datagram| put(&feed, datagram));
        let (sinks, ends): (Vec<_>, Vec<_>) = [Sort::Udp, Sort::Unix, Sort::Seqpacket]
            .map(pair)
            .into_iter()
            .unzip();
        // A UNIX datagram socket queues ten datagrams (net.unix.max_dgram_qlen).
        let taker = |end: std::os::fd::OwnedFd, most: usize| {
            std::thread::spawn(move || {
                let (mut got, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
                while got.len() < most {
                    let flags = RecvFlags::empty();
                    let (n, _) = recv(&end, &mut buffer[..], flags).unwrap();
                    got.push(buffer[..n].to_vec());
                }
                (got, end)
            })
        };
        let takers: Vec<_> = ends.into_iter().map(|end| taker(end, sent.len())).collect();
        // Not all sources have an end.
        let control = Control::new().unwrap();
        let all_have_passed = control.clone();
        let joiner = std::thread::spawn(move || {
            let got = takers.into_iter().map(|taker| taker.join().unwrap());
            let got: Vec<_> = got.collect();
            all_have_passed.cancel();
            got
        });
        let outcome = request(&source, &sinks, Request::default())
            .control(&control)
            .run()
            .unwrap();
        assert_eq!(outcome.ended, Ended::Cancelled, "{outcome:?}");
        for (got, _end) in joiner.join().unwrap() {
            assert!(got == sent, "{sort:?}");
        }
        for (sink, _) in audit(outcome) {
            assert_eq!(
                sink.written,
                sent.iter().map(|d| d.len() as u64).sum::<u64>()
            );
        }
    }
}

/// A datagram that is too long for a sink is a failure of that sink.
#[test]
fn a_datagram_that_is_too_long_fails_the_sink() {
    let _dog = watchdog("a_datagram_that_is_too_long_fails_the_sink");
    let (source, feed) = pair(Sort::Unix);
    let (udp, _udp_end) = pair(Sort::Udp);
    let (unix, unix_end) = pair(Sort::Unix);
    let sent = [vec![1; 10], vec![2; 70_000], vec![3; 10]];
    sent.iter().for_each(|datagram| put(&feed, datagram));
    let size = sent.iter().map(Vec::len).sum::<usize>() as u64;
    let taker = std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 17];
        for sent in sent {
            let (n, _) = recv(&unix_end, &mut buffer[..], RecvFlags::empty()).unwrap();
            assert!(buffer[..n] == sent);
        }
    });
    let sinks = [udp, unix];
    let limited = Request {
        size: size.into(),
        ..Request::default()
    };
    // The fan-out waits for the transfer to each sink, and so for its error.
    let outcome = request(&source, &sinks, limited)
        .sink_on_slow(0, OnSlow::Detach)
        .run()
        .unwrap();
    taker.join().unwrap();
    let sinks = audit(outcome);
    let (failed, back) = &sinks[0];
    assert_eq!(failed.errno, Some(Errno::EMSGSIZE), "{failed:?}");
    assert_eq!((failed.written, failed.dropped), (10, 0));
    assert!(back.starts_with(&[2; 70_000]));
}

#[test]
fn a_full_sink_drops_whole_datagrams() {
    let _dog = watchdog("a_full_sink_drops_whole_datagrams");
    let (source, feed) = pair(Sort::Seqpacket);
    let (fast, fast_end) = pair(Sort::Seqpacket);
    let (slow, slow_end) = pair(Sort::Seqpacket);
    let datagram = |n: u32| n.to_ne_bytes().repeat(250);
    // More than the buffers of the slow sink and of the channel in front of it hold.
    let count = 20_000;
    let feeder = std::thread::spawn(move || {
        (0..count).for_each(|n| put(&feed, &datagram(n)));
    });
    // The slow sink never accepts the rest, so the fan-out ends by a cancellation.
    let control = Control::new().unwrap();
    let all_have_passed = control.clone();
    let taker = std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        for next in 0..count {
            let (n, _) = recv(&fast_end, &mut buffer[..], RecvFlags::empty()).unwrap();
            assert!(buffer[..n] == datagram(next));
        }
        all_have_passed.cancel();
    });
    let sinks = [fast, slow];
    let outcome = request(&source, &sinks, Request::default())
        .on_slow(OnSlow::Drop)
        .control(&control)
        .run()
        .unwrap();
    drop(sinks);
    feeder.join().unwrap();
    taker.join().unwrap();
    assert_eq!(outcome.read, 1000 * u64::from(count));
    let sinks = audit(outcome);
    let (slow, back) = &sinks[1];
    // At the end each receive returns 0 bytes.
    let got: Vec<_> = all(&slow_end)
        .into_iter()
        .filter(|got| !got.is_empty())
        .collect();
    assert!(
        got.iter()
            .enumerate()
            .all(|(n, got)| *got == datagram(n as u32))
    );
    assert!(slow.dropped > 0 && slow.gaps == 1, "{slow:?}");
    assert_eq!((slow.dropped % 1000, back.len() % 1000), (0, 0));
}

/// A pipe in packet mode preserves boundaries too.
#[test]
fn datagrams_become_packets_of_a_pipe() {
    use rustix::pipe::{PipeFlags, pipe_with};
    let _dog = watchdog("datagrams_become_packets_of_a_pipe");
    let (source, feed) = pair(Sort::Seqpacket);
    let sent: Vec<Vec<u8>> = (1..15u8).map(|n| vec![n; 37 * usize::from(n)]).collect();
    sent.iter().for_each(|datagram| put(&feed, datagram));
    drop(feed);
    let (packets, pipe) = pipe_with(PipeFlags::DIRECT).unwrap();
    let (socket, end) = pair(Sort::Seqpacket);
    let sinks = [pipe, socket];
    let outcome = request(&source, &sinks, Request::default()).run().unwrap();
    assert_eq!(outcome.ended, Ended::Eof, "{outcome:?}");
    assert!(all(&end) == sent);
    drop(sinks);
    let mut got = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        match rustix::io::read(&packets, &mut buffer).unwrap() {
            0 => break,
            n => got.push(buffer[..n].to_vec()),
        }
    }
    assert!(got == sent, "{} packets", got.len());
}

/// Two sinks of datagrams, and what they get of a source that has `size` bytes.
fn to_two_sockets(source: &OwnedFd, size: usize) -> [Vec<Vec<u8>>; 2] {
    let ((a, a_end), (b, b_end)) = (pair(Sort::Unix), pair(Sort::Seqpacket));
    let sinks = [a, b];
    let limited = Request {
        size: (size as u64).into(),
        ..Request::default()
    };
    let outcome = request(source, &sinks, limited).run().unwrap();
    assert!(outcome.is_complete(), "{outcome:?}");
    audit(outcome);
    drop(sinks);
    let whole = |end| {
        let got = all(end).into_iter();
        // A socket whose peer is closed returns 0 bytes.
        got.filter(|datagram| !datagram.is_empty()).collect()
    };
    [whole(&a_end), whole(&b_end)]
}

/// As with one sink.
#[test]
fn each_read_of_a_terminal_or_a_counter_is_a_datagram() {
    let name = "each_read_of_a_terminal_or_a_counter_is_a_datagram";
    let _dog = watchdog(name);
    let (master, tty) = pty();
    let lines = [&b"one\n"[..], b"and two\n", b"three\n"];
    let text = lines.concat();
    assert_eq!(rustix::io::write(&master, &text), Ok(text.len()));
    for got in to_two_sockets(&tty, text.len()) {
        assert_eq!(got, lines);
    }
    if testkit::needs::missing(name, &[Need::Eventfd]) {
        return;
    }
    let flags = EventfdFlags::SEMAPHORE | EventfdFlags::CLOEXEC;
    let counter = eventfd(5, flags).unwrap();
    for got in to_two_sockets(&counter, 5 * 8) {
        assert_eq!(got, [1u64.to_ne_bytes(); 5]);
    }
}

/// A read returns all events, which are longer together than the send buffer of a sink.
#[test]
fn many_events_are_divided_between_events() {
    const EVENT: usize = 16 + 208;
    const COUNT: usize = 100;
    let _dog = watchdog("many_events_are_divided_between_events");
    let dir = tempfile::tempdir().unwrap();
    let events = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
    inotify::add_watch(&events, dir.path(), inotify::WatchFlags::CREATE).unwrap();
    for number in 0..COUNT {
        std::fs::File::create(dir.path().join(format!("{number:0200}"))).unwrap();
    }
    let (sinks, ends): (Vec<_>, Vec<_>) = [pair(Sort::Seqpacket), pair(Sort::Seqpacket)]
        .into_iter()
        .unzip();
    let takers = ends.into_iter().map(|end| {
        std::thread::spawn(move || {
            let (mut got, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
            // 0 once the sink is closed.
            while let Ok((length @ 1.., _)) = recv(&end, &mut buffer[..], RecvFlags::empty()) {
                got.push(length);
            }
            got
        })
    });
    let takers: Vec<_> = takers.collect();
    for sink in &sinks {
        sockopt::set_socket_send_buffer_size(sink, 8192).unwrap();
    }
    let limited = Request {
        size: ((COUNT * EVENT) as u64).into(),
        ..Request::default()
    };
    let outcome = request(&events, &sinks, limited).run().unwrap();
    drop(sinks);
    let got: Vec<Vec<usize>> = takers.into_iter().map(|t| t.join().unwrap()).collect();
    assert!(outcome.is_complete(), "{outcome:?}");
    audit(outcome);
    for lengths in got {
        assert_eq!(lengths.iter().sum::<usize>(), COUNT * EVENT);
        let whole = |length: &usize| length.is_multiple_of(EVENT) && *length <= 1472;
        assert!(lengths.iter().all(whole), "{lengths:?}");
    }
}

/// A network interface of the thread, or the test is skipped.
fn tun(test: &str) -> Option<Tun> {
    let tun = Tun::new();
    if let Err(error) = &tun {
        testkit::skip::report(test, &error.to_string());
    }
    tun.ok()
}

/// The device shows no boundaries, so that each of its reads is a message.
#[test]
fn packets_of_a_device_stay_whole() {
    let name = "packets_of_a_device_stay_whole";
    let _dog = watchdog(name);
    let Some(tun) = tun(name) else { return };
    // Several reads of one step find a packet each.
    rustix::io::ioctl_fionbio(&tun.fd, true).unwrap();
    let sent: Vec<Vec<u8>> = [100, 1400, 28, 700]
        .map(|length| [vec![0x45], vec![7; length - 1]].concat())
        .to_vec();
    tun.send(&sent).unwrap();
    let ((a, a_end), (b, b_end)) = (pair(Sort::Unix), pair(Sort::Seqpacket));
    let sinks = [a, b];
    let control = Control::new().unwrap();
    let outcome = std::thread::scope(|scope| {
        let total = sent.concat().len();
        let taker = |end: OwnedFd| {
            scope.spawn(move || {
                let (mut got, mut buffer, mut left) = (Vec::new(), vec![0; 1 << 16], total);
                while left > 0 {
                    let (n, _) = recv(&end, &mut buffer[..], RecvFlags::empty()).unwrap();
                    // The kernel sends packets of its own (IPv6).
                    if n > 0 && buffer[0] == 0x45 {
                        got.push(buffer[..n].to_vec());
                        left = left.saturating_sub(n);
                    }
                }
                (got, end)
            })
        };
        let takers = [a_end, b_end].map(taker);
        let running = request(&tun.fd, &sinks, Request::default()).control(&control);
        let joiner = scope.spawn(|| {
            let got = takers.map(|taker| taker.join().unwrap());
            control.cancel();
            got
        });
        let outcome = running.run().unwrap();
        for (got, _end) in joiner.join().unwrap() {
            assert!(got == sent, "{:?}", got.iter().map(Vec::len));
        }
        outcome
    });
    assert_eq!(outcome.ended, Ended::Cancelled, "{outcome:?}");
    audit(outcome);
}

/// A block is the length of a datagram, and no more than that of a read for a device.
#[test]
fn a_block_joins_no_reads_for_a_device() {
    let name = "a_block_joins_no_reads_for_a_device";
    let _dog = watchdog(name);
    let Some(tun) = tun(name) else { return };
    let (master, tty) = pty();
    // The driver checks only the version, in the first byte: 0x45.
    let line = b"Each line is a packet\n";
    let text = line.repeat(4);
    assert_eq!(rustix::io::write(&master, &text), Ok(text.len()));
    let (socket, end) = pair(Sort::Unix);
    let sinks = [tun.fd.try_clone().unwrap(), socket];
    let blocks = Request {
        size: (text.len() as u64).into(),
        block: NonZeroUsize::new(2 * line.len()),
        ..Request::default()
    };
    let before = tun.received().unwrap();
    let outcome = request(&tty, &sinks, blocks).run().unwrap();
    assert!(outcome.is_complete(), "{outcome:?}");
    audit(outcome);
    let after = tun.received().unwrap();
    assert_eq!(after.packets - before.packets, 4);
    assert_eq!(after.bytes - before.bytes, text.len() as u64);
    assert_eq!(all(&end), [line.repeat(2), line.repeat(2)]);
}
