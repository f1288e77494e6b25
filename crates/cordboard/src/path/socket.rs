//! Calls on sockets. A filter may refuse those that have flags, and what they do for
//! a transfer is done otherwise then.

use std::io::IoSlice;

use rustix::event::PollFlags;
use rustix::io::{ReadWriteFlags, pwritev2};
use rustix::net::{RecvFlags, SendFlags};

use crate::endpoint::Kind;
use crate::errno::Errno;
use crate::path::flow::Flow;
use crate::pipe::{NoWait, is_ready, lacks_nowait};
use crate::sys;

/// What a blocking stream socket that polls writable is given.
const PIECE: usize = 4096;
/// The current position: sockets have no offsets.
const HERE: u64 = u64::MAX;

/// Flags of a receive that may wait, or may not.
fn receiving(wait: bool) -> RecvFlags {
    if wait {
        RecvFlags::empty()
    } else {
        RecvFlags::DONTWAIT
    }
}

/// Flags of a send that may wait, or may not, and never raises `SIGPIPE`.
pub(super) fn sending(wait: bool) -> SendFlags {
    if wait {
        SendFlags::NOSIGNAL
    } else {
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT
    }
}

/// Receives from the source. With `MSG_TRUNC`, how long the message is; where only
/// `read(2)` is left, how much of it came.
pub(super) fn receive(
    flow: &Flow<'_>,
    into: &mut [u8],
    flags: RecvFlags,
    wait: bool,
) -> Result<usize, Errno> {
    let source = flow.source.fd();
    match sys::recv(source, into, flags | receiving(wait)) {
        Err(errno) if errno.is_refusal() && (wait || flow.source.facts().nonblocking) => {
            Ok(rustix::io::read(source, into)?)
        }
        Err(errno) if errno.is_refusal() => NoWait::default().read(source, into),
        done => done,
    }
}

/// How long the source's next message is, which stays where it is.
pub(super) fn next_length(flow: &Flow<'_>, wait: bool) -> Result<usize, Errno> {
    let source = flow.source.fd();
    match sys::peek(source, RecvFlags::TRUNC | receiving(wait)) {
        // 0 where none is there: one that comes is not cut. Of sequenced packets, all
        // that wait.
        Err(errno) if errno.is_refusal() => {
            let length = sys::unsent(source).map_err(|_| errno)?;
            Ok(usize::try_from(length).unwrap_or(usize::MAX))
        }
        done => done,
    }
}

/// Sends one datagram, or what a stream takes of the bytes. Some protocols refuse
/// the flag against `SIGPIPE`: `qrtr_sendmsg` (net/qrtr/af_qrtr.c), `mctp_sendmsg`
/// (net/mctp/af_mctp.c), `nr_sendmsg` (net/netrom/af_netrom.c). The call is made
/// without it then, as `write(2)` is: the thread that runs a transfer has the signal
/// held back.
pub(super) fn send(flow: &Flow<'_>, bytes: &[u8], wait: bool) -> Result<usize, Errno> {
    let sink = flow.sink.fd();
    let flags = sending(wait);
    match sys::send(sink, bytes, flags) {
        Err(Errno::EINVAL) if flow.sink.kind() == Kind::DatagramSocket => {
            sys::send(sink, bytes, flags - SendFlags::NOSIGNAL)
        }
        Err(errno) if errno.is_refusal() => write(flow, bytes, wait),
        done => done,
    }
}

/// `write(2)`, which has no flag against waiting; `RWF_NOWAIT` is one, where sockets
/// take it.
fn write(flow: &Flow<'_>, bytes: &[u8], wait: bool) -> Result<usize, Errno> {
    let sink = flow.sink.fd();
    if wait || flow.sink.facts().nonblocking {
        return Ok(rustix::io::write(sink, bytes)?);
    }
    let done = pwritev2(sink, &[IoSlice::new(bytes)], HERE, ReadWriteFlags::NOWAIT);
    if !lacks_nowait(&done) {
        return Ok(done?);
    }
    // One that has hung up gives an error.
    if !is_ready(sink, PollFlags::OUT | PollFlags::HUP) {
        return Err(Errno::EAGAIN);
    }
    let piece = match flow.sink.kind().is_datagram() {
        true => bytes,
        false => &bytes[..bytes.len().min(PIECE)],
    };
    Ok(rustix::io::write(sink, piece)?)
}

/// Looks at the source, which take nothing.
impl Flow<'_> {
    /// A stream socket that has polled readable, gives nothing to `splice(2)`
    /// and yet has bytes to read: it stands before urgent data, at which
    /// splicing stops for good (`tcp_splice_read`, net/ipv4/tcp.c).
    ///
    /// # Errors
    ///
    /// The socket's own, which is told once: it is the source's failure.
    pub(crate) fn is_at_a_mark(&self) -> Result<bool, Errno> {
        if !self.source.kind().is_stream_socket() {
            return Ok(false);
        }
        match self.peek() {
            Ok(n) => Ok(n > 0),
            Err(Errno::EAGAIN | Errno::EINTR | Errno::EINVAL | Errno::EOPNOTSUPP) => Ok(false),
            // It may: another path steps over it.
            Err(errno) if errno.is_refusal() => Ok(self.has_next()),
            Err(errno) => Err(errno),
        }
    }

    /// Whether a socket that shows an error can be read without waiting: it
    /// has bytes, or has ended. If not, the error is in the error queue.
    ///
    /// # Errors
    ///
    /// The socket's own, which is told once: it is the source's failure.
    pub(crate) fn answers(&self) -> Result<bool, Errno> {
        match self.peek() {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(false),
            // It has no MSG_PEEK, and no error queue either.
            Err(Errno::EINVAL | Errno::EOPNOTSUPP) => Ok(true),
            // The call tells.
            Err(errno) if errno.is_refusal() => Ok(true),
            Err(errno) => Err(errno),
        }
    }

    /// `splice(2)` gives 0 in the midst of a TCP stream where urgent data comes
    /// next (`tcp_splice_read` in net/ipv4/tcp.c), and would do so for ever;
    /// reading steps over it. `None`: a filter refuses the look.
    pub(super) fn socket_goes_on(&self) -> Result<Option<bool>, Errno> {
        loop {
            match self.peek() {
                Ok(n) => return Ok(Some(n > 0)),
                Err(Errno::EAGAIN) => return Ok(Some(true)),
                Err(Errno::EINTR) => {}
                Err(errno) if errno.is_refusal() => return Ok(None),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Bytes of a socket that could be read now, of one; they stay in it.
    pub(super) fn peek(&self) -> Result<usize, Errno> {
        sys::peek(self.source.fd(), RecvFlags::DONTWAIT)
    }
}
