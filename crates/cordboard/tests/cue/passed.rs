//! Descriptors that a peer passes over a control descriptor, or over the source of a link. The
//! close of one may wait, and a socket in a message stays open.

use std::fs::File;
use std::io::{IoSlice, PipeReader, PipeWriter, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use cordboard::Errno;
use cordboard::cue::{Command, Cue};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use testkit::locked::{Locked, held_up};
use testkit::needs::{Need, missing};

use super::common::{alone, watchdog};
use super::hosts::works;
use super::steps::{bytes_of, send, status};

/// Sends these commands, and passes a descriptor with them.
pub fn pass(to: impl AsFd, commands: &[Command], fd: BorrowedFd<'_>) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let (mut ancillary, fds) = (SendAncillaryBuffer::new(&mut space), [fd]);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
    let bytes = bytes_of(commands);
    sendmsg(
        to,
        &[IoSlice::new(&bytes)],
        &mut ancillary,
        SendFlags::empty(),
    )
}

/// A pipe, and another description of its read end, whose close takes the lock of the pipe.
fn pipe() -> (PipeReader, PipeWriter, File) {
    let (reader, writer) = std::io::pipe().unwrap();
    let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
    let other = File::open(path).unwrap();
    (reader, writer, other)
}

/// Waits until a thread is held up, and checks that it is not that of the control descriptors.
fn others_are_served(locked: Locked) {
    while held_up("cordboard-work") == 0 && held_up("cordboard-cue") == 0 {
        std::thread::yield_now();
    }
    assert!(works());
    assert_eq!(held_up("cordboard-cue"), 0);
    locked.release();
}

/// Before Linux 6.16 descriptors arrive.
#[test]
fn a_descriptor_that_is_passed_holds_up_no_other() {
    let name = "a_descriptor_that_is_passed_holds_up_no_other";
    let _dog = watchdog(name);
    if !alone!() || missing(name, &[Need::Splice]) {
        return;
    }
    let none = File::open("/dev/null").unwrap();
    testkit::refuse::apart(|| {
        testkit::refuse::refuse(&[libc::SYS_setsockopt], libc::ENOPROTOOPT);
        loop {
            let cue = Cue::new(&none, &none).unwrap();
            let (reader, writer, other) = pipe();
            let locked = Locked::of(reader, writer);
            pass(&cue, &[Command::Status], other.as_fd()).unwrap();
            if is_open_elsewhere(other) {
                return others_are_served(locked);
            }
            // The service has closed its copy first.
            locked.release();
        }
    });
}

/// Closes this copy of a descriptor on a thread. Returns whether it was not the last one: the
/// close of that one waits for the lock.
fn is_open_elsewhere(copy: File) -> bool {
    const NAME: &str = "closes-a-copy";
    let thread = std::thread::Builder::new().name(NAME.into());
    let closing = thread.spawn(move || drop(copy)).unwrap();
    while !closing.is_finished() {
        if held_up(NAME) > 0 {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// Before Linux 6.16 the commands of the message are lost. The peer is told that no more are
/// accepted.
#[test]
fn a_write_behind_a_descriptor_that_was_passed_fails() {
    let _dog = watchdog("a_write_behind_a_descriptor_that_was_passed_fails");
    if !alone!() {
        return;
    }
    let (source, _feed) = std::io::pipe().unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    let cue = testkit::refuse::apart(|| {
        testkit::refuse::refuse(&[libc::SYS_setsockopt], libc::ENOPROTOOPT);
        Cue::new(&source, &sink).unwrap()
    });
    // The transfer keeps the descriptor open.
    send(&cue, &[Command::Write(1)]);
    pass(&cue, &[Command::Status], source.as_fd()).unwrap();
    // Until the service has received the message.
    while cue.send(Command::Pause).is_ok() {
        std::thread::yield_now();
    }
    assert_eq!(cue.send(Command::Pause), Err(Errno::EPIPE));
}

/// The peer of a link that is not read passes one, and the link ends.
#[test]
fn a_descriptor_that_a_peer_passes_holds_up_no_other() {
    let name = "a_descriptor_that_a_peer_passes_holds_up_no_other";
    let _dog = watchdog(name);
    if !alone!() || missing(name, &[Need::Splice]) {
        return;
    }
    let none = File::open("/dev/null").unwrap();
    let cue = Cue::new(&none, &none).unwrap();
    let (peer, ours) = UnixStream::pair().unwrap();
    let mut link = Cue::new(&ours, &cue).unwrap();
    drop(ours);
    status(&mut link);
    let (reader, writer, other) = pipe();
    let locked = Locked::of(reader, writer);
    pass(&peer, &[Command::Status], other.as_fd()).unwrap();
    drop((other, link));
    others_are_served(locked);
}

/// A message in its own queue would keep it open for ever.
#[test]
fn a_control_descriptor_is_not_passed_over_itself() {
    let name = "a_control_descriptor_is_not_passed_over_itself";
    let _dog = watchdog(name);
    if missing(name, &[Need::PassRights]) {
        return;
    }
    let (source, _feed) = std::io::pipe().unwrap();
    let (mut end, sink) = std::io::pipe().unwrap();
    let cue = Cue::new(&source, &sink).unwrap();
    drop(sink);
    let refused = pass(&cue, &[Command::Status], cue.as_fd());
    assert_eq!(refused, Err(rustix::io::Errno::PERM));
    drop(cue);
    assert_eq!(end.read(&mut [0]).unwrap(), 0);
}
