//! What a holder may not do.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use cordboard::cue::{Command, Cue, Limit, Record, State};
use cordboard::{Ended, Errno};
use testkit::pattern::noise;

use super::common::watchdog;
use super::steps::{done, file_with, fill, next, send, status};

fn is_refused(cue: &mut Cue, command: Command) -> bool {
    send(cue, &[command, Command::Status]);
    let mut refused = false;
    loop {
        match next(cue) {
            Record::Refused { word, errno } => {
                assert_eq!(word as u16, command.code());
                assert_eq!(errno, Errno::EPERM);
                refused = true;
            }
            Record::Status(_) => return refused,
            _ => {}
        }
    }
}

#[test]
fn no_more_bytes_than_the_limit() {
    let source = std::fs::File::open("/dev/zero").unwrap();
    let sink = file_with(b"");
    let mut cue = Cue::new(&source, &sink).unwrap();
    send(&cue, &[Command::Limit(Limit::Bytes(1000))]);
    assert!(is_refused(&mut cue, Command::Write(1001)));
    send(&cue, &[Command::Write(400)]);
    assert_eq!(done(&mut cue).written, 400);
    // It cannot be raised.
    send(&cue, &[Command::Limit(Limit::Bytes(1_000_000))]);
    send(&cue, &[Command::WriteToEnd]);
    let last = done(&mut cue);
    assert_eq!((last.ended, last.written), (Ended::Size, 600));
    assert!(is_refused(&mut cue, Command::Write(1)));
    send(&cue, &[Command::WriteToEnd]);
    assert_eq!(done(&mut cue).errno, Some(Errno::EPERM));
    assert_eq!(sink.metadata().unwrap().len(), 1000);
}

/// Transfers that were commanded before the limit obey it too.
#[test]
fn a_limit_of_bytes_holds_for_transfers_that_run_and_wait() {
    let _dog = watchdog("a_limit_of_bytes_holds_for_transfers_that_run_and_wait");
    let limit = |bytes| Command::Limit(Limit::Bytes(bytes));
    let (source, mut feed) = std::io::pipe().unwrap();
    let sink = file_with(b"");
    let mut cue = Cue::new(&source, &sink).unwrap();
    // Each fits into the limit, but not all of them.
    let waiting = [
        Command::Write(500),
        Command::Write(600),
        Command::WriteToEnd,
    ];
    send(&cue, &[Command::Write(400)]);
    feed.write_all(&[1; 100]).unwrap();
    while status(&mut cue).written < 100 {}
    send(&cue, &waiting);
    // The second one has no effect.
    send(&cue, &[limit(1000), limit(5000)]);
    status(&mut cue);
    feed.write_all(&[2; 5000]).unwrap();
    let ends = [(); 4].map(|()| done(&mut cue));
    let written = ends.map(|end| (end.ended, end.errno, end.written));
    let all = [
        (Ended::Size, None, 400),
        (Ended::Size, None, 500),
        (Ended::Error, Some(Errno::EPERM), 0),
        (Ended::Size, None, 200),
    ];
    assert_eq!(written, all);
    assert!(is_refused(&mut cue, Command::Write(1)));
    assert_eq!(sink.metadata().unwrap().len(), 1100);
}

/// It could read more than the limit, or leave the range.
#[test]
fn a_transfer_that_could_exceed_a_new_limit_is_cancelled() {
    let _dog = watchdog("a_transfer_that_could_exceed_a_new_limit_is_cancelled");
    let bytes = Command::Limit(Limit::Bytes(399));
    let range = |start, end| Command::Limit(Limit::Range { start, end });
    for (command, limit) in [
        (Command::Write(400), bytes),
        (Command::WriteToEnd, bytes),
        (Command::Write(400), range(0, 1000)),
    ] {
        let (source, _feed) = std::io::pipe().unwrap();
        let mut cue = Cue::new(&source, file_with(b"")).unwrap();
        send(&cue, &[command, limit]);
        assert_eq!(done(&mut cue).ended, Ended::Cancelled, "{limit:?}");
    }
    // Of a file, by its offsets.
    for (end, ended) in [(900, Ended::Size), (899, Ended::Cancelled)] {
        let mut cue = Cue::new(file_with(&noise(1000)), file_with(b"")).unwrap();
        let write = [
            Command::SourceOffset(0),
            Command::Pause,
            Command::Write(900),
        ];
        send(&cue, &write);
        send(&cue, &[range(0, end), Command::Resume]);
        assert_eq!(done(&mut cue).ended, ended, "{end}");
    }
}

