//! The connection to one control socket. No call on it blocks.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cordboard::Errno;
use cordboard::cue::{Command, Done, Record, Records, Status};
use rustix::net::{RecvFlags, SendFlags, getpeername};

use crate::cue::is_status;
use crate::endpoint;
use crate::{socket_calls, sys, user};

/// The number of bytes of waiting commands from which no further command is sent, because the
/// peer does not read.
const MOST: usize = 1024;
/// The maximum number of consecutive reads, so that a peer that sends without end does not
/// delay the others.
const READS: u32 = 16;

/// A connection.
#[derive(Debug)]
pub struct Peer {
    socket: OwnedFd,
    records: Records,
    output: Vec<u8>,
    /// The number of requests of the status without an answer.
    expected: u32,
}

/// A record that has arrived, or the end of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Status(Status),
    Done(Done),
    Refused(u32, Errno),
    Closed,
}

impl Peer {
    /// Connects. `EAGAIN`: the queue of the listener is full.
    pub fn connect(name: &OsStr) -> Result<Peer, Errno> {
        Ok(Peer {
            socket: endpoint::connect_at_once(name)?,
            records: Records::default(),
            output: Vec::new(),
            expected: 0,
        })
    }

    /// Returns whether the peer process belongs to this user.
    pub fn is_ours(&self) -> bool {
        let peer = sys::peer(&self.socket);
        peer.is_ok_and(|peer| user::is_own(peer.uid, getpeername(&self.socket).ok().flatten()))
    }

    /// Returns the number of the peer process. `None`: it is in another PID namespace.
    pub fn process(&self) -> Option<u32> {
        sys::peer(&self.socket).ok()?.pid
    }

    /// Requests the status, unless the last request is still unanswered.
    pub fn ask(&mut self) {
        if self.expected == 0 {
            self.expected = 1;
            Command::Status.encode(&mut self.output);
            self.flush();
        }
    }

    /// Sends a command, and a request of the status after it. Returns the number of the answers
    /// until then. `None`: the command is omitted, because the peer does not read.
    pub fn send(&mut self, command: Command) -> Option<u32> {
        if self.output.len() >= MOST {
            return None;
        }
        command.encode(&mut self.output);
        Command::Status.encode(&mut self.output);
        self.expected += 1;
        self.flush();
        Some(self.expected)
    }

    fn flush(&mut self) {
        while !self.output.is_empty() {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match socket_calls::send(&self.socket, &self.output, flags) {
                Ok(sent) => drop(self.output.drain(..sent)),
                Err(rustix::io::Errno::INTR) => {}
                // The next read returns the error as well.
                Err(_) => return,
            }
        }
    }

    /// Returns the events of at most [`READS`] reads. `Closed` is the last one.
    pub fn receive(&mut self) -> Vec<Event> {
        self.flush();
        let mut events = Vec::new();
        for _ in 0..READS {
            let mut bytes = [0; 1024];
            let closed = match socket_calls::recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((n @ 1.., _)) => {
                    self.records.push(&bytes[..n]);
                    false
                }
                Err(rustix::io::Errno::INTR) => false,
                Err(rustix::io::Errno::AGAIN) => return events,
                Ok(_) | Err(_) => true,
            };
            while let Some(record) = self.records.next() {
                events.extend(self.event(record));
            }
            if closed {
                events.push(Event::Closed);
                break;
            }
        }
        events
    }

    fn event(&mut self, record: Record) -> Option<Event> {
        match record {
            Record::Status(status) => {
                self.expected = self.expected.saturating_sub(1);
                Some(Event::Status(status))
            }
            Record::Done(done) => Some(Event::Done(done)),
            Record::Refused { word, errno } => {
                // Otherwise no further status would be requested.
                self.expected = self.expected.saturating_sub(u32::from(is_status(word)));
                Some(Event::Refused(word, errno))
            }
            _ => None,
        }
    }
}

impl AsFd for Peer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
