//! A private channel: a pipe, or for datagrams a pair of sockets, which preserves their
//! boundaries.

use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair, sockopt,
};

use crate::endpoint::Facts;
use crate::errno::Errno;
use crate::pipe::{self, Channel as _, LARGEST, OwnedPipe};
use crate::sys::beyond;

/// The memory that each socket of a pair may use for messages, in bytes. The longest
/// UDP datagram has 65507 bytes.
const MESSAGES: usize = 4 << 20;

/// The capacity of an ordinary pipe, in bytes.
const SMALL: usize = 64 << 10;

/// The longest read of a device that a pair of sockets is sure to carry whole. A send that is longer
/// than its send buffer is `EMSGSIZE` (`unix_dgram_sendmsg`, net/unix/af_unix.c). Without
/// CAP_NET_ADMIN that is twice `wmem_max`, 416 KiB by default.
const LONGEST_READ: usize = 384 << 10;

/// A private channel.
pub(crate) enum Channel {
    Pipe(OwnedPipe),
    /// Sequenced packets, whose end is reported when the writer is closed.
    Messages(OwnedFd, OwnedFd),
}

/// Returns whether the messages of a source stay whole on the way to this sink. `block`: the
/// length of datagrams that the caller has chosen, into which reads of a device are cut. Blocks
/// that are too long for a message are collected from a pipe.
pub(crate) fn messages_stay(source: &Facts, sink: &Facts, block: Option<NonZeroUsize>) -> bool {
    let is_cut = sink.kind.is_datagram() && block.is_some();
    let is_long = block.is_some_and(|block| block.get() > LONGEST_READ);
    let has_messages =
        source.kind.is_datagram() || source.reads_are_messages() && !is_cut && !is_long;
    has_messages && sink.preserves_boundaries()
}

impl Channel {
    /// Creates a channel.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`, or the errno of a filter.
    pub(crate) fn new(messages: bool) -> Result<Channel, Errno> {
        if !messages {
            return Ok(Channel::Pipe(pipe::acquire(LARGEST)?));
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (reader, writer) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let (reader, writer) = (beyond(reader)?, beyond(writer)?);
        enlarge(writer.as_fd());
        Ok(Channel::Messages(reader, writer))
    }

    /// Creates a pipe with the default capacity.
    ///
    /// # Errors
    ///
    /// As [`Channel::new`].
    pub(crate) fn small() -> Result<Channel, Errno> {
        Ok(Channel::Pipe(pipe::acquire(SMALL)?))
    }

    pub(crate) fn reader(&self) -> BorrowedFd<'_> {
        match self {
            Channel::Pipe(pipe) => pipe.reader(),
            Channel::Messages(reader, _) => reader.as_fd(),
        }
    }

    pub(crate) fn writer(&self) -> BorrowedFd<'_> {
        match self {
            Channel::Pipe(pipe) => pipe.writer(),
            Channel::Messages(_, writer) => writer.as_fd(),
        }
    }

    pub(crate) fn keeps_messages(&self) -> bool {
        matches!(self, Channel::Messages(..))
    }

    /// Closes the write end, so that the end of file follows the content, unless a child
    /// of `fork(2)` has that end of a pipe open. Returns the read end.
    pub(crate) fn close_writer(self) -> OwnedFd {
        match self {
            Channel::Pipe(pipe) => pipe.into_read_end(),
            Channel::Messages(reader, writer) => {
                let _ = shutdown(&writer, Shutdown::Write);
                reader
            }
        }
    }
}

/// Enlarges the send buffer of a private socket.
pub(crate) fn enlarge(writer: BorrowedFd<'_>) {
    // `SO_SNDBUFFORCE` needs CAP_NET_ADMIN. Otherwise `wmem_max` is the limit (socket(7)).
    if sockopt::set_socket_send_buffer_size_force(writer, MESSAGES).is_err() {
        let _ = sockopt::set_socket_send_buffer_size(writer, MESSAGES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Kind;

    #[test]
    fn a_block_that_is_too_long_for_a_message_is_none() {
        let device = Facts {
            memory: false,
            ..Facts::plain(Kind::CharDevice)
        };
        let stay = |block| messages_stay(&device, &device, NonZeroUsize::new(block));
        assert_eq!([0, 4096, LONGEST_READ].map(stay), [true; 3]);
        assert!(!stay(LONGEST_READ + 1));
    }
}
