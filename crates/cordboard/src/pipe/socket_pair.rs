//! A socket pair between two pipes, which removes the flags of their pages.
//!
//! From pipe to pipe `splice(2)` keeps the flag of a packet (`splice_pipe_to_pipe`,
//! fs/splice.c). A UNIX stream socket has no packets: it takes the pages without their
//! flags (`skb_splice_from_iter`, net/core/skbuff.c, since Linux 6.5;
//! `unix_stream_sendpage`, net/unix/af_unix.c, before), and a pipe gets a stream from
//! it (`skb_splice_bits`). No byte is copied, and nothing needs to be inspected.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};
use rustix::pipe::{SpliceFlags, splice};

use super::capacity::LARGEST;
use super::channel::Channel;
use crate::errno::Errno;
use crate::sys::{Identity, beyond, identity};

/// Two connected nonblocking sockets, and the number of bytes between them.
pub(crate) struct SocketPair {
    reader: OwnedFd,
    writer: OwnedFd,
    /// The identities of both sockets; `None`: unknown.
    ids: [Option<Identity>; 2],
    held: u64,
}

impl SocketPair {
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`, `ENOBUFS`: no descriptors or memory are
    /// available. Any other errno: a filter refuses `socketpair(2)`.
    pub(crate) fn open() -> Result<SocketPair, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (reader, writer) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let (reader, writer) = (beyond(reader)?, beyond(writer)?);
        // The kernel grants up to `net.core.wmem_max`; less is sufficient.
        let _ = sockopt::set_socket_send_buffer_size(&writer, LARGEST);
        Ok(SocketPair {
            ids: [&reader, &writer].map(identity),
            reader,
            writer,
            held: 0,
        })
    }

    /// Moves up to `at_most` bytes from a pipe into the pair; 0 at the pipe's end.
    /// Must be called while the pair is empty, so that `EAGAIN` means the pipe.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: the pipe is empty. `EINTR`. `ENOBUFS`, `ENOMEM`: no memory is
    /// available. Nothing was taken then.
    pub(crate) fn fill(&mut self, source: BorrowedFd<'_>, at_most: usize) -> Result<usize, Errno> {
        let flags = SpliceFlags::NONBLOCK;
        let n = splice(source, None, &self.writer, None, at_most, flags)?;
        self.held += n as u64;
        Ok(n)
    }

    /// Moves the content of the pair into a pipe, as far as there is room.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: the pipe is full. `EPIPE`, with `SIGPIPE`: it has no reader.
    /// `EINTR`.
    pub(crate) fn drain(&mut self, sink: BorrowedFd<'_>) -> Result<usize, Errno> {
        let held = usize::try_from(self.held).unwrap_or(usize::MAX);
        let n = splice(&self.reader, None, sink, None, held, SpliceFlags::NONBLOCK)?;
        self.drained(n);
        Ok(n)
    }

    /// Returns the read end, for the caller; its end of file follows the last byte.
    pub(crate) fn into_reader(self) -> OwnedFd {
        self.reader
    }
}

impl Channel for SocketPair {
    fn ends(&self) -> [(BorrowedFd<'_>, Option<Identity>); 2] {
        [
            (self.reader.as_fd(), self.ids[0]),
            (self.writer.as_fd(), self.ids[1]),
        ]
    }

    fn held(&self) -> u64 {
        self.held
    }

    fn drained(&mut self, bytes: usize) {
        self.held -= bytes as u64;
    }

    fn into_ends(self) -> [(OwnedFd, Option<Identity>); 2] {
        [(self.reader, self.ids[0]), (self.writer, self.ids[1])]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe, pipe_with};

    #[test]
    fn packets_come_out_as_a_stream() {
        let _only = testkit::child::without_children();
        if !testkit::needs::Need::Splice.is_met() {
            return testkit::skip::report("packets_come_out_as_a_stream", "no splice(2) here");
        }
        let mut pair = SocketPair::open().unwrap();
        let (source, feed) = pipe_with(PipeFlags::DIRECT).unwrap();
        let (drain, sink) = pipe().unwrap();
        for byte in 1..=3 {
            rustix::io::write(&feed, &[byte; 1000]).unwrap();
        }
        // In the midst of a packet.
        assert_eq!(pair.fill(source.as_fd(), 2500), Ok(2500));
        assert_eq!(pair.drain(sink.as_fd()), Ok(2500));
        assert_eq!(pair.fill(source.as_fd(), 1 << 20), Ok(500));
        assert_eq!((pair.drain(sink.as_fd()), pair.held()), (Ok(500), 0));
        assert_eq!(pair.fill(source.as_fd(), 1), Err(Errno::EAGAIN));
        drop(feed);
        assert_eq!(pair.fill(source.as_fd(), 1), Ok(0));
        let mut got = Vec::new();
        let mut piece = [0; 300];
        while got.len() < 3000 {
            let n = rustix::io::read(&drain, &mut piece).unwrap();
            assert_eq!(n, 300);
            got.extend_from_slice(&piece);
        }
        let expected: Vec<u8> = (1..=3).flat_map(|byte| [byte; 1000]).collect();
        assert!(got == expected);
    }

    #[test]
    fn a_full_pipe_and_one_without_a_reader_take_nothing() {
        if !testkit::needs::Need::Splice.is_met() {
            return testkit::skip::report("a_full_pipe_takes_nothing", "no splice(2) here");
        }
        let mut pair = SocketPair::open().unwrap();
        let (source, feed) = pipe().unwrap();
        rustix::io::write(&feed, b"abc").unwrap();
        let (drain, sink) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        while rustix::io::write(&sink, &[0; 4096]).is_ok() {}
        assert_eq!(pair.fill(source.as_fd(), 10), Ok(3));
        assert_eq!(
            (pair.drain(sink.as_fd()), pair.held()),
            (Err(Errno::EAGAIN), 3)
        );
        drop(drain);
        assert_eq!(
            (pair.drain(sink.as_fd()), pair.held()),
            (Err(Errno::EPIPE), 3)
        );
        let mut rest = [0; 10];
        assert_eq!(rustix::io::read(pair.into_reader(), &mut rest), Ok(3));
        assert_eq!(&rest[..3], b"abc");
    }

    /// Bytes to return to the caller stay complete if the pair refuses them.
    #[test]
    fn what_the_pair_does_not_take_is_moved_without_it() {
        use crate::pipe::{OwnedPipe, acquire, default_capacity};
        if !testkit::needs::Need::Splice.is_met() {
            return testkit::skip::report("what_the_pair_does_not_take", "no splice(2) here");
        }
        for errno in [libc::ENOMEM, libc::EIO] {
            for allowed in [0, 2] {
                // The pipe has room for the rest, whatever the budget has left.
                let mut all = acquire(default_capacity()).unwrap();
                assert_eq!(rustix::io::write(all.writer(), b"before"), Ok(6));
                all.filled(6);
                let other = OwnedPipe::holding(&[7; 4000]).unwrap();
                let body = || {
                    assert!(all.append(other).is_empty());
                    if allowed > 0 {
                        let more = OwnedPipe::holding(&[8; 10]).unwrap();
                        assert!(all.append(more).is_empty());
                    }
                };
                let refuse = |count| (count == allowed).then_some(errno);
                if testkit::midst::refusing(&[libc::SYS_splice], body, refuse).is_none() {
                    return testkit::skip::report("socket_pair", "calls cannot be held here");
                }
                let mut expected = b"before".to_vec();
                expected.extend_from_slice(&[7; 4000]);
                expected.extend_from_slice(&[8; 10][..if allowed > 0 { 10 } else { 0 }]);
                assert_eq!(all.held(), expected.len() as u64, "{errno} {allowed}");
                let mut got = vec![0; expected.len()];
                let reader = all.into_reader();
                assert_eq!(rustix::io::read(&reader, &mut got), Ok(got.len()));
                assert!(got == expected, "{errno} {allowed}");
            }
        }
    }
}
