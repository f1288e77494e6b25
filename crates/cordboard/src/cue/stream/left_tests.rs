//! Bytes that an earlier transfer has left, and the counts of transfers around them.

use std::io::Write as _;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use super::Stream;
use super::execute::millis;
use super::tests::{command, serve};
use crate::cue::Cue;
use crate::cue::protocol::{Command, Limit, Record, Status};
use crate::cue::registry::Message;
use crate::report::{Ended, Stranded};

/// Lets transfers end until the condition holds.
pub(super) fn end_until(stream: &mut Stream, now: Duration, is_done: impl Fn(&Stream) -> bool) {
    while !is_done(stream) {
        for message in stream.held.registry.take() {
            match message {
                Message::Started(_, result) => stream.started(*result),
                Message::Ended(_) => stream.ended(now),
                _ => continue,
            }
            stream.advance(|| now);
        }
        std::thread::yield_now();
    }
}

pub(super) fn is_idle(stream: &Stream) -> bool {
    stream.active.is_none()
}

/// Returns the next status, behind the other records.
fn status(cue: &mut Cue, stream: &mut Stream) -> Status {
    command(cue, stream, &[Command::Status]);
    loop {
        if let Some(Record::Status(status)) = cue.receive().unwrap() {
            return status;
        }
    }
}

/// The bytes that an earlier transfer has left are written before the time has passed, and the
/// thread comes to the transfer behind them later.
#[test]
fn no_transfer_begins_behind_left_bytes_after_the_time() {
    let (source, mut feed) = std::io::pipe().unwrap();
    feed.write_all(b"please").unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    let (mut cue, mut stream) = serve(source.as_fd(), sink.as_fd());
    let left = Stranded::Buffer(b"number, ".to_vec());
    stream.held.rest.keep(Some(left), false);
    let commands = [Command::Limit(Limit::Time(5)), Command::Write(6)];
    command(&cue, &mut stream, &commands);
    end_until(&mut stream, millis(5), is_idle);
    assert_eq!(cue.receive(), Ok(Some(Record::Started(1))));
    let Ok(Some(Record::Done(done))) = cue.receive() else {
        panic!("no end");
    };
    assert_eq!(
        (done.ended, done.read, done.written),
        (Ended::Cancelled, 0, 8)
    );
    assert_eq!(rustix::io::ioctl_fionread(&source), Ok(6));
}

/// A peer that receives messages expects no longer ones.
#[test]
fn left_bytes_are_written_in_blocks() {
    let (source, mut feed) = std::io::pipe().unwrap();
    feed.write_all(&[9; 100]).unwrap();
    let (reader, sink) = UnixDatagram::pair().unwrap();
    let (cue, mut stream) = serve(source.as_fd(), sink.as_fd());
    (stream.held.rest).keep(Some(Stranded::Buffer(vec![7; 250])), false);
    command(
        &cue,
        &mut stream,
        &[Command::Block(100), Command::Write(100)],
    );
    end_until(&mut stream, Duration::ZERO, is_idle);
    reader.set_nonblocking(true).unwrap();
    let mut message = [0; 1000];
    let mut lengths = Vec::new();
    while let Ok(length) = reader.recv(&mut message) {
        lengths.push((length, message[0]));
    }
    assert_eq!(lengths, [(100, 7), (100, 7), (50, 7), (100, 9)]);
}

/// A rate follows from the bytes and the time.
#[test]
fn the_time_of_left_bytes_counts_like_the_bytes() {
    let (source, mut feed) = std::io::pipe().unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    let (mut cue, mut stream) = serve(source.as_fd(), sink.as_fd());
    (stream.held.rest).keep(Some(Stranded::Buffer(vec![7; 250])), false);
    command(&cue, &mut stream, &[Command::Write(100)]);
    let now = Duration::ZERO;
    end_until(&mut stream, now, |stream| {
        stream.active.as_ref().is_none_or(|active| !active.is_rest)
    });
    let before = stream.active.as_ref().unwrap().before;
    assert_eq!((before.read, before.written), (0, 250));
    assert!(!before.elapsed.is_zero());
    assert!(status(&mut cue, &mut stream).elapsed >= Duration::from_micros(1).min(before.elapsed));
    feed.write_all(&[9; 100]).unwrap();
    end_until(&mut stream, now, is_idle);
    assert!(stream.moved.elapsed > before.elapsed);
    let status = status(&mut cue, &mut stream);
    assert_eq!((status.read, status.written), (100, 350));
}

/// A client that adds up the counts of each number counts no byte twice.
#[test]
fn the_status_has_the_counts_of_the_transfer_that_it_names() {
    let (source, mut feed) = std::io::pipe().unwrap();
    feed.write_all(&[9; 100]).unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    let (mut cue, mut stream) = serve(source.as_fd(), sink.as_fd());
    let counts = |status: Status| (status.transfer, status.read, status.commanded);
    command(&cue, &mut stream, &[Command::Write(100)]);
    end_until(&mut stream, Duration::ZERO, is_idle);
    assert_eq!(counts(status(&mut cue, &mut stream)), (1, 100, 1));
    // Not started: a pipe has no offset.
    let limit = Command::Limit(Limit::Range { start: 0, end: 10 });
    command(&cue, &mut stream, &[limit, Command::Write(1)]);
    end_until(&mut stream, Duration::ZERO, is_idle);
    assert_eq!(counts(status(&mut cue, &mut stream)), (2, 0, 2));
    // The second one of these is cancelled before it starts.
    drop((cue, stream));
    let (mut cue, mut stream) = serve(source.as_fd(), sink.as_fd());
    feed.write_all(&[9; 10]).unwrap();
    let all = [Command::Write(100), Command::Write(1), Command::Cancel];
    command(&cue, &mut stream, &all);
    end_until(&mut stream, Duration::ZERO, is_idle);
    let status = status(&mut cue, &mut stream);
    assert_eq!((status.transfer, status.commanded), (1, 2));
}

/// The bytes have been read, and counted, by the transfer that has left them.
#[test]
fn left_bytes_are_written_although_no_more_may_be_read() {
    let (source, mut feed) = std::io::pipe().unwrap();
    feed.write_all(&[9; 100]).unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    let (mut cue, mut stream) = serve(source.as_fd(), sink.as_fd());
    (stream.held.rest).keep(Some(Stranded::Buffer(vec![7; 250])), false);
    let limit = Command::Limit(Limit::Bytes(0));
    command(&cue, &mut stream, &[limit, Command::WriteToEnd]);
    end_until(&mut stream, Duration::ZERO, is_idle);
    let first = status(&mut cue, &mut stream);
    assert_eq!((first.transfer, first.read, first.written), (1, 0, 250));
    // Nothing is left.
    command(&cue, &mut stream, &[Command::WriteToEnd]);
    end_until(&mut stream, Duration::ZERO, is_idle);
    let second = status(&mut cue, &mut stream);
    assert_eq!((second.transfer, second.read, second.written), (2, 0, 0));
}
