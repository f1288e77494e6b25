//! Commands and records of one control descriptor.

use std::io::{Read, Write};
use std::os::fd::AsFd;

use cordboard::cue::{Command, Cue, Limit, Record, State};
use cordboard::{DataPath, Ended, Errno, Schedule, Side};
use testkit::pattern::noise;

use super::common::watchdog;
use super::steps::{bytes_of, done, file_with, is_readable, next, send, status, write_all};

#[test]
fn nothing_moves_before_a_command() {
    let _dog = watchdog("nothing_moves_before_a_command");
    let source = file_with(b"number, please");
    let (mut end, sink) = std::io::pipe().unwrap();
    let mut cue = Cue::new(&source, &sink).unwrap();
    drop(sink);
    // All commands before have been carried out when the answer comes.
    let before = status(&mut cue);
    assert_eq!((before.state, before.transfer), (State::Idle, 0));
    assert!(!is_readable(end.as_fd()));
    send(&cue, &[Command::Write(6)]);
    assert_eq!(next(&mut cue), Record::Started(1));
    let end_of_first = done(&mut cue);
    assert_eq!((end_of_first.read, end_of_first.written), (6, 6));
    assert_eq!(end_of_first.ended, Ended::Size);
    send(&cue, &[Command::WriteToEnd]);
    let end_of_second = done(&mut cue);
    assert_eq!((end_of_second.transfer, end_of_second.written), (2, 8));
    assert_eq!(end_of_second.ended, Ended::Eof);
    drop(cue);
    let mut text = String::new();
    end.read_to_string(&mut text).unwrap();
    assert_eq!(text, "number, please");
}

/// An offset of a pipe is refused, and does not apply to later transfers.
#[test]
fn an_offset_that_is_refused_is_not_kept() {
    let _dog = watchdog("an_offset_that_is_refused_is_not_kept");
    for offset in [Command::SourceOffset(0), Command::SinkOffset(0)] {
        let (source, mut feed) = std::io::pipe().unwrap();
        let (mut end, sink) = std::io::pipe().unwrap();
        feed.write_all(b"number").unwrap();
        let mut cue = Cue::new(&source, &sink).unwrap();
        send(&cue, &[offset, Command::Write(6)]);
        assert_eq!(done(&mut cue).errno, Some(Errno::ESPIPE));
        send(&cue, &[Command::Write(6)]);
        let done = done(&mut cue);
        assert_eq!((done.errno, done.written), (None, 6));
        let mut text = [0; 6];
        end.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"number");
    }
    // Where an accepted transfer has ended, and not at the offset that was refused.
    let (source, sink) = (file_with(b"0123456789"), file_with(b""));
    let mut cue = Cue::new(&source, &sink).unwrap();
    send(&cue, &[Command::SourceOffset(2), Command::Write(3)]);
    assert_eq!(done(&mut cue).written, 3);
    send(&cue, &[Command::SourceOffset(1 << 63), Command::Write(3)]);
    assert_eq!(done(&mut cue).errno, Some(Errno::EOVERFLOW));
    send(&cue, &[Command::Write(3)]);
    assert_eq!(done(&mut cue).written, 3);
    let mut text = [0; 6];
    rustix::io::pread(&sink, &mut text, 0).unwrap();
    assert_eq!(&text, b"234567");
}

/// Commands with numbers have two forms. The words of a range are four.
#[test]
fn a_refusal_has_the_first_word_that_was_sent() {
    let _dog = watchdog("a_refusal_has_the_first_word_that_was_sent");
    let (source, sink) = (file_with(b"0123456789"), file_with(b""));
    let mut cue = Cue::new(&source, &sink).unwrap();
    send(&cue, &[Command::Limit(Limit::Bytes(5))]);
    for (words, errno) in [
        (&[0x4302_0001_u32, 100, 0][..], Errno::EPERM),
        (&[0x4301_0001, 100], Errno::EPERM),
        (&[0x4303_000e, 5, 100, 0], Errno::EINVAL),
    ] {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        write_all(&cue, &bytes);
        let word = words[0];
        assert_eq!(next(&mut cue), Record::Refused { word, errno });
    }
    // The range that was refused is no limit.
    send(&cue, &[Command::Write(5)]);
    assert_eq!(done(&mut cue).written, 5);
}

/// Offsets, and a transfer that continues behind one with an offset.
#[test]
fn offsets_are_of_the_next_transfer() {
    let source = file_with(b"0123456789");
    let sink = file_with(b"..........");
    let mut cue = Cue::new(&source, &sink).unwrap();
    send(
        &cue,
        &[
            Command::SourceOffset(4),
            Command::SinkOffset(1),
            Command::Write(2),
            Command::Write(2),
            Command::SourceOffset(0),
            Command::Write(1),
        ],
    );
    for bytes in [2, 2, 1] {
        assert_eq!(done(&mut cue).written, bytes);
    }
    let mut text = [0; 10];
    rustix::io::pread(&sink, &mut text, 0).unwrap();
    assert_eq!(&text, b".45670....");
    // The positions of both files stay.
    assert_eq!(rustix::fs::tell(&source).unwrap(), 0);
    assert_eq!(rustix::fs::tell(&sink).unwrap(), 0);
}

