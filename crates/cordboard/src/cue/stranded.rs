//! Bytes that a transfer has read and its sink has not accepted.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SendFlags, Shutdown, SocketFlags, SocketType};
use rustix::net::{shutdown, socketpair};

use crate::compose::{Channel, enlarge};
use crate::errno::Errno;
use crate::report::Stranded;
use crate::sys::{self, again, beyond};

/// Bytes for one socket, unless a block is longer. The default send buffer holds three times as
/// many (`wmem_default`, socket(7)).
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
            Some(Stranded::Buffer(bytes)) => self.prepend(bytes),
            Some(Stranded::Datagrams(all)) if messages => {
                let all = all.into_iter().rev().map(Part::Message);
                all.for_each(|part| self.0.push_front(part));
            }
            Some(Stranded::Datagrams(all)) => self.prepend(all.concat()),
            None => {}
        }
    }

    /// Prepends bytes of a stream. They are joined with those behind them, because a block may
    /// begin in these and end in those.
    fn prepend(&mut self, mut bytes: Vec<u8>) {
        if let Some(Part::Bytes(next, taken)) = self.0.front() {
            bytes.extend_from_slice(&next[*taken..]);
            self.0.pop_front();
        }
        self.0.push_front(Part::Bytes(bytes, 0));
    }

    /// Returns a descriptor with the first bytes, and an end behind them. `None`: nothing
    /// is left. `block`: the length of the blocks in which a transfer writes them. A descriptor
    /// before the last one has whole blocks, unless a block is too long for a socket.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`: no descriptor or memory is available. `EMSGSIZE`: a
    /// message is longer than `wmem_max` permits. The bytes stay.
    pub(super) fn open_front(
        &mut self,
        block: Option<NonZeroUsize>,
    ) -> Result<Option<BorrowedFd<'_>>, Errno> {
        let (opened, is_taken) = match self.0.front_mut() {
            None => return Ok(None),
            Some(Part::Open(_)) => (None, false),
            Some(Part::Bytes(bytes, taken)) => {
                let (socket, sent) = stream_with_start_of(&bytes[*taken..], block)?;
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

    /// Closes the descriptor of the first part, after a transfer has stranded bytes of it.
    /// Bytes that the transfer has not read are kept in memory. So only the first part has
    /// a descriptor, however often transfers of these bytes are cancelled or fail.
    pub(super) fn close_front(&mut self) {
        let Some(Part::Open(fd)) = self.0.front() else {
            return;
        };
        // The socket of a message is empty by now: a message is read whole.
        let (left, is_all) = content_of(fd);
        if is_all {
            self.0.pop_front();
        }
        if !left.is_empty() {
            self.prepend(left);
        }
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
fn stream_with_start_of(
    bytes: &[u8],
    block: Option<NonZeroUsize>,
) -> Result<(OwnedFd, usize), Errno> {
    let block = block.map_or(1, NonZeroUsize::get);
    let most = (PIECE / block).max(1).saturating_mul(block);
    let mut piece = &bytes[..bytes.len().min(most)];
    loop {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (reader, writer) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let (reader, writer) = (beyond(reader)?, beyond(writer)?);
        if piece.len() > PIECE {
            enlarge(writer.as_fd());
        }
        let sent = sys::send(writer.as_fd(), piece, SendFlags::NOSIGNAL)?;
        let whole = sent - sent % block;
        // The send buffer has no room for all: another socket gets only whole blocks.
        if sent < piece.len() && whole < sent && whole > 0 {
            piece = &piece[..whole];
            continue;
        }
        shutdown(&writer, Shutdown::Write)?;
        return Ok((reader, sent));
    }
}

/// Reads the content of a pipe or stream to which no process writes any more. Also returns
/// whether the content is complete: a page of a pipe may be unreadable.
fn content_of(fd: &OwnedFd) -> (Vec<u8>, bool) {
    let mut all = Vec::new();
    let mut piece = [0; 4096];
    loop {
        match sys::unsent(fd.as_fd()) {
            Ok(0) => return (all, true),
            Ok(_) => {}
            Err(_) => return (all, false),
        }
        match again(|| rustix::io::read(fd, &mut piece)) {
            Ok(read @ 1..) => all.extend_from_slice(&piece[..read]),
            Ok(0) | Err(_) => return (all, false),
        }
    }
}

/// Returns a socket from which this message is received, and then the end.
fn socket_with(message: &[u8]) -> Result<OwnedFd, Errno> {
    let channel = Channel::new(true)?;
    sys::send(channel.writer(), message, SendFlags::NOSIGNAL)?;
    Ok(channel.close_writer())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// Takes all bytes, as successful transfers would.
    fn drained(mut rest: Rest) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(fd) = rest.open_front(None).unwrap() {
            let copy = fd.try_clone_to_owned().unwrap();
            std::fs::File::from(copy).read_to_end(&mut all).unwrap();
            rest.pop_front();
        }
        all
    }

    fn open(rest: &Rest) -> usize {
        let is_open = |part: &&Part| matches!(part, Part::Open(_));
        rest.0.iter().filter(is_open).count()
    }

    /// Each transfer reads some of the first bytes, and strands them.
    #[test]
    fn bytes_that_are_stranded_again_take_one_descriptor() {
        let data = testkit::pattern::noise(150_000);
        let mut rest = Rest::default();
        rest.keep(Some(Stranded::Buffer(data.clone())), false);
        for length in [70_000, 60_000, 60_000, 1000, 999, 7, 70_000] {
            let mut bytes = vec![0; length];
            let front = rest.open_front(None).unwrap().unwrap();
            let read = rustix::io::read(front, &mut bytes[..]).unwrap();
            bytes.truncate(read);
            rest.close_front();
            assert_eq!(open(&rest), 0, "{length}");
            rest.keep(Some(Stranded::Buffer(bytes)), false);
        }
        assert!(drained(rest) == data);
    }

    #[test]
    fn a_pipe_that_is_stranded_again_keeps_its_rest() {
        let (pipe, feed) = std::io::pipe().unwrap();
        rustix::io::write(&feed, b"number, please").unwrap();
        drop(feed);
        let mut rest = Rest::default();
        rest.keep(Some(Stranded::Pipe(pipe.into())), false);
        let mut word = [0; 6];
        rustix::io::read(rest.open_front(None).unwrap().unwrap(), &mut word).unwrap();
        rest.close_front();
        rest.keep(Some(Stranded::Buffer(word.to_vec())), false);
        assert_eq!(open(&rest), 0);
        assert_eq!(drained(rest), b"number, please");
    }

    /// Also after bytes were stranded again in the middle of a socket's content.
    #[test]
    fn each_socket_has_whole_blocks() {
        let held = |rest: &mut Rest, block| {
            let front = rest.open_front(NonZeroUsize::new(block)).unwrap().unwrap();
            rustix::io::ioctl_fionread(front).unwrap()
        };
        let mut rest = Rest::default();
        rest.keep(Some(Stranded::Buffer(vec![7; 270_000])), false);
        assert_eq!(held(&mut rest, 7000), 63_000);
        let mut read = [0; 10_000];
        let front = rest.open_front(None).unwrap().unwrap();
        assert_eq!(rustix::io::read(front, &mut read), Ok(10_000));
        rest.close_front();
        // One block was written.
        rest.keep(Some(Stranded::Buffer(read[7000..].to_vec())), false);
        for (block, bytes) in [(7000, 63_000), (100_000, 100_000), (100_000, 100_000)] {
            assert_eq!(held(&mut rest, block), bytes);
            rest.pop_front();
        }
        assert!(rest.is_empty());
    }

    /// Also an empty message, which has no bytes to count.
    #[test]
    fn messages_that_are_stranded_again_take_no_descriptor() {
        let mut rest = Rest::default();
        let messages = |all: &[&[u8]]| {
            let all = all.iter().map(|message| message.to_vec()).collect();
            Some(Stranded::Datagrams(all))
        };
        rest.keep(messages(&[b"", b"please"]), true);
        for _ in 0..3 {
            rest.open_front(None).unwrap().unwrap();
            rest.close_front();
            rest.keep(messages(&[b""]), true);
            assert_eq!((open(&rest), rest.0.len()), (0, 2));
        }
    }
}