/// Starts a transfer of this many bytes from a file to a blocking socket whose buffer is
/// full. Also returns the socket's other end, and the number of bytes in the buffer.
fn towards_full_socket(bytes: usize) -> (Cue, UnixStream, usize) {
    let (sink, end) = UnixStream::pair().unwrap();
    let in_the_way = fill(&sink);
    let mut cue = Cue::new(file_with(&noise(bytes)), &sink).unwrap();
    send(&cue, &[Command::Write(bytes as u64)]);
    assert_eq!(next(&mut cue), Record::Started(1));
    (cue, end, in_the_way)
}

/// Bytes that the cancelled transfer puts back into its source were read before the limit was
/// set. They are not added to the limit.
#[test]
fn bytes_that_return_to_the_source_do_not_raise_a_limit() {
    let _dog = watchdog("bytes_that_return_to_the_source_do_not_raise_a_limit");
    let (mut cue, _end, _) = towards_full_socket(1 << 20);
    let mut before = status(&mut cue);
    loop {
        let now = status(&mut cue);
        if now.read > 0 && now.read == before.read {
            break;
        }
        before = now;
    }
    send(&cue, &[Command::Limit(Limit::Bytes(0))]);
    let cancelled = done(&mut cue);
    assert_eq!((cancelled.ended, cancelled.read), (Ended::Cancelled, 0));
    assert!(is_refused(&mut cue, Command::Write(1)));
}

/// The transfer only writes, so it reads nothing outside the range.
#[test]
fn a_transfer_that_has_read_everything_stays_in_the_range() {
    let _dog = watchdog("a_transfer_that_has_read_everything_stays_in_the_range");
    let (mut cue, mut end, in_the_way) = towards_full_socket(100);
    while status(&mut cue).read < 100 {}
    let range = |start, end| Command::Limit(Limit::Range { start, end });
    send(&cue, &[range(0, 100), range(0, 50)]);
    // The limits are in effect.
    assert_eq!(status(&mut cue).state, State::Running);
    let reader = std::thread::spawn(move || end.read_exact(&mut vec![0; in_the_way + 100]));
    let all = done(&mut cue);
    assert_eq!((all.ended, all.written), (Ended::Size, 100));
    reader.join().unwrap().unwrap();
}

#[test]
fn no_byte_outside_the_range() {
    let data = noise(1000);
    let source = file_with(&data);
    let sink = file_with(b"");
    let mut cue = Cue::new(&source, &sink).unwrap();
    let range = |start, end| Command::Limit(Limit::Range { start, end });
    send(&cue, &[range(100, 300), range(0, 200)]);
    // From the position, which is 0.
    send(&cue, &[Command::Write(1)]);
    assert_eq!(done(&mut cue).errno, Some(Errno::EPERM));
    for (offset, bytes) in [
        (99, 1),
        (100, 101),
        (200, 1),
        (u64::MAX, 1),
        (150, u64::MAX),
    ] {
        send(
            &cue,
            &[Command::SourceOffset(offset), Command::Write(bytes)],
        );
        let done = done(&mut cue);
        assert_eq!((done.read, done.errno), (0, Some(Errno::EPERM)), "{offset}");
    }
    send(&cue, &[Command::SourceOffset(150), Command::WriteToEnd]);
    let last = done(&mut cue);
    assert_eq!((last.ended, last.written), (Ended::Size, 50));
    let mut copy = [0; 50];
    rustix::io::pread(&sink, &mut copy, 0).unwrap();
    assert!(copy == data[150..200]);
    // A source without offsets.
    let (source, mut feed) = std::io::pipe().unwrap();
    feed.write_all(b"hello").unwrap();
    let mut cue = Cue::new(&source, &sink).unwrap();
    send(&cue, &[range(0, 100), Command::Write(1)]);
    assert_eq!(done(&mut cue).errno, Some(Errno::EPERM));
}

