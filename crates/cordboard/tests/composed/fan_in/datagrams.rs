//! Datagrams stay whole.

use rustix::net::{RecvFlags, recv};
use rustix::pipe::PipeFlags;

use cordboard::fan_in::Turn;
use cordboard::{Control, Ended, Errno};

use super::sources::{audit, fan, until};
use crate::common::datagrams::{SORTS, Sort, pair, put};
use crate::common::{content, file_with, watchdog};

#[test]
fn datagrams_of_several_sources_stay_whole() {
    let _dog = watchdog("datagrams_of_several_sources_stay_whole");
    for sort in SORTS {
        let (sources, feeds): (Vec<_>, Vec<_>) = [Sort::Udp, Sort::Unix, Sort::Seqpacket]
            .map(pair)
            .into_iter()
            .unzip();
        let (sink, end) = pair(sort);
        let datagram = |source: usize, n: usize| vec![source as u8; 1 + 37 * n];
        let count = 9;
        for (source, feed) in feeds.iter().enumerate() {
            (0..count).for_each(|n| put(feed, &datagram(source, n)));
        }
        // Not all sources have an end.
        let control = Control::new().unwrap();
        let all_have_passed = control.clone();
        let taker = std::thread::spawn(move || {
            let (mut got, mut buffer) = (vec![Vec::new(); 3], vec![0; 1 << 16]);
            for _ in 0..3 * count {
                let (n, _) = recv(&end, &mut buffer[..], RecvFlags::empty()).unwrap();
                got[usize::from(buffer[0])].push(buffer[..n].to_vec());
            }
            all_have_passed.cancel();
            (got, end)
        });
        let running = fan(&sources, &sink)
            .turn(Turn::ByDatagram)
            .unwrap()
            .control(&control);
        let outcome = running.run().unwrap();
        assert_eq!(outcome.ended, Ended::Cancelled, "{outcome:?}");
        let (got, _end) = taker.join().unwrap();
        for (source, got) in got.into_iter().enumerate() {
            let sent: Vec<_> = (0..count).map(|n| datagram(source, n)).collect();
            assert!(got == sent, "{sort:?}");
        }
        for (source, back) in audit(outcome) {
            assert_eq!(back, b"");
            assert!(source.written > 0);
        }
    }
}

#[test]
fn sequenced_packets_end_and_a_file_gets_them_whole() {
    let _dog = watchdog("sequenced_packets_end_and_a_file_gets_them_whole");
    let (sources, feeds): (Vec<_>, Vec<_>) = (0..3).map(|_| pair(Sort::Seqpacket)).unzip();
    let packet = |source: u8| [vec![source; 700], vec![b'\n']].concat();
    for (source, feed) in feeds.into_iter().enumerate() {
        (0..8).for_each(|_| put(&feed, &packet(source as u8)));
    }
    let sink = file_with(b"");
    let running = fan(&sources, &sink).turn(Turn::ByDatagram).unwrap();
    let outcome = running.run().unwrap();
    assert!(outcome.is_complete(), "{outcome:?}");
    let got = content(&sink);
    assert_eq!(got.len(), 3 * 8 * 701);
    for packet in got.chunks(701) {
        assert!(packet[..700].iter().all(|byte| *byte == packet[0]));
    }
    audit(outcome);
}

#[test]
fn stranded_datagrams_are_handed_back_by_source() {
    let _dog = watchdog("stranded_datagrams_are_handed_back_by_source");
    let (sources, feeds): (Vec<_>, Vec<_>) = (0..2).map(|_| pair(Sort::Seqpacket)).unzip();
    let (sink, _end) = pair(Sort::Unix);
    let control = Control::new().unwrap();
    // The datagrams stay in the channel in front of the sink.
    control.pause();
    let outcome = std::thread::scope(|scope| {
        let running = fan(&sources, &sink).turn(Turn::ByDatagram).unwrap();
        let running = running.control(&control);
        let outcome = scope.spawn(|| running.run().unwrap());
        for n in 0..60u8 {
            put(&feeds[usize::from(n % 2)], &vec![n; 100 + usize::from(n)]);
        }
        for source in &sources {
            until("the sources are read", || {
                rustix::io::ioctl_fionread(source).unwrap() == 0
            });
        }
        control.cancel();
        outcome.join().unwrap()
    });
    assert_eq!(outcome.ended, Ended::Cancelled);
    assert!(outcome.stranded > 0);
    for (index, (source, back)) in audit(outcome).into_iter().enumerate() {
        assert!(back.iter().all(|n| usize::from(n % 2) == index));
        let sent: u64 = (0..60u64)
            .filter(|n| n % 2 == index as u64)
            .map(|n| 100 + n)
            .sum();
        assert_eq!(source.read, sent);
    }
}

/// A pipe that is non-blocking is read without a poll, so one turn takes many packets.
#[test]
fn packets_of_pipes_stay_whole() {
    let _dog = watchdog("packets_of_pipes_stay_whole");
    for nonblocking in [false, true] {
        packets_stay_whole(nonblocking);
    }
}

fn packets_stay_whole(nonblocking: bool) {
    let packet = |source: usize, n: usize| vec![(source * 100 + n % 100) as u8; 1 + n * 7 % 4096];
    let count = 500;
    let packets = move |source| (0..count).map(move |n| packet(source, n));
    let (mut sources, mut feeders) = (Vec::new(), Vec::new());
    for source in 0..2 {
        let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::DIRECT).unwrap();
        rustix::io::ioctl_fionbio(&reader, nonblocking).unwrap();
        sources.push(reader);
        feeders.push(std::thread::spawn(move || {
            for packet in packets(source) {
                assert_eq!(rustix::io::write(&writer, &packet), Ok(packet.len()));
            }
        }));
    }
    let (sink, end) = pair(Sort::Seqpacket);
    let taker = std::thread::spawn(move || {
        let (mut got, mut buffer) = (vec![Vec::new(); 2], vec![0; 1 << 16]);
        while let (n @ 1.., _) = recv(&end, &mut buffer[..], RecvFlags::empty()).unwrap() {
            got[usize::from(buffer[0] / 100)].push(buffer[..n].to_vec());
        }
        got
    });
    let running = fan(&sources, &sink).turn(Turn::ByDatagram).unwrap();
    let outcome = running.run().unwrap();
    drop(sink);
    feeders
        .into_iter()
        .for_each(|feeder| feeder.join().unwrap());
    assert!(outcome.is_complete(), "{outcome:?}");
    for (source, got) in taker.join().unwrap().into_iter().enumerate() {
        let whole = got == packets(source).collect::<Vec<_>>();
        assert!(whole, "{source}, {nonblocking}");
    }
    audit(outcome);
}

#[test]
fn a_stream_has_no_datagrams() {
    let (stream, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
    let (datagrams, _feed) = pair(Sort::Udp);
    let sources = [datagrams, stream.into()];
    let sink = file_with(b"");
    let refused = fan(&sources, &sink).turn(Turn::ByDatagram).err().unwrap();
    assert_eq!(refused.source_index, 1);
    assert_eq!(refused.refusal.errno(), Errno::EINVAL);
    assert!(refused.to_string().contains("stream"), "{refused}");
}
