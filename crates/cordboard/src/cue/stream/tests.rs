//! One control descriptor, without the thread that serves it.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::net::{SendFlags, Shutdown, send, shutdown};

use super::execute::millis;
use super::*;
use crate::cue::Cue;
use crate::cue::protocol::{Command, Commands, Limit, Records};
use crate::cue::registry::{Message, Registry};
use crate::errno::Errno;
use crate::report::Ended;
use crate::request::Schedule;
use crate::{sys, threads};

/// A record, which is skipped without an answer.
const RECORD: u32 = 0x5200_0000;

/// A control descriptor, and the stream that serves it.
fn served() -> (Cue, Stream) {
    let (source, sink) = std::io::pipe().unwrap();
    serve(source.as_fd(), sink.as_fd())
}

pub(super) fn serve(source: BorrowedFd<'_>, sink: BorrowedFd<'_>) -> (Cue, Stream) {
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

/// Returns the number of descriptors of this process that refer to this file.
fn descriptors_of(file: impl AsFd) -> usize {
    let is_it = |number: std::io::Result<std::fs::DirEntry>| {
        let number = number.ok()?.file_name().to_str()?.parse().ok()?;
        sys::at(number).filter(|fd| sys::identity(*fd) == sys::identity(&file))
    };
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    all.filter_map(is_it).count()
}

/// Its reader may remove, execute or unmount a file.
#[test]
fn files_are_closed_before_the_end_of_the_records() {
    let _dog = testkit::watchdog::watch("files_are_closed_before_the_end_of_the_records");
    let pipe = std::io::pipe().unwrap();
    let file = tempfile::tempfile().unwrap();
    for (source, sink) in [
        (file.as_fd(), pipe.1.as_fd()),
        (pipe.0.as_fd(), file.as_fd()),
    ] {
        let (mut cue, stream) = serve(source, sink);
        // The threads of the pool are in calls that wait.
        let (wait, end) = std::io::pipe().unwrap();
        for _ in 0..8 {
            let wait = wait.try_clone().unwrap();
            threads::call(move || drop(std::io::Read::read(&mut &wait, &mut [0])));
        }
        drop(stream);
        assert_eq!(cue.receive(), Ok(None));
        assert_eq!(descriptors_of(&file), 1);
        drop(end);
    }
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

/// The socket counts as writable, and would be reported again and again.
#[test]
fn records_without_memory_are_sent_later() {
    if cfg!(target_arch = "x86") {
        return testkit::skip::here("all calls on sockets are one here, socketcall(2)");
    }
    let (mut cue, mut stream) = served();
    cue.send(Command::Status).unwrap();
    let mut seen = None;
    let serve = || {
        settle(&mut stream);
        seen = Some((stream.timer(Duration::ZERO), stream.ports[0].interest().1));
    };
    let none = |_| Some(libc::ENOBUFS);
    if testkit::midst::refusing(&[libc::SYS_sendto], serve, none).is_none() {
        return testkit::skip::here("no seccomp_unotify(2) here");
    }
    assert_eq!(seen, Some((Some(RETRY), false)));
    stream.advance(|| RETRY);
    assert_eq!(stream.timer(RETRY), None);
    assert!(matches!(cue.receive(), Ok(Some(Record::Status(_)))));
}

/// A filter that the host installs later refuses the calls on the thread.
#[test]
fn commands_and_records_pass_by_other_calls_or_the_connection_ends() {
    const SEND: [libc::c_long; 2] = [libc::SYS_sendto, libc::SYS_sendmsg];
    const RECEIVE: [libc::c_long; 2] = [libc::SYS_recvfrom, libc::SYS_recvmsg];
    if cfg!(target_arch = "x86") {
        return testkit::skip::here("all calls on sockets are one here, socketcall(2)");
    }
    for errno in [libc::EPERM, libc::ENOSYS] {
        let without = |calls: &[libc::c_long]| {
            let (cue, mut stream) = served();
            cue.send(Command::Status).unwrap();
            testkit::refuse::apart(|| {
                testkit::refuse::refuse(calls, errno);
                settle(&mut stream);
            });
            (cue, stream)
        };
        let (mut cue, _stream) = without(&[SEND[0], RECEIVE[0]]);
        assert!(matches!(cue.receive(), Ok(Some(Record::Status(_)))));
        // The end, and not a wait for the record.
        let (mut cue, _stream) = without(&SEND);
        assert_eq!(cue.receive(), Ok(None));
        assert_eq!(cue.send(Command::Status), Err(Errno::EPIPE));
        let (mut cue, stream) = without(&RECEIVE);
        assert_eq!(cue.send(Command::Status), Err(Errno::EPIPE));
        assert!(stream.is_done());
        drop(stream);
        assert_eq!(cue.receive(), Ok(None));
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

/// Carries out all that can be carried out now.
fn settle(stream: &mut Stream) {
    let now = Duration::ZERO;
    stream.advance(|| now);
    while stream.timer(now) == Some(now) {
        stream.advance(|| now);
    }
}

/// Sends these commands, of which each is carried out before the next one.
pub(super) fn command(cue: &Cue, stream: &mut Stream, commands: &[Command]) {
    for command in commands {
        cue.send(*command).unwrap();
        settle(stream);
    }
}

/// Adds the connection of a link, whose peer has these commands in the decoder and reads no
/// records. Returns the other end.
fn attach_full(stream: &mut Stream, commands: &[Command]) -> UnixStream {
    let (peer, ours) = UnixStream::pair().unwrap();
    peer.set_nonblocking(true).unwrap();
    while send(&ours, &[0; 4096], SendFlags::DONTWAIT).is_ok() {}
    let socket = Socket::new(&stream.held.registry, ours.into());
    stream.attach(1, 1, socket);
    let port = stream.port_mut(1).unwrap();
    let mut bytes = Vec::new();
    commands.iter().for_each(|one| one.encode(&mut bytes));
    assert_eq!(port.commands.push(&bytes), bytes.len());
    peer
}

/// Reads all that has arrived, and returns the number of transfers that were cancelled.
fn cancelled(mut socket: impl std::io::Read) -> usize {
    let mut records = Records::default();
    let mut bytes = [0; 4096];
    while let Ok(n @ 1..) = socket.read(&mut bytes) {
        records.push(&bytes[..n]);
    }
    let is_it =
        |record: &Record| matches!(record, Record::Done(done) if done.ended == Ended::Cancelled);
    std::iter::from_fn(|| records.next()).filter(is_it).count()
}

/// A peer has commanded a cancellation and reads no records. It takes effect once, when the
/// peer has read them.
#[test]
fn a_cancellation_takes_effect_once() {
    let (source, _feed) = std::io::pipe().unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    let (cue, mut stream) = serve(source.as_fd(), sink.as_fd());
    let peer = attach_full(&mut stream, &[Command::Status, Command::Cancel]);
    let port = stream.port_mut(1).unwrap();
    while !port.output.is_full() {
        port.output.put(&Record::Status(Status::idle()));
    }
    let writes = [&[Command::Pause], &[Command::Write(1); 34][..]].concat();
    command(&cue, &mut stream, &writes);
    assert_eq!(stream.queue.len(), 32);
    let owner = UnixStream::from(cue.as_fd().try_clone_to_owned().unwrap());
    owner.set_nonblocking(true).unwrap();
    assert_eq!(cancelled(&owner), 0);
    cancelled(&peer);
    settle(&mut stream);
    assert_eq!(cancelled(&owner), 32);
    // The last of them had no room before.
    assert_eq!(stream.queue.len(), 1);
    command(&cue, &mut stream, &[Command::Write(1); 40]);
    assert_eq!((stream.queue.len(), cancelled(&owner)), (32, 0));
}

/// It has overtaken transfers of the peer, whose records have no room.
#[test]
fn a_cancellation_that_overtakes_takes_effect_once() {
    let (source, _feed) = std::io::pipe().unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    let (cue, mut stream) = serve(source.as_fd(), sink.as_fd());
    let writes = [&[Command::Pause], &[Command::Write(1); 33][..]].concat();
    command(&cue, &mut stream, &writes);
    let behind = [&[Command::Write(1); 40][..], &[Command::Cancel]].concat();
    let peer = attach_full(&mut stream, &behind);
    settle(&mut stream);
    let owner = UnixStream::from(cue.as_fd().try_clone_to_owned().unwrap());
    owner.set_nonblocking(true).unwrap();
    assert_eq!((stream.queue.len(), cancelled(&owner)), (0, 32));
    command(&cue, &mut stream, &[Command::Write(1); 33]);
    assert_eq!((stream.queue.len(), cancelled(&owner)), (32, 0));
    let mut all = 0;
    while stream.port_mut(1).unwrap().commands.peek(0).is_some() {
        all += cancelled(&peer);
        settle(&mut stream);
    }
    // Those of the owner that came later stay.
    assert_eq!((all + cancelled(&peer), stream.queue.len()), (40, 32));
    assert_eq!(cancelled(&owner), 0);
}

/// Also of those that were cancelled before they started.
#[test]
fn the_status_has_the_number_of_the_last_command() {
    let (source, _feed) = std::io::pipe().unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    let (mut cue, mut stream) = serve(source.as_fd(), sink.as_fd());
    let mut last = |commands: &[Command]| {
        command(&cue, &mut stream, commands);
        command(&cue, &mut stream, &[Command::Status]);
        loop {
            if let Some(Record::Status(status)) = cue.receive().unwrap() {
                return (status.transfer, status.queued, status.commanded);
            }
        }
    };
    assert_eq!(last(&[]), (0, 0, 0));
    assert_eq!(last(&[Command::Write(1); 3]), (1, 2, 3));
    // The engine has not reported the end of the first one.
    assert_eq!(last(&[Command::Cancel, Command::Write(1)]), (1, 1, 4));
}

/// A cancellation that a limit forbids holds up no command behind it.
#[test]
fn a_forbidden_cancellation_is_overtaken() {
    let (source, _feed) = std::io::pipe().unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    let (cue, mut stream) = serve(source.as_fd(), sink.as_fd());
    let allowed = Command::Limit(Limit::Commands(!Command::Cancel.bit()));
    let first = [allowed, Command::Pause];
    let last = [Command::Cancel, Command::Resume];
    let all = [&first[..], &[Command::Write(1); 34], &last].concat();
    command(&cue, &mut stream, &all);
    assert_eq!(stream.queue.len(), 32);
    assert!(!stream.held.control.is_paused());
}

/// The limit keeps its place behind the block, which is its unit.
#[test]
fn a_cancellation_overtakes_a_limit_of_the_schedule() {
    let (source, _feed) = std::io::pipe().unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    let (cue, mut stream) = serve(source.as_fd(), sink.as_fd());
    let limit = Command::Limit(Limit::Schedule { count: 1, rest: 9 });
    let last = [Command::Block(9), limit, Command::Cancel];
    let all = [&[Command::Write(1); 34][..], &last].concat();
    command(&cue, &mut stream, &all);
    assert!(stream.queue.is_empty());
    let limit = Schedule::blocks(1, millis(9));
    assert_eq!(stream.held.control.schedule_limits().1, limit);
}

/// Such as the node of a FIFO or a device on a server that does not answer.
#[test]
fn a_link_whose_source_may_wait_is_refused() {
    let registry = Arc::new(Registry::new().unwrap());
    let (source, sink) = std::io::pipe().unwrap();
    let target = Cue::of(&registry, source.as_fd(), sink.as_fd()).unwrap();
    let (_peer, ours) = UnixStream::pair().unwrap();
    for (may_wait, errno) in [(true, Some(Errno::EINVAL)), (false, None)] {
        let mut cue = Cue::of(&registry, ours.as_fd(), target.as_fd()).unwrap();
        let Some(Message::New(mut new)) = registry.take().pop() else {
            panic!("no message");
        };
        new.may_wait |= may_wait;
        let (mut stream, _link) = Stream::new(*new);
        command(&cue, &mut stream, &[Command::Write(0)]);
        let record = cue.receive().unwrap().unwrap();
        let refused = match record {
            Record::Done(done) => done.errno,
            _ => None,
        };
        assert_eq!(refused, errno, "{record:?}");
    }
}

/// `lseek(2)` could wait for the lock of the position, which another process holds.
#[test]
fn a_position_that_procfs_does_not_show_is_in_no_range() {
    let (source, sink) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    let (mut cue, mut stream) = serve(source.as_fd(), sink.as_fd());
    let range = Command::Limit(Limit::Range { start: 0, end: 9 });
    testkit::refuse::apart(|| {
        testkit::refuse::refuse(testkit::refuse::OPEN, libc::EMFILE);
        command(&cue, &mut stream, &[range, Command::Write(1)]);
    });
    let Ok(Some(Record::Done(done))) = cue.receive() else {
        panic!("it was started");
    };
    assert_eq!(done.errno, Some(Errno::EPERM));
}
