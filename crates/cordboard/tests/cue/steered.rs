//! Pauses, cancels, rates and their order.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use cordboard::cue::{Command, Cue, Limit, Record, State};
use cordboard::{Ended, Errno, Schedule};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use rustix::process::Resource;
use testkit::pattern::noise;

use super::common::{alone, descriptors, watchdog};
use super::steps::{done, file_with, fill, is_readable, next, send, status};

#[test]
fn a_paused_transfer_moves_nothing_and_goes_on() {
    let _dog = watchdog("a_paused_transfer_moves_nothing_and_goes_on");
    let (source, mut feed) = std::io::pipe().unwrap();
    let (mut end, sink) = std::io::pipe().unwrap();
    let mut cue = Cue::new(&source, &sink).unwrap();
    send(&cue, &[Command::Pause, Command::Write(10)]);
    assert_eq!(status(&mut cue).state, State::Paused);
    feed.write_all(b"0123456789").unwrap();
    let paused = status(&mut cue);
    assert_eq!((paused.state, paused.read), (State::Paused, 0));
    assert!(!is_readable(end.as_fd()));
    send(&cue, &[Command::Resume]);
    end.read_exact(&mut [0; 10]).unwrap();
    assert_eq!(done(&mut cue).ended, Ended::Size);
    // A pause outlives the transfer.
    send(&cue, &[Command::Pause]);
    assert_eq!(status(&mut cue).state, State::Paused);
}

/// A cancellation ends what runs and what waits, each with a record, and the next
/// transfer works.
#[test]
fn a_cancellation_ends_all_that_wait() {
    let _dog = watchdog("a_cancellation_ends_all_that_wait");
    let (source, mut feed) = std::io::pipe().unwrap();
    let (mut end, sink) = std::io::pipe().unwrap();
    let mut cue = Cue::new(&source, &sink).unwrap();
    let all: Vec<_> = (0..5).map(|_| Command::Write(10)).collect();
    send(&cue, &all);
    assert_eq!(next(&mut cue), Record::Started(1));
    send(&cue, &[Command::Cancel, Command::Write(5)]);
    let mut ended: Vec<_> = (0..5).map(|_| done(&mut cue)).collect();
    // The one that runs ends after those that have not begun.
    ended.sort_by_key(|done| done.transfer);
    for (done, transfer) in ended.iter().zip(1..) {
        assert_eq!((done.transfer, done.ended), (transfer, Ended::Cancelled));
        assert_eq!((done.read, done.written), (0, 0));
    }
    feed.write_all(b"hello").unwrap();
    end.read_exact(&mut [0; 5]).unwrap();
    assert_eq!(done(&mut cue).ended, Ended::Size);
}

/// More transfers than can wait: the cancellation behind them takes effect at once,
/// although none of them can be carried out.
#[test]
fn a_cancellation_overtakes_transfers_that_cannot_wait() {
    let _dog = watchdog("a_cancellation_overtakes_transfers_that_cannot_wait");
    let (source, _feed) = std::io::pipe().unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    let mut cue = Cue::new(&source, &sink).unwrap();
    let mut all: Vec<_> = (0..60).map(|_| Command::Write(10)).collect();
    all.push(Command::Cancel);
    send(&cue, &all);
    for _ in 0..60 {
        assert_eq!(done(&mut cue).ended, Ended::Cancelled);
    }
    assert_eq!(status(&mut cue).state, State::Idle);
}

/// A pause, its end, a limit and the status take effect although transfers before them have
/// no room in the queue.
#[test]
fn what_takes_effect_at_once_overtakes_transfers_that_cannot_wait() {
    let _dog = watchdog("what_takes_effect_at_once_overtakes_transfers_that_cannot_wait");
    let source = file_with(&[7; 400]);
    let (_end, sink) = std::io::pipe().unwrap();
    let mut cue = Cue::new(&source, &sink).unwrap();
    let writes = [Command::Write(10); 40];
    let limit = Command::Limit(Limit::Bytes(1000));
    let rate = Command::Limit(Limit::Rate(1 << 30));
    send(
        &cue,
        &[&[Command::Pause], &writes[..], &[limit, rate]].concat(),
    );
    let paused = status(&mut cue);
    assert_eq!((paused.state, paused.read), (State::Paused, 0));
    assert_eq!(
        (paused.queued, paused.rate_limit),
        (32, Schedule::rate(1 << 30))
    );
    send(&cue, &[Command::Resume]);
    for _ in 0..40 {
        assert_eq!(done(&mut cue).written, 10);
    }
}

