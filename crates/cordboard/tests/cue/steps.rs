//! What the tests of control descriptors do in each step.

use std::io::{Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};

use cordboard::cue::{Command, Cue, Done, Record, Status};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::SendFlags;

pub fn file_with(bytes: &[u8]) -> std::fs::File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

/// The bytes of these commands.
pub fn bytes_of(commands: &[Command]) -> Vec<u8> {
    let mut bytes = Vec::new();
    commands
        .iter()
        .for_each(|command| command.encode(&mut bytes));
    bytes
}

pub fn write_all(cue: &Cue, bytes: &[u8]) {
    let mut left = bytes;
    while !left.is_empty() {
        left = &left[rustix::io::write(cue, left).unwrap()..];
    }
}

pub fn send(cue: &Cue, commands: &[Command]) {
    write_all(cue, &bytes_of(commands));
}

pub fn next(cue: &mut Cue) -> Record {
    cue.receive().unwrap().expect("no more records")
}

/// Reads up to the end of a transfer, and returns that.
pub fn done(cue: &mut Cue) -> Done {
    loop {
        if let Record::Done(done) = next(cue) {
            return done;
        }
    }
}

/// Asks for the status, and returns the first one that is read.
pub fn status(cue: &mut Cue) -> Status {
    send(cue, &[Command::Status]);
    loop {
        if let Record::Status(status) = next(cue) {
            return status;
        }
    }
}

/// Fills a blocking socket, and returns the number of bytes.
pub fn fill(socket: impl AsFd) -> usize {
    let (bytes, mut all) = ([7; 4096], 0);
    while let Ok(sent) = rustix::net::send(&socket, &bytes, SendFlags::DONTWAIT) {
        all += sent;
    }
    all
}

/// Whether something can be read now.
pub fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let now = Timespec::default();
    rustix::event::poll(&mut fds, Some(&now)).unwrap() > 0
}
