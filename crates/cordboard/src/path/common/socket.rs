//! Calls on sockets, with fallbacks where a seccomp filter refuses those that have
//! flags.

use std::io::IoSlice;

use rustix::event::PollFlags;
use rustix::io::{ReadWriteFlags, pwritev2};
use rustix::net::{RecvFlags, SendFlags};

use crate::endpoint::{Facts, Kind};
use crate::errno::Errno;
use crate::path::flow::Flow;
use crate::pipe::{NoWait, is_ready, lacks_nowait};
use crate::sys::{self, CallError};

/// Bytes written to a blocking stream socket that polls writable.
const PIECE: usize = 4096;

/// Flags of a receive that may block if `wait` is set.
fn receiving(wait: bool) -> RecvFlags {
    if wait {
        RecvFlags::empty()
    } else {
        RecvFlags::DONTWAIT
    }
}

/// Flags of a send that may block if `wait` is set, and never raises `SIGPIPE`. On a
/// `SOCK_SEQPACKET` socket each send is a record, as each `write(2)` is (`sock_write_iter`,
/// net/socket.c). Without `MSG_EOR`, X.25, AF_IUCV and Phonet refuse it (`x25_sendmsg`,
/// net/x25/af_x25.c: `EINVAL`; `pep_sendmsg`, net/phonet/pep.c: `EOPNOTSUPP`), KCM waits for
/// the rest of the message, and a receiver of VSOCK is not shown the end of the record.
pub(in crate::path) fn sending(sink: &Facts, wait: bool) -> SendFlags {
    let mut flags = SendFlags::NOSIGNAL;
    flags.set(SendFlags::EOR, sink.seqpacket);
    flags.set(SendFlags::DONTWAIT, !wait);
    flags
}

/// Receives from the source. With `MSG_TRUNC`, returns the length of the message; if
/// only `read(2)` is left, the length received.
pub(in crate::path) fn receive(
    flow: &Flow<'_>,
    into: &mut [u8],
    flags: RecvFlags,
    wait: bool,
) -> Result<usize, Errno> {
    let source = flow.source.fd();
    match sys::recv(source, into, flags | receiving(wait)) {
        Err(error) if error.refused && (wait || flow.source.facts().nonblocking) => {
            Ok(rustix::io::read(source, into)?)
        }
        Err(error) if error.refused => NoWait::default().read(source, into),
        done => Ok(done?),
    }
}

/// Whether a message fits into the rest of the size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::path) enum Fits {
    Yes,
    No,
    /// The kernel does not report its length. At most the rest of the size is received, as
    /// by `read(2)`.
    Unknown,
}

/// Returns whether the source's next message fits into the rest of the size, without
/// consuming it. `room`: the buffer for the message. A peek may copy its first bytes there.
pub(in crate::path) fn next_fits(
    flow: &Flow<'_>,
    room: &mut [u8],
    wait: bool,
) -> Result<Fits, Errno> {
    let (source, facts) = (flow.source.fd(), flow.source.facts());
    let left = flow.allowance.remaining();
    let unknown = match left {
        0 => Fits::No,
        _ => Fits::Unknown,
    };
    if !facts.peeks {
        return Ok(unknown);
    }
    let mut look = |wait| match facts.tells_length {
        true => sys::peek(source, RecvFlags::TRUNC | receiving(wait)),
        false => {
            // One byte more than the rest shows whether the message is longer.
            let most = usize::try_from(left.saturating_add(1)).unwrap_or(usize::MAX);
            let most = most.min(room.len());
            sys::peek_into(source, &mut room[..most], receiving(wait))
        }
    };
    let length = match look(wait) {
        Ok(length) => length as u64,
        // 0 if no message is queued: one that arrives later is not truncated. For
        // sequenced packets, the sum of all queued ones.
        Err(error) if error.refused => sys::unsent(source).map_err(|_| error.errno)?,
        Err(error) if cannot_peek(error, || look(false)) => match sys::unsent(source) {
            Ok(length @ 1..) => length,
            Ok(0) | Err(_) => return Ok(unknown),
        },
        Err(error) => return Err(error.errno),
    };
    Ok(match length > left {
        true => Fits::No,
        false => Fits::Yes,
    })
}

/// Returns whether a peek has failed because a filter refuses it, or the socket has no
/// `MSG_PEEK`. `again` peeks again: the kernel reports the error of a connection once, which
/// may be one of these (`icmp_err_convert`, net/ipv4/icmp.c).
///
/// | errno | evidence |
/// |---|---|
/// | `EOPNOTSUPP` | VSOCK: sequenced packets before Linux 6.6 (`virtio_transport_seqpacket_dequeue`, net/vmw_vsock/virtio_transport_common.c), Hyper-V (`hvs_stream_dequeue`, net/vmw_vsock/hyperv_transport.c) |
/// | `EINVAL` | `j1939_sk_recvmsg`, net/can/j1939/socket.c |
fn cannot_peek(error: CallError, again: impl FnOnce() -> Result<usize, CallError>) -> bool {
    let is_unsupported = matches!(error.errno, Errno::EINVAL | Errno::EOPNOTSUPP);
    error.refused || is_unsupported && again() == Err(error)
}