/// More transfers than the queue and the socket hold: the writer waits, and none is
/// lost.
#[test]
fn a_writer_waits_and_loses_nothing() {
    let _dog = watchdog("a_writer_waits_and_loses_nothing");
    const MANY: usize = 2000;
    let source = std::fs::File::open("/dev/zero").unwrap();
    let sink = std::fs::File::options().write(true).open("/dev/null");
    let mut cue = Cue::new(&source, sink.unwrap()).unwrap();
    let copy = Cue::from(cue.as_fd().try_clone_to_owned().unwrap());
    // A few hundred commands fill it.
    rustix::net::sockopt::set_socket_send_buffer_size(&copy, 4096).unwrap();
    let writer = std::thread::spawn(move || {
        let all: Vec<_> = (0..MANY).map(|_| Command::Write(7)).collect();
        send(&copy, &all);
    });
    for transfer in 1..=MANY {
        let done = done(&mut cue);
        assert_eq!((done.transfer as usize, done.written), (transfer, 7));
    }
    writer.join().unwrap();
}

/// What a cancelled transfer has read and not written is written first by the next.
#[test]
fn stranded_bytes_come_first() {
    let _dog = watchdog("stranded_bytes_come_first");
    stranded_bytes(|_, _| {});
}

/// Stranded bytes take neither a file, whose size may be limited, nor a descriptor before they
/// are written.
#[test]
fn stranded_bytes_stay_if_resources_are_limited() {
    let _dog = watchdog("stranded_bytes_stay_if_resources_are_limited");
    if !alone!() {
        return;
    }
    let limit = |resource, current| {
        let limit = rustix::process::Rlimit {
            current,
            ..rustix::process::getrlimit(resource)
        };
        rustix::process::setrlimit(resource, limit).unwrap();
    };
    let most = rustix::process::getrlimit(Resource::Nofile).current;
    limit(Resource::Fsize, Some(4096));
    stranded_bytes(|cue, moment| match moment {
        Moment::BeforeCancel => limit(Resource::Nofile, Some(3)),
        Moment::Stranded => {
            send(cue, &[Command::WriteToEnd]);
            let refused = done(cue);
            assert_eq!(refused.errno, Some(Errno::EMFILE), "{refused:?}");
            assert_eq!((refused.read, refused.written), (0, 0));
            limit(Resource::Nofile, most);
        }
    });
}

/// A peer repeats a write while the sink accepts nothing, because the reader of the sink does
/// not read, or has closed it.
#[test]
fn stranded_bytes_that_are_stranded_again_take_no_descriptors() {
    let _dog = watchdog("stranded_bytes_that_are_stranded_again_take_no_descriptors");
    if !alone!() {
        return;
    }
    for is_dead in [false, true] {
        let data = noise(60_000);
        let (source, mut feed) = std::io::pipe().unwrap();
        feed.write_all(&data).unwrap();
        let (sink, end) = UnixStream::pair().unwrap();
        let in_the_way = fill(&sink);
        let mut end = Some(end).filter(|_| !is_dead);
        let mut cue = Cue::new(&source, &sink).unwrap();
        drop((source, sink));
        let strand = |cue: &mut Cue, bytes| {
            send(cue, &[Command::Write(bytes)]);
            while !is_dead && status(cue).path.is_none() {}
            if !is_dead {
                send(cue, &[Command::Cancel]);
            }
            let done = done(cue);
            let ended = match is_dead {
                true => Ended::Error,
                false => Ended::Cancelled,
            };
            assert_eq!((done.ended, done.written), (ended, 0), "{done:?}");
            assert_eq!(done.read, done.stranded, "{done:?}");
            done.read
        };
        let mut read = 0;
        while read < data.len() as u64 {
            read += strand(&mut cue, 60_000 - read);
        }
        (0..5).for_each(|_| assert_eq!(strand(&mut cue, 1), 0));
        let before = descriptors();
        (0..200).for_each(|_| assert_eq!(strand(&mut cue, 1), 0));
        // Those of the previous transfer may still be open at both moments.
        assert!(descriptors() < before + 100, "{is_dead}");
        let Some(end) = &mut end else {
            continue;
        };
        drop(feed);
        send(&cue, &[Command::WriteToEnd]);
        let mut all = vec![0; in_the_way + data.len()];
        end.read_exact(&mut all).unwrap();
        assert!(all[in_the_way..] == data);
        let last = done(&mut cue);
        assert_eq!((last.ended, last.written), (Ended::Eof, 60_000));
    }
}

enum Moment {
    BeforeCancel,
    Stranded,
}

fn stranded_bytes(at: impl Fn(&mut Cue, Moment)) {
    let data = noise(400_000);
    let (source, mut feed) = std::io::pipe().unwrap();
    let (sink, mut end) = UnixStream::pair().unwrap();
    let sent = data.clone();
    let feeder = std::thread::spawn(move || feed.write_all(&sent));
    let mut cue = Cue::new(&source, &sink).unwrap();
    drop((source, sink));
    send(&cue, &[Command::WriteToEnd]);
    // Until the socket is full and bytes are in between.
    let mut before = status(&mut cue);
    loop {
        let now = status(&mut cue);
        if now.read > now.written && now.read == before.read {
            break;
        }
        before = now;
    }
    at(&mut cue, Moment::BeforeCancel);
    send(&cue, &[Command::Cancel]);
    let first = done(&mut cue);
    assert_eq!(first.ended, Ended::Cancelled);
    assert_eq!(first.read, first.written + first.stranded);
    assert!(first.stranded > 0, "{first:?}");
    at(&mut cue, Moment::Stranded);
    send(&cue, &[Command::WriteToEnd]);
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        end.read_to_end(&mut all).map(|_| all)
    });
    let second = done(&mut cue);
    assert_eq!(second.ended, Ended::Eof, "{second:?}");
    assert_eq!(first.read + second.read, data.len() as u64);
    assert_eq!(first.written + second.written, data.len() as u64);
    drop(cue);
    feeder.join().unwrap().unwrap();
    assert!(reader.join().unwrap().unwrap() == data);
}

