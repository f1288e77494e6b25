//! One control descriptor, without the thread that serves it.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::net::{Shutdown, shutdown};

use super::execute::millis;
use super::*;
use crate::cue::Cue;
use crate::cue::protocol::{Command, Commands, Limit};
use crate::cue::registry::{Message, Registry};
use crate::errno::Errno;

/// A record, which is skipped without an answer.
const RECORD: u32 = 0x5200_0000;

/// A control descriptor, and the stream that serves it.
fn served() -> (Cue, Stream) {
    let (source, sink) = std::io::pipe().unwrap();
    serve(source.as_fd(), sink.as_fd())
}

fn serve(source: BorrowedFd<'_>, sink: BorrowedFd<'_>) -> (Cue, Stream) {
    let registry = Arc::new(Registry::new().unwrap());
    let cue = Cue::of(&registry, source, sink).unwrap();
    let Some(Message::New(new)) = registry.take().pop() else {
        panic!("no message");
    };
    (cue, Stream::new(*new).0)
}

fn unread(stream: &Stream) -> u64 {
    rustix::io::ioctl_fionread(stream.ports[0].socket()).unwrap()
}

/// The socket always holds more commands, as if the peer sent faster than the thread reads.
#[test]
fn a_flood_is_read_a_few_pieces_at_a_time() {
    let (cue, mut stream) = served();
    let flood = RECORD.to_le_bytes().repeat(4 * Commands::ROOM);
    rustix::io::write(&cue, &flood).unwrap();
    let (before, now) = (unread(&stream), Duration::ZERO);
    stream.advance(|| now);
    let left = unread(&stream);
    assert!(0 < left && left < before, "{left} of {before}");
    // The thread returns to it at once.
    let mut turns = 1;
    while stream.timer(now) == Some(now) {
        stream.advance(|| now);
        turns += 1;
    }
    assert_eq!(unread(&stream), 0, "{turns}");
}

#[test]
fn each_piece_has_its_own_time() {
    let (mut cue, mut stream) = served();
    let mut bytes = Vec::new();
    Command::Limit(Limit::Time(5)).encode(&mut bytes);
    while bytes.len() < Commands::ROOM {
        bytes.extend(RECORD.to_le_bytes());
    }
    Command::Write(1).encode(&mut bytes);
    rustix::io::write(&cue, &bytes).unwrap();
    let now = Cell::new(Duration::ZERO);
    stream.advance(|| now.replace(now.get() + millis(10)));
    let late = Record::refused(Command::Write(1), Errno::EPERM);
    assert_eq!(cue.receive(), Ok(Some(late)));
}

/// A full socket refuses records, and the next attempt succeeds, because the reader has made
/// room meanwhile. No event of the socket follows.
#[test]
fn commands_behind_records_that_had_no_room_are_carried_out() {
    const MANY: usize = 40;
    for is_closed in [false, true] {
        let (mut cue, mut stream) = served();
        for _ in 0..MANY {
            cue.send(Command::Status).unwrap();
        }
        if is_closed {
            shutdown(&cue, Shutdown::Write).unwrap();
        }
        let now = Duration::ZERO;
        let serve = || {
            stream.advance(|| now);
            while stream.timer(now) == Some(now) || stream.ports[0].interest().1 {
                stream.advance(|| now);
            }
        };
        let every_other = |n: usize| n.is_multiple_of(2).then_some(libc::EAGAIN);
        if testkit::midst::refusing(&[libc::SYS_sendto], serve, every_other).is_none() {
            return testkit::skip::here("no seccomp_unotify(2) here");
        }
        assert_eq!(stream.is_done(), is_closed);
        drop(stream);
        let mut records = 0;
        while cue.receive().unwrap().is_some() {
            records += 1;
        }
        assert_eq!(records, MANY, "{is_closed}");
    }
}

/// No process reads the reports of progress any more.
#[test]
fn a_port_without_a_reader_has_no_timer() {
    let (source, _feed) = std::io::pipe().unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    for hangs_up in [true, false] {
        let (cue, mut stream) = serve(source.as_fd(), sink.as_fd());
        for command in [Command::Progress(10), Command::Write(1)] {
            cue.send(command).unwrap();
        }
        let now = Duration::ZERO;
        stream.advance(|| now);
        while stream.timer(now) == Some(now) {
            stream.advance(|| now);
        }
        assert_eq!(stream.timer(now), Some(millis(10)));
        drop(cue);
        // Otherwise the next record finds the socket closed.
        if hangs_up {
            stream.port_mut(0).unwrap().hang_up();
        }
        let now = millis(10);
        stream.advance(|| now);
        while stream.timer(now) == Some(now) {
            stream.advance(|| now);
        }
        assert_eq!(stream.timer(now), None, "{hangs_up}");
    }
}
