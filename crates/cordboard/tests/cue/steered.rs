//! Pauses, cancels, rates and their order.

use std::io::{Read, Write};
use std::os::fd::AsFd;

use cordboard::Ended;
use cordboard::cue::{Command, Cue, Record, State};
use testkit::pattern::noise;

use super::common::watchdog;
use super::steps::{done, file_with, is_readable, next, send, status};

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

/// More transfers than the queue and the socket hold: the writer waits, and none is
/// lost.
#[test]
fn a_writer_waits_and_loses_nothing() {
    let _dog = watchdog("a_writer_waits_and_loses_nothing");
    const MANY: usize = 20_000;
    let source = std::fs::File::open("/dev/zero").unwrap();
    let sink = std::fs::File::options().write(true).open("/dev/null");
    let mut cue = Cue::new(&source, sink.unwrap()).unwrap();
    let copy = Cue::from(cue.as_fd().try_clone_to_owned().unwrap());
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
    let data = noise(400_000);
    let (source, mut feed) = std::io::pipe().unwrap();
    let (sink, mut end) = std::os::unix::net::UnixStream::pair().unwrap();
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
    send(&cue, &[Command::Cancel]);
    let first = done(&mut cue);
    assert_eq!(first.ended, Ended::Cancelled);
    assert_eq!(first.read, first.written + first.stranded);
    assert!(first.stranded > 0, "{first:?}");
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