/// Sends one datagram, or as many bytes as a stream accepts. Some protocols refuse
/// `MSG_NOSIGNAL`: `qrtr_sendmsg` (net/qrtr/af_qrtr.c), `mctp_sendmsg`
/// (net/mctp/af_mctp.c), `nr_sendmsg` (net/netrom/af_netrom.c), `x25_sendmsg`
/// (net/x25/af_x25.c). The call is then made without it, like `write(2)`: the thread that runs a transfer has the signal
/// blocked.
pub(in crate::path) fn send(flow: &Flow<'_>, bytes: &[u8], wait: bool) -> Result<usize, Errno> {
    let sink = flow.sink.fd();
    let flags = sending(flow.sink.facts(), wait);
    match sys::send(sink, bytes, flags) {
        Err(CallError { errno, .. })
            if errno == Errno::EINVAL && flow.sink.kind() == Kind::DatagramSocket =>
        {
            Ok(sys::send(sink, bytes, flags - SendFlags::NOSIGNAL)?)
        }
        Err(error) if error.refused => write(flow, bytes, wait),
        done => Ok(done?),
    }
}

/// Sends to a sink that is a socket, and counts the call as a write to it.
///
/// Some stream sockets refuse a send that is longer than a limit with `EMSGSIZE`, and take
/// nothing of it: SCTP, the send buffer (`sctp_sendmsg_parse`, net/sctp/socket.c); L2CAP, the
/// MTU (`l2cap_chan_send`, net/bluetooth/l2cap_core.c). The bytes are then sent in pieces.
#[derive(Debug, Default)]
pub(in crate::path) struct Sender {
    /// The length of a piece, if a longer send was refused.
    most: Option<usize>,
}

impl Sender {
    /// As [`send`].
    pub(in crate::path) fn send(
        &mut self,
        flow: &Flow<'_>,
        bytes: &[u8],
        wait: bool,
    ) -> Result<usize, Errno> {
        self.divide(flow, bytes.len(), |n| send(flow, &bytes[..n], wait))
    }