/// Stranded datagrams and records keep their boundaries, also empty ones and long ones.
#[test]
fn stranded_messages_stay_whole() {
    let _dog = watchdog("stranded_messages_stay_whole");
    const LENGTHS: [usize; 5] = [100, 0, 140_000, 0, 7];
    let all: usize = LENGTHS.iter().sum();
    let bytes = noise(150_000);
    let mut space = vec![0; 150_000];
    for kind in [SocketType::SEQPACKET, SocketType::DGRAM] {
        let pair = || socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        let ((feed, source), (sink, end)) = (pair(), pair());
        for length in LENGTHS {
            net::send(&feed, &bytes[..length], SendFlags::DONTWAIT).unwrap();
        }
        let mut in_the_way = 0;
        while net::send(&sink, b"full", SendFlags::DONTWAIT).is_ok() {
            in_the_way += 1;
        }
        let mut cue = Cue::new(&source, &sink).unwrap();
        send(&cue, &[Command::WriteToEnd]);
        while status(&mut cue).read < all as u64 {}
        send(&cue, &[Command::Cancel]);
        let first = done(&mut cue);
        assert_eq!((first.stranded, first.written), (all as u64, 0));
        for _ in 0..in_the_way {
            net::recv(&end, &mut space[..], RecvFlags::empty()).unwrap();
        }
        send(&cue, &[Command::WriteToEnd]);
        for length in LENGTHS {
            let (_, got) = net::recv(&end, &mut space[..], RecvFlags::empty()).unwrap();
            assert_eq!(got, length, "{kind:?}");
            assert!(space[..got] == bytes[..got]);
        }
        send(&cue, &[Command::Cancel]);
        assert_eq!(done(&mut cue).written, all as u64);
    }
}

/// A block that is too long for the sink: the bytes of the stream are cut again.
#[test]
fn a_stream_that_was_cut_too_long_is_cut_again() {
    let _dog = watchdog("a_stream_that_was_cut_too_long_is_cut_again");
    let data = noise(70_000);
    let (source, mut feed) = std::io::pipe().unwrap();
    let (sink, end) = (udp(), udp());
    net::connect(&sink, &net::getsockname(&end).unwrap()).unwrap();
    let mut cue = Cue::new(&source, &sink).unwrap();
    let sent = data.clone();
    let feeder = std::thread::spawn(move || feed.write_all(&sent));
    send(&cue, &[Command::Block(66_000), Command::Write(66_000)]);
    let first = done(&mut cue);
    assert_eq!(first.errno, Some(Errno::EMSGSIZE), "{first:?}");
    assert_eq!(first.read, first.stranded);
    assert!(first.stranded > 65_507, "{first:?}");
    send(&cue, &[Command::Block(1000), Command::WriteToEnd]);
    feeder.join().unwrap().unwrap();
    let second = done(&mut cue);
    assert_eq!(
        (second.ended, second.written),
        (Ended::Eof, 70_000),
        "{second:?}"
    );
    let mut space = vec![0; 70_000];
    let (left, own) = data.split_at(first.stranded as usize);
    for block in left.chunks(1000).chain(own.chunks(1000)) {
        let (_, n) = net::recv(&end, &mut space[..], RecvFlags::empty()).unwrap();
        assert_eq!(n, block.len());
        assert!(space[..n] == *block);
    }
}

/// A UDP socket on the loopback interface.
fn udp() -> std::os::fd::OwnedFd {
    std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into()
}

/// A rate of nearly nothing, and none, while a transfer runs.
#[test]
fn a_rate_changes_while_a_transfer_runs() {
    let _dog = watchdog("a_rate_changes_while_a_transfer_runs");
    let source = file_with(&noise(64 << 20));
    let sink = file_with(b"");
    let mut cue = Cue::new(&source, &sink).unwrap();
    send(&cue, &[Command::Rate(1), Command::WriteToEnd]);
    assert_eq!(next(&mut cue), Record::Started(1));
    let slow = status(&mut cue);
    assert_eq!(slow.state, State::Running);
    assert!(slow.read <= 1 + slow.elapsed.as_secs(), "{slow:?}");
    send(&cue, &[Command::Rate(0)]);
    let done = done(&mut cue);
    assert_eq!((done.ended, done.written), (Ended::Eof, 64 << 20));
}
