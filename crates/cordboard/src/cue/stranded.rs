//! Bytes that a transfer has read and its sink has not accepted.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SendFlags, Shutdown, SocketFlags, SocketType};
use rustix::net::{send, shutdown, socketpair};

use crate::compose::Channel;
use crate::errno::Errno;
use crate::report::Stranded;
use crate::sys::{again, beyond};

/// Bytes for one socket. The default send buffer holds three times as many (`wmem_default`,
/// socket(7)).
const PIECE: usize = 64 << 10;

/// A part of these bytes. It becomes a source of a transfer only when it is written: no
/// descriptor may be available before.
enum Part {
    /// A pipe or a socket whose content ends.
    Open(OwnedFd),
    /// Bytes of a stream, and the number of those that were taken.
    Bytes(Vec<u8>, usize),
    /// One datagram or record, which may be empty.
    Message(Vec<u8>),
}

/// Bytes that the sink gets before anything else, in order.
#[derive(Default)]
pub(super) struct Rest(VecDeque<Part>);

impl Rest {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Prepends stranded bytes. `messages`: the source is a datagram socket. Otherwise the
    /// transfer has cut its bytes into datagrams, and another block may cut them differently.
    pub(super) fn keep(&mut self, stranded: Option<Stranded>, messages: bool) {
        match stranded {
            Some(Stranded::Pipe(pipe)) => self.0.push_front(Part::Open(pipe)),
            Some(Stranded::Buffer(bytes)) => self.0.push_front(Part::Bytes(bytes, 0)),
            Some(Stranded::Datagrams(all)) if messages => {
                let all = all.into_iter().rev().map(Part::Message);
                all.for_each(|part| self.0.push_front(part));
            }
            Some(Stranded::Datagrams(all)) => self.0.push_front(Part::Bytes(all.concat(), 0)),
            None => {}
        }
    }

    /// Returns a descriptor with the first bytes, and an end behind them. `None`: nothing
    /// is left.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`: no descriptor or memory is available. `EMSGSIZE`: a
    /// message is longer than `wmem_max` permits. The bytes stay.
    pub(super) fn open_front(&mut self) -> Result<Option<BorrowedFd<'_>>, Errno> {
        let (opened, is_taken) = match self.0.front_mut() {
            None => return Ok(None),
            Some(Part::Open(_)) => (None, false),
            Some(Part::Bytes(bytes, taken)) => {
                let (socket, sent) = stream_with_start_of(&bytes[*taken..])?;
                *taken += sent;
                (Some(socket), *taken == bytes.len())
            }
            Some(Part::Message(bytes)) => (Some(socket_with(bytes)?), true),
        };
        if is_taken {
            self.0.pop_front();
        }
        if let Some(opened) = opened {
            self.0.push_front(Part::Open(opened));
        }
        Ok(match self.0.front() {
            Some(Part::Open(fd)) => Some(fd.as_fd()),
            _ => None,
        })
    }

    /// Removes the first part, whose content the sink has.
    pub(super) fn pop_front(&mut self) {
        self.0.pop_front();
    }

    /// Returns the descriptors, which are to be closed.
    pub(super) fn into_descriptors(self) -> impl Iterator<Item = OwnedFd> {
        self.0.into_iter().filter_map(|part| match part {
            Part::Open(fd) => Some(fd),
            Part::Bytes(..) | Part::Message(_) => None,
        })
    }
}

/// Returns a socket that contains the first of these bytes and then an end, and the number of
/// bytes in it. Not a file in memory: `RLIMIT_FSIZE` applies to it. Not a pipe: a child
/// of `fork(2)` may have its write end.
fn stream_with_start_of(bytes: &[u8]) -> Result<(OwnedFd, usize), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (reader, writer) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let (reader, writer) = (beyond(reader)?, beyond(writer)?);
    let piece = &bytes[..bytes.len().min(PIECE)];
    let sent = again(|| send(&writer, piece, SendFlags::NOSIGNAL))?;
    shutdown(&writer, Shutdown::Write)?;
    Ok((reader, sent))
}

/// Returns a socket from which this message is received, and then the end.
fn socket_with(message: &[u8]) -> Result<OwnedFd, Errno> {
    let channel = Channel::new(true)?;
    again(|| send(channel.writer(), message, SendFlags::NOSIGNAL))?;
    Ok(channel.close_writer())
}