    /// Sends the parts to a stream by one call. If a filter refuses `sendmsg(2)`, sends the
    /// first part only.
    pub(in crate::path) fn send_parts(
        &mut self,
        flow: &Flow<'_>,
        parts: &[IoSlice<'_>],
        wait: bool,
    ) -> Result<usize, Errno> {
        let (sink, flags) = (flow.sink.fd(), sending(flow.sink.facts(), wait));
        let bytes = parts.iter().map(|part| part.len()).sum();
        self.divide(flow, bytes, |n| {
            let shorter = (n < bytes).then(|| first_bytes(parts, n));
            let parts = shorter.as_deref().unwrap_or(parts);
            match sys::send_parts(sink, parts, flags) {
                Err(error) if error.refused => send(flow, &parts[0], wait),
                done => Ok(done?),
            }
        })
    }

    /// Sends `bytes` bytes by `send`, or fewer if the socket refuses that many.
    fn divide(
        &mut self,
        flow: &Flow<'_>,
        bytes: usize,
        mut send: impl FnMut(usize) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        loop {
            let length = bytes.min(self.most.unwrap_or(usize::MAX));
            let done = flow.write_by(Some(length), || send(length));
            let may_cut = flow.sink.kind().is_stream_socket() && length > 1;
            if done != Err(Errno::EMSGSIZE) || !may_cut {
                return done;
            }
            self.most = Some(length / 2);
        }
    }
}

/// Returns the parts that have the first `bytes` bytes of these, the last one perhaps shorter.
fn first_bytes<'a>(parts: &'a [IoSlice<'_>], bytes: usize) -> Vec<IoSlice<'a>> {
    let mut left = bytes;
    let shortened = parts.iter().map_while(|part| {
        let piece = &part[..part.len().min(left)];
        left -= piece.len();
        (!piece.is_empty()).then(|| IoSlice::new(piece))
    });
    shortened.collect()
}

/// `write(2)`, which has no flag against blocking; `RWF_NOWAIT` is one, if the
/// socket supports it.
fn write(flow: &Flow<'_>, bytes: &[u8], wait: bool) -> Result<usize, Errno> {
    let sink = flow.sink.fd();
    if wait || flow.sink.facts().nonblocking {
        return Ok(rustix::io::write(sink, bytes)?);
    }
    let done = pwritev2(
        sink,
        &[IoSlice::new(bytes)],
        sys::HERE,
        ReadWriteFlags::NOWAIT,
    );
    if !lacks_nowait(&done) {
        return Ok(done?);
    }
    // A socket that has hung up returns an error.
    if !is_ready(sink, PollFlags::OUT | PollFlags::HUP) {
        return Err(Errno::EAGAIN);
    }
    let piece = match flow.sink.kind().is_datagram() {
        true => bytes,
        false => &bytes[..bytes.len().min(PIECE)],
    };
    Ok(rustix::io::write(sink, piece)?)
}

/// Queries of the source that consume nothing.
impl Flow<'_> {
    /// Whether a stream socket that polled readable has bytes although `splice(2)`
    /// returned none: its read position is before urgent data, at which splicing
    /// stops permanently (`tcp_splice_read`, net/ipv4/tcp.c).
    ///
    /// # Errors
    ///
    /// The socket's pending error, which is returned once: it is the source's
    /// failure.
    pub(crate) fn is_at_a_mark(&self) -> Result<bool, Errno> {
        if !self.source.kind().is_stream_socket() {
            return Ok(false);
        }
        match self.peek() {
            Ok(Some(n)) => Ok(n > 0),
            // It may be before urgent data, which another path reads past.
            Ok(None) => Ok(self.has_next()),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Whether a socket with a poll error can be read without blocking: it has
    /// bytes, or has ended. If not, the error is in the error queue.
    ///
    /// # Errors
    ///
    /// The socket's pending error, which is returned once: it is the source's
    /// failure.
    pub(crate) fn answers(&self) -> Result<bool, Errno> {
        match self.peek() {
            // If it cannot be peeked, the next read reports the error. A socket without
            // MSG_PEEK has no error queue.
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Whether the stream continues. `splice(2)` returns 0 within a TCP stream if
    /// urgent data comes next (`tcp_splice_read` in net/ipv4/tcp.c), permanently; a
    /// read passes over it. `None`: the socket cannot be peeked.
    pub(in crate::path) fn socket_goes_on(&self) -> Result<Option<bool>, Errno> {
        loop {
            match self.peek() {
                Ok(seen) => return Ok(seen.map(|n| n > 0)),
                Err(Errno::EAGAIN) => return Ok(Some(true)),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Peeks: returns the number of bytes, of one, that could be read now. `None`: the socket
    /// cannot be peeked, which is not an error of the source.
    ///
    /// # Errors
    ///
    /// `EAGAIN`, `EINTR`; the socket's pending error, which is returned once.
    pub(in crate::path) fn peek(&self) -> Result<Option<usize>, Errno> {
        if !self.source.facts().peeks {
            // A peek would consume bytes.
            return Ok(None);
        }
        let look = || sys::peek(self.source.fd(), RecvFlags::DONTWAIT);
        match look() {
            Err(error) if cannot_peek(error, look) => Ok(None),
            seen => Ok(Some(seen?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    use super::*;
    use crate::endpoint::Facts;
    use crate::{Request, Size, Transfer};

    /// The error of a connection comes once.
    #[test]
    fn a_socket_without_peeks_fails_each_of_them() {
        let error = |errno, refused| CallError { errno, refused };
        for errno in [Errno::EINVAL, Errno::EOPNOTSUPP] {
            let failed = error(errno, false);
            assert!(cannot_peek(failed, || Err(failed)), "{errno}");
            for next in [Ok(0), Err(error(Errno::EAGAIN, false))] {
                assert!(!cannot_peek(failed, || next), "{errno}");
            }
        }
        assert!(cannot_peek(error(Errno::EACCES, true), || Ok(0)));
        assert!(!cannot_peek(error(Errno::EACCES, false), || Ok(0)));
    }

    /// For such sockets, the kernel returns the number of bytes that it has copied.
    #[test]
    fn a_message_is_longer_if_one_byte_more_than_the_rest_comes() {
        let (near, far) = UnixDatagram::pair().unwrap();
        let (_reader, sink) = std::io::pipe().unwrap();
        far.send(&[7; 50]).unwrap();
        let fits = |size, peeks, room: &mut [u8]| {
            let request = Request {
                size: Size::Bytes(size),
                ..Request::default()
            };
            let mut transfer = Transfer::new(near.as_fd(), sink.as_fd(), request).unwrap();
            let source = &mut transfer.flow.source;
            source.set_endpoint(source.endpoint().with_facts(Facts {
                peeks,
                tells_length: false,
                ..*source.facts()
            }));
            next_fits(&transfer.flow, room, false)
        };
        let room = &mut [0; 100];
        assert_eq!(fits(49, true, room), Ok(Fits::No));
        assert_eq!(room[..51], [[7; 50].as_slice(), &[0]].concat());
        assert_eq!(fits(50, true, room), Ok(Fits::Yes));
        assert_eq!(fits(1 << 20, true, room), Ok(Fits::Yes));
        assert_eq!(fits(49, true, &mut room[..49]), Ok(Fits::Yes));
        // A peek would consume it.
        assert_eq!(fits(49, false, room), Ok(Fits::Unknown));
        assert_eq!(near.recv(room).unwrap(), 50);
        assert_eq!(fits(49, true, room), Err(Errno::EAGAIN));
    }
}
