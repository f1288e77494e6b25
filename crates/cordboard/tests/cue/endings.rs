//! The last copy of a control descriptor is closed.

use std::io::{Read, Write};

use cordboard::cue::{Command, Cue, Limit, Record};
use cordboard::{Ended, Errno};
use testkit::pattern::noise;

use super::common::{alone, descriptors, watchdog};
use super::steps::{bytes_of, done, file_with, next, send, write_all};

/// The paper's program: a size is written, and the descriptor is closed.
#[test]
fn what_ends_by_itself_is_carried_out() {
    let _dog = watchdog("what_ends_by_itself_is_carried_out");
    let data = noise(300_000);
    for commands in [
        &[Command::WriteToEnd][..],
        &[Command::Write(100_000), Command::Write(200_000)],
    ] {
        let source = file_with(&data);
        let (mut end, sink) = std::io::pipe().unwrap();
        let cue = Cue::new(&source, &sink).unwrap();
        drop(sink);
        send(&cue, commands);
        drop(cue);
        let mut all = Vec::new();
        end.read_to_end(&mut all).unwrap();
        assert!(all == data, "{commands:?}");
    }
}

/// An endless source, or a pause: the sink is closed.
#[test]
fn what_does_not_end_is_cancelled() {
    let _dog = watchdog("what_does_not_end_is_cancelled");
    let limit = Command::Limit(Limit::Bytes(1 << 40));
    for commands in [
        &[Command::WriteToEnd][..],
        &[limit, Command::WriteToEnd, Command::WriteToEnd],
        &[Command::Pause, Command::Write(1)],
        &[],
    ] {
        let (source, _feed) = std::io::pipe().unwrap();
        let (mut end, sink) = std::io::pipe().unwrap();
        let cue = Cue::new(&source, &sink).unwrap();
        drop(sink);
        send(&cue, commands);
        drop(cue);
        assert_eq!(end.read(&mut [0]).unwrap(), 0, "{commands:?}");
    }
}

/// As many transfers as wait, and more: those that are not even read do not keep the
/// descriptors open.
#[test]
fn a_full_queue_is_cancelled() {
    let _dog = watchdog("a_full_queue_is_cancelled");
    for count in [32, 33, 34, 128, 400] {
        for (first, then) in [
            (Command::Pause, Command::Write(1)),
            (Command::WriteToEnd, Command::WriteToEnd),
        ] {
            let (source, _feed) = std::io::pipe().unwrap();
            let (mut end, sink) = std::io::pipe().unwrap();
            let cue = Cue::new(&source, &sink).unwrap();
            drop(sink);
            send(&cue, &[&[first][..], &vec![then; count]].concat());
            drop(cue);
            assert_eq!(end.read(&mut [0]).unwrap(), 0, "{count} {then:?}");
        }
    }
}

/// The same if only the writing side is shut down: each transfer has its record.
#[test]
fn a_full_queue_is_cancelled_at_a_half_close() {
    let _dog = watchdog("a_full_queue_is_cancelled_at_a_half_close");
    for count in [32, 128, 400] {
        for (first, then) in [
            (Command::Pause, Command::Write(1)),
            (Command::WriteToEnd, Command::WriteToEnd),
        ] {
            let (source, _feed) = std::io::pipe().unwrap();
            let (mut end, sink) = std::io::pipe().unwrap();
            let mut cue = Cue::new(&source, &sink).unwrap();
            drop(sink);
            send(&cue, &[&[first][..], &vec![then; count]].concat());
            rustix::net::shutdown(&cue, rustix::net::Shutdown::Write).unwrap();
            let records = std::iter::from_fn(|| cue.receive().unwrap());
            let ends = records.filter(|record| matches!(record, Record::Done(_)));
            let transfers = count + usize::from(first == Command::WriteToEnd);
            assert_eq!(ends.count(), transfers, "{count} {then:?}");
            assert_eq!(end.read(&mut [0]).unwrap(), 0, "{count} {then:?}");
        }
    }
}

/// A half-closed descriptor still returns all records, and then its end.
#[test]
fn a_half_closed_descriptor_returns_all_records() {
    let _dog = watchdog("a_half_closed_descriptor_returns_all_records");
    let source = file_with(b"number, please");
    let (mut end, sink) = std::io::pipe().unwrap();
    let mut cue = Cue::new(&source, &sink).unwrap();
    drop(sink);
    let bytes = bytes_of(&[Command::Write(6), Command::Write(8)]);
    write_all(&cue, &bytes);
    write_all(&cue, &bytes[..6]);
    rustix::net::shutdown(&cue, rustix::net::Shutdown::Write).unwrap();
    let mut text = String::new();
    end.read_to_string(&mut text).unwrap();
    assert_eq!(text, "number, please");
    let mut records = Vec::new();
    while let Some(record) = cue.receive().unwrap() {
        records.push(record);
    }
    assert!(records.iter().any(|record| matches!(
        record,
        Record::Refused {
            word: 6,
            errno: Errno::ENODATA
        }
    )));
    let ends = records.iter().filter(|r| matches!(r, Record::Done(_)));
    assert_eq!(ends.count(), 2);
}

/// A copy in another thread keeps it open.
#[test]
fn a_copy_keeps_it_open() {
    let _dog = watchdog("a_copy_keeps_it_open");
    let (source, mut feed) = std::io::pipe().unwrap();
    let (mut end, sink) = std::io::pipe().unwrap();
    let first = Cue::new(&source, &sink).unwrap();
    let copy = std::os::fd::OwnedFd::from(first).try_clone().unwrap();
    let mut second = Cue::from(copy);
    send(&second, &[Command::WriteToEnd]);
    assert_eq!(next(&mut second), Record::Started(1));
    feed.write_all(b"x").unwrap();
    end.read_exact(&mut [0]).unwrap();
    send(&second, &[Command::Cancel]);
    assert_eq!(done(&mut second).ended, Ended::Cancelled);
}

#[test]
fn nothing_is_left_open() {
    let _dog = watchdog("nothing_is_left_open");
    if !alone!() {
        return;
    }
    let source = file_with(&noise(1000));
    let round = || {
        let (mut end, sink) = std::io::pipe().unwrap();
        let mut cue = Cue::new(&source, &sink).unwrap();
        drop(sink);
        send(&cue, &[Command::SourceOffset(0), Command::WriteToEnd]);
        assert_eq!(done(&mut cue).written, 1000);
        drop(cue);
        let mut all = Vec::new();
        end.read_to_end(&mut all).unwrap();
    };
    round();
    let before = descriptors();
    for _ in 0..50 {
        round();
    }
    // The service closes its end after the sink.
    let mut tries = 0;
    while descriptors() > before {
        tries += 1;
        assert!(tries < 1_000_000, "{} of {before}", descriptors());
        std::thread::yield_now();
    }
}
