//! Datagrams stay whole.

use std::time::Duration;

use rustix::net::{RecvFlags, recv};

use cordboard::{Ended, OnSlow, Request};

use super::readers::{audit, request};
use crate::common::datagrams::{SORTS, Sort, all, pair, put};
use crate::common::watchdog;

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
        let patient = Request {
            idle: Some(Duration::from_millis(200)),
            ..Request::default()
        };
        let outcome = request(&source, &sinks, patient).run().unwrap();
        assert_eq!(outcome.ended, Ended::Idle, "{outcome:?}");
        for taker in takers {
            let (got, _end) = taker.join().unwrap();
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
    let taker = std::thread::spawn(move || {
        let (mut next, mut buffer) = (0, vec![0; 1 << 16]);
        while let (n @ 1.., _) = recv(&fast_end, &mut buffer[..], RecvFlags::empty()).unwrap() {
            assert!(buffer[..n] == datagram(next));
            next += 1;
        }
        next
    });
    let sinks = [fast, slow];
    let limited = Request {
        idle: Some(Duration::from_millis(200)),
        ..Request::default()
    };
    let outcome = request(&source, &sinks, limited)
        .on_slow(OnSlow::Drop)
        .run()
        .unwrap();
    drop(sinks);
    feeder.join().unwrap();
    let passed = taker.join().unwrap();
    assert_eq!(outcome.read, 1000 * u64::from(passed));
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