/// Commands byte by byte, and many in one write.
#[test]
fn commands_arrive_in_any_pieces() {
    let _dog = watchdog("commands_arrive_in_any_pieces");
    let data = noise(10_000);
    for piece in [1, 3, 7, 4096] {
        let source = file_with(&data);
        let (mut end, sink) = std::io::pipe().unwrap();
        let mut cue = Cue::new(&source, &sink).unwrap();
        let commands: Vec<_> = (0..100).map(|_| Command::Write(100)).collect();
        for part in bytes_of(&commands).chunks(piece) {
            write_all(&cue, part);
        }
        for transfer in 1..=100 {
            let done = done(&mut cue);
            assert_eq!((done.transfer, done.written), (transfer, 100));
        }
        drop((cue, sink));
        let mut all = Vec::new();
        end.read_to_end(&mut all).unwrap();
        assert!(all == data, "pieces of {piece}");
    }
}

/// A bad command is answered, and harms nothing.
#[test]
fn a_bad_command_is_refused() {
    let source = file_with(b"number, please");
    let (mut end, sink) = std::io::pipe().unwrap();
    let mut cue = Cue::new(&source, &sink).unwrap();
    let refused = |word| Record::Refused {
        word,
        errno: Errno::EINVAL,
    };
    // No command; an unknown one with two words; a known one with too many.
    let words = [
        0xdead_beef_u32,
        0x4302_7777,
        0x4300_0002,
        0x4300_000a,
        0x4303_0001,
        1,
        2,
        3,
    ];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    write_all(&cue, &bytes);
    send(&cue, &[Command::Write(3)]);
    for word in [0xdead_beef, 0x4302_7777, 0x4303_0001] {
        assert_eq!(next(&mut cue), refused(word));
    }
    assert_eq!(next(&mut cue), Record::Started(1));
    let mut text = [0; 3];
    end.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"num");
}

#[test]
fn a_failure_names_its_side() {
    let source = file_with(&noise(1 << 20));
    let (end, sink) = std::io::pipe().unwrap();
    drop(end);
    let mut cue = Cue::new(&source, &sink).unwrap();
    send(&cue, &[Command::WriteToEnd, Command::Write(1)]);
    for _ in 0..2 {
        let done = done(&mut cue);
        assert_eq!((done.ended, done.failed), (Ended::Error, Some(Side::Sink)));
        assert_eq!((done.errno, done.written), (Some(Errno::EPIPE), 0));
    }
    // The source is not open for reading: refused before anything moves.
    let (end, sink) = std::io::pipe().unwrap();
    let mut cue = Cue::new(&sink, &end).unwrap();
    send(&cue, &[Command::Write(1)]);
    let done = done(&mut cue);
    assert_eq!((done.ended, done.read), (Ended::Error, 0));
    assert_eq!(done.errno, Some(Errno::EBADF));
}

#[test]
fn the_status_tells_the_path_and_the_schedule() {
    let _dog = watchdog("the_status_tells_the_path_and_the_schedule");
    let (source, mut feed) = std::io::pipe().unwrap();
    let (mut end, sink) = std::io::pipe().unwrap();
    let mut cue = Cue::new(&source, &sink).unwrap();
    send(
        &cue,
        &[
            Command::Schedule { count: 4, rest: 70 },
            Command::Write(10),
            Command::Write(20),
            Command::Status,
        ],
    );
    assert_eq!(next(&mut cue), Record::Started(1));
    let Record::Status(first) = next(&mut cue) else {
        panic!("no status")
    };
    let rest = std::time::Duration::from_millis(70);
    assert_eq!(first.schedule, Schedule::blocks(4, rest));
    assert_eq!((first.state, first.queued), (State::Running, 1));
    feed.write_all(b"0123456789").unwrap();
    end.read_exact(&mut [0; 10]).unwrap();
    assert_eq!(done(&mut cue).written, 10);
    send(&cue, &[Command::Rate(1 << 40)]);
    let second = status(&mut cue);
    assert_eq!(second.schedule, Schedule::rate(1 << 40));
    assert_eq!((second.transfer, second.queued), (2, 0));
    assert!(matches!(
        second.path,
        Some(DataPath::Splice | DataPath::ReadWrite)
    ));
}

/// Reports come by themselves while a transfer runs, and only then.
#[test]
fn progress_is_reported_by_interval() {
    let _dog = watchdog("progress_is_reported_by_interval");
    let (source, mut feed) = std::io::pipe().unwrap();
    let (mut end, sink) = std::io::pipe().unwrap();
    let mut cue = Cue::new(&source, &sink).unwrap();
    send(&cue, &[Command::Progress(10), Command::Write(5)]);
    assert_eq!(next(&mut cue), Record::Started(1));
    for _ in 0..3 {
        let Record::Status(status) = next(&mut cue) else {
            panic!("no report")
        };
        assert_eq!((status.state, status.read), (State::Running, 0));
    }
    feed.write_all(b"hello").unwrap();
    end.read_exact(&mut [0; 5]).unwrap();
    assert_eq!(done(&mut cue).written, 5);
}