/// The lower one of both limits, in either order, and also if they are set while the transfer
/// waits.
#[test]
fn a_transfer_to_the_end_is_shortened_by_both_limits() {
    let _dog = watchdog("a_transfer_to_the_end_is_shortened_by_both_limits");
    let range = Command::Limit(Limit::Range { start: 0, end: 200 });
    for (bytes, moved) in [(1000, 200), (200, 200), (50, 50)] {
        let bytes = Command::Limit(Limit::Bytes(bytes));
        for commands in [
            [bytes, range, Command::WriteToEnd],
            [range, bytes, Command::WriteToEnd],
        ] {
            let mut cue = Cue::new(file_with(&noise(1000)), file_with(b"")).unwrap();
            send(&cue, &commands);
            let all = done(&mut cue);
            assert_eq!((all.errno, all.written), (None, moved), "{commands:?}");
        }
        // It waits for one of a byte, which a pause holds.
        let mut cue = Cue::new(file_with(&noise(1000)), file_with(b"")).unwrap();
        let first = [Command::Pause, Command::SourceOffset(0), Command::Write(1)];
        send(&cue, &[&first[..], &[Command::WriteToEnd]].concat());
        send(&cue, &[bytes, range, Command::Resume]);
        assert_eq!(done(&mut cue).written, 1);
        let all = done(&mut cue);
        assert_eq!((all.errno, all.written), (None, moved - 1), "{bytes:?}");
    }
}

/// A limit is no total: the source may end before.
#[test]
fn the_total_of_a_transfer_to_the_end_is_unknown() {
    let _dog = watchdog("the_total_of_a_transfer_to_the_end_is_unknown");
    let limit = Command::Limit(Limit::Bytes(1 << 40));
    for (command, total) in [(Command::WriteToEnd, None), (Command::Write(9), Some(9))] {
        let (source, _feed) = std::io::pipe().unwrap();
        let (_end, sink) = std::io::pipe().unwrap();
        let mut cue = Cue::new(&source, &sink).unwrap();
        send(&cue, &[limit, command]);
        assert_eq!(next(&mut cue), Record::Started(1));
        assert_eq!(status(&mut cue).total, total);
    }
}

#[test]
fn only_the_commands_that_are_allowed() {
    let source = file_with(b"number, please");
    let sink = file_with(b"");
    let mut cue = Cue::new(&source, &sink).unwrap();
    let mask = |commands: &[Command]| {
        let bits = commands
            .iter()
            .fold(0, |bits, command| bits | command.bit());
        Command::Limit(Limit::Commands(bits))
    };
    let all = [
        Command::Status,
        Command::Write(0),
        Command::Limit(Limit::Commands(0)),
    ];
    send(&cue, &[mask(&all)]);
    for command in [Command::WriteToEnd, Command::Pause, Command::Rate(1)] {
        assert!(is_refused(&mut cue, command));
    }
    assert!(!is_refused(&mut cue, Command::Write(1)));
    // Bits do not come back.
    send(&cue, &[mask(&[Command::Status, Command::Pause])]);
    assert!(is_refused(&mut cue, Command::Pause));
    assert!(is_refused(&mut cue, Command::Write(1)));
}

#[test]
fn no_schedule_is_faster_than_the_limit() {
    let _dog = watchdog("no_schedule_is_faster_than_the_limit");
    let source = std::fs::File::open("/dev/zero").unwrap();
    let sink = std::fs::File::options().write(true).open("/dev/null");
    let mut cue = Cue::new(&source, sink.unwrap()).unwrap();
    send(
        &cue,
        &[Command::Limit(Limit::Rate(100_000)), Command::WriteToEnd],
    );
    for _ in 0..100 {
        send(&cue, &[Command::Rate(1 << 40), Command::Rate(0)]);
        send(&cue, &[Command::Schedule { count: 9, rest: 0 }]);
        send(
            &cue,
            &[Command::Limit(Limit::Rate(1 << 40)), Command::Pause],
        );
        send(&cue, &[Command::Resume]);
        let status = status(&mut cue);
        let most = 100_000 * status.elapsed.as_micros() / 1_000_000;
        assert!(u128::from(status.read) <= most, "{status:?}");
    }
    // A limit that is none is refused.
    send(&cue, &[Command::Limit(Limit::Rate(0))]);
    assert!(matches!(
        next(&mut cue),
        Record::Refused {
            errno: Errno::EINVAL,
            ..
        }
    ));
}

#[test]
fn nothing_moves_after_the_time() {
    let _dog = watchdog("nothing_moves_after_the_time");
    let (source, _feed) = std::io::pipe().unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    let mut cue = Cue::new(&source, &sink).unwrap();
    send(
        &cue,
        &[
            Command::WriteToEnd,
            Command::Write(1),
            Command::Limit(Limit::Time(20)),
            Command::Limit(Limit::Time(1_000_000)),
        ],
    );
    for _ in 0..2 {
        assert_eq!(done(&mut cue).ended, Ended::Cancelled);
    }
    assert!(is_refused(&mut cue, Command::Write(1)));
    assert!(!is_refused(&mut cue, Command::Pause));
}
