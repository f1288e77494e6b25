//! What the tests of control descriptors do in each step.

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};

use cordboard::cue::{Command, Cue, Done, Record, Records, Status};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::SendFlags;

pub use testkit::file::file_with;

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

/// Reads records from a peer's socket.
pub struct Answers<S> {
    socket: S,
    records: Records,
}

impl<S: Read> Answers<S> {
    pub fn new(socket: S) -> Answers<S> {
        Answers {
            socket,
            records: Records::default(),
        }
    }

    pub fn next(&mut self) -> Option<Record> {
        loop {
            if let Some(record) = self.records.next() {
                return Some(record);
            }
            let mut bytes = [0; 100];
            match self.socket.read(&mut bytes).unwrap() {
                0 => return None,
                n => self.records.push(&bytes[..n]),
            }
        }
    }

    /// Waits for a record of this kind.
    pub fn until(&mut self, mut is_it: impl FnMut(&Record) -> bool) {
        while !is_it(&self.next().expect("no more records")) {}
    }
}

/// Writes these commands to a nonblocking peer, until it has been full so many times in a row
/// that nothing in between takes any more.
pub fn flood(peer: impl AsFd, commands: &[Command], times: usize) {
    let (bytes, mut silent) = (bytes_of(commands), 0);
    while silent < times {
        silent += 1;
        if rustix::io::write(&peer, &bytes).is_ok() {
            silent = 0;
        }
        std::thread::yield_now();
    }
}
