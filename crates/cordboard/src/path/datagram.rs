//! Datagrams in batches, by `recvmmsg(2)` (since Linux 2.6.33) and
//! `sendmmsg(2)` (since Linux 3.0): between two datagram sockets every
//! boundary is kept, and a datagram of zero length is passed on; a stream is
//! cut into datagrams of one size; datagrams into a stream are joined.
//!
//! Segmentation offload (`UDP_SEGMENT`) is not used: it needs runs of equal
//! sizes and is refused with `EIO` by some devices (quinn#1128), and a batch
//! saves most of the same calls.

use std::io::IoSlice;
use std::sync::OnceLock;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};

use super::{Cursor, Flow, Step, Takes, Verdict};
use crate::endpoint::{Kind, Side};
use crate::errno::Errno;
use crate::pipe::{self, OwnedPipe};
use crate::route::{Pair, Why};
use crate::sys::{self, Batch, Buffer, Received};
use crate::transfer::Stranded;

/// The largest UDP datagram with room to spare, and the least that a buffer
/// for one has.
const LARGEST: usize = 64 << 10;
/// The messages that a stream is cut into for a local socket.
const LOCAL: usize = 128 << 10;
/// What is enough for a block of the caller's that a local socket refuses.
const LARGEST_BLOCK: usize = 16 << 20;
/// Datagrams a batch.
const SLOTS: usize = 32;
/// Bytes that are joined for a stream before they are written, and datagrams.
const JOINED: usize = 64 << 10;
const MOST_JOINED: usize = 64;
/// What fits an Ethernet frame, where the path's MTU is not known.
const UDP_PAYLOAD: usize = 1472;

/// At least one end is a datagram socket, and the other keeps up with it.
pub(crate) fn takes(pair: &Pair<'_>) -> Takes {
    let (source, sink) = (pair.source, pair.sink);
    let direct = |facts: &crate::endpoint::Facts| facts.direct && !facts.kind.is_socket();
    if direct(source) || direct(sink) {
        return Err("direct I/O and packet pipes want buffers of their own".into());
    }
    match (source.kind.is_datagram(), sink.kind.is_datagram()) {
        (true, true) => Ok("boundaries are kept, in batches"),
        (true, false) => Ok("received in batches, written in order"),
        (false, true) if source.kind.is_record() || source.kind == Kind::Tty => {
            Err("each read is a datagram of its own".into())
        }
        (false, true) => Ok("cut into datagrams of one size, sent in batches"),
        (false, false) => Err(Why::Kinds("neither end is a datagram socket")),
    }
}

/// | errno | verdict | evidence |
/// |---|---|---|
/// | `EAGAIN` | blocked | |
/// | `ENOBUFS` on sending | blocked on the sink: a device's queue is full for the moment | `send(2)` |
/// | `ENOSYS`, `EPERM` | declined on receiving; sent one at a time | no such call, or a filter that does not know it |
/// | `EMSGSIZE` | failed: the sink's limit; or, on the source, a datagram that was cut | |
/// | `ECONNREFUSED` | failed on its side: nobody listens (any more) | `udp(7)` |
pub(crate) struct Datagram {
    batch: Batch,
    buffer: Option<Buffer>,
    slot: usize,
    received: Vec<Received>,
    queue: Vec<Message>,
    /// The first of the queue that has not been sent.
    next: usize,
    /// Bytes of it that a stream sink has taken.
    sent: usize,
    /// Bytes of a stream, behind the queue's, that wait for the rest of their
    /// datagram: where they start, and how many they are.
    tail: (usize, usize),
    /// For reading a little from a pipe.
    aside: Option<OwnedPipe>,
    ended: bool,
    /// What receiving failed with, after datagrams that come first.
    failed: Option<Errno>,
    /// `SO_PASSCRED` is to be taken off the source at the end.
    restore: bool,
    tells_end: bool,
}

/// A datagram in the buffer.
struct Message {
    start: usize,
    length: usize,
    /// The rest of it is lost.
    cut: bool,
}

impl Datagram {
    /// With a buffer of which only what datagrams fill is ever touched.
    pub(crate) fn start(flow: &mut Flow<'_>) -> Result<Datagram, Why> {
        let source = flow.source.kind();
        let joins = source.is_datagram() && !flow.sink.kind().is_datagram();
        let (slot, slots) = if joins {
            (largest(source), 1)
        } else if !source.is_datagram() {
            let size = size_for(flow);
            // No more than a local socket takes at once: what waits in a batch
            // for its reader could have been read meanwhile.
            (size, (LOCAL / size).clamp(1, SLOTS))
        } else if source == Kind::Udp {
            (largest(source), SLOTS)
        } else {
            (largest(source), SLOTS / 2)
        };
        let mut datagram = Datagram {
            batch: Batch::new(slots),
            buffer: Some(Buffer::with_capacity(
                slot * slots + if joins { JOINED } else { 0 },
            )?),
            slot,
            received: Vec::with_capacity(slots),
            queue: Vec::with_capacity(slots),
            next: 0,
            sent: 0,
            tail: (0, 0),
            aside: None,
            ended: false,
            failed: None,
            restore: false,
            tells_end: false,
        };
        if source == Kind::UnixSeqpacket
            && let Ok(before) = sys::pass_credentials(flow.source_fd(), true)
        {
            datagram.restore = !before;
            datagram.tells_end = true;
        }
        Ok(datagram)
    }

    fn fill(&mut self, flow: &mut Flow<'_>) -> Result<(), Verdict> {
        if flow.sink.kind().is_datagram() && flow.source.kind().is_datagram() {
            self.receive(flow)
        } else if flow.source.kind().is_datagram() {
            self.join(flow)
        } else {
            self.cut(flow)
        }
    }

    /// A batch of datagrams that together cannot exceed what is left.
    fn receive(&mut self, flow: &mut Flow<'_>) -> Result<(), Verdict> {
        let fd = flow.source_fd();
        let failed = |errno| match errno {
            Errno::EINTR => Verdict::Moved(0),
            Errno::EAGAIN => Verdict::Blocked(Side::Source),
            // Receiving in batches is refused, not receiving.
            Errno::ENOSYS | Errno::EPERM => Verdict::Declined(errno.into()),
            _ => Verdict::Failed(Side::Source, errno),
        };
        let mut at_most = usize::try_from(flow.left / self.slot as u64).unwrap_or(usize::MAX);
        if at_most == 0 {
            // A datagram goes whole or not at all.
            if next_length(flow, flow.may_sleep).map_err(failed)? as u64 > flow.left {
                flow.left = 0;
                return Err(Verdict::Moved(0));
            }
            at_most = 1;
        }
        let Some(mut buffer) = self.buffer.take() else {
            return Err(Verdict::Ended);
        };
        let wait = flow.may_sleep && !flow.source.facts().nonblocking;
        let done = self.batch.receive(
            fd,
            &mut buffer,
            self.slot,
            at_most,
            wait,
            &mut self.received,
        );
        self.buffer = Some(buffer);
        self.forget();
        done.map_err(failed)?;
        for (index, received) in self.received.iter().enumerate() {
            if received.length == 0 && self.is_end(flow, received) {
                self.ended = true;
                break;
            }
            flow.took(received.length as u64);
            flow.truncated += u64::from(received.truncated);
            push_apart(&mut self.queue, index * self.slot, received);
        }
        Ok(())
    }

    /// Datagrams one behind the other, as long as more are there, for a stream
    /// that takes them by one call. A batch of slots, of which each must hold
    /// the largest datagram there can be, is spread over so many pages that
    /// touching them costs more than the calls it saves.
    fn join(&mut self, flow: &mut Flow<'_>) -> Result<(), Verdict> {
        let Some(mut buffer) = self.buffer.take() else {
            return Err(Verdict::Ended);
        };
        self.forget();
        let mut verdict = None;
        let mut end = 0;
        let wait = flow.may_sleep && !flow.source.facts().nonblocking;
        // Its reader is to be at work while the next ones are received.
        let enough = match flow.sink.kind() {
            Kind::Tty => 1,
            kind if kind.is_pipe() => JOINED / 4,
            _ => JOINED,
        };
        while end < enough && self.queue.len() < MOST_JOINED && verdict.is_none() {
            let first = self.queue.is_empty();
            let slot = &mut buffer[end..end + self.slot];
            match receive_one(flow, slot, wait && first) {
                Ok(One::Here(received)) if received.length == 0 && self.is_end(flow, &received) => {
                    self.ended = true;
                    break;
                }
                Ok(One::Here(received)) => {
                    flow.took(received.length as u64);
                    push_apart(&mut self.queue, end, &received);
                    end += received.length;
                }
                // It will say so again.
                Ok(One::TooLong) | Err(Errno::EAGAIN | Errno::EINTR) if !first => break,
                Ok(One::TooLong) => {
                    flow.left = 0;
                    verdict = Some(Verdict::Moved(0));
                }
                Err(Errno::EAGAIN) => verdict = Some(Verdict::Blocked(Side::Source)),
                Err(Errno::EINTR) => verdict = Some(Verdict::Moved(0)),
                // An error of a socket is told once.
                Err(errno) if !first => {
                    self.failed = Some(errno);
                    break;
                }
                Err(errno) => verdict = Some(Verdict::Failed(Side::Source, errno)),
            }
        }
        self.buffer = Some(buffer);
        verdict.map_or(Ok(()), Err)
    }

    /// Whether an empty message is the end: on a sequenced-packet socket when
    /// it came without credentials, elsewhere when reading was shut down.
    fn is_end(&self, flow: &Flow<'_>, message: &Received) -> bool {
        if flow.source.kind() == Kind::UnixSeqpacket {
            return !(self.tells_end && message.credentials);
        }
        reading_was_shut_down(flow)
    }

    /// Reads a stream and cuts it. Where the caller gave a size, only the last
    /// datagram may be shorter; otherwise what is there goes out.
    fn cut(&mut self, flow: &mut Flow<'_>) -> Result<(), Verdict> {
        let kind = flow.source.kind();
        if flow.left > 0 && !flow.may_read(kind.is_socket()) {
            return Err(Verdict::Blocked(Side::Source));
        }
        let Some(mut buffer) = self.buffer.take() else {
            return Err(Verdict::Ended);
        };
        let (start, held) = self.tail;
        buffer.copy_within(start..start + held, 0);
        self.forget();
        self.tail = (0, held);
        // Less than a whole datagram was kept, so there is room.
        let room = buffer.len() / self.slot * self.slot - held;
        let room = usize::try_from(flow.left.min(flow.span)).map_or(room, |left| left.min(room));
        let done = if room == 0 {
            // No more is wanted.
            Ok(0)
        } else {
            read_stream(flow, &mut buffer[held..held + room], &mut self.aside)
        };
        self.buffer = Some(buffer);
        let n = match done {
            Ok(0) => {
                self.ended = true;
                0
            }
            Ok(n) => n,
            Err(Errno::EINTR) => return Err(Verdict::Moved(0)),
            Err(Errno::EAGAIN) => return Err(Verdict::Blocked(Side::Source)),
            Err(errno) => return Err(Verdict::Failed(Side::Source, errno)),
        };
        flow.took(n as u64);
        let bytes = held + n;
        let exact = flow.block.is_some() && !self.ended && flow.left > 0;
        let goes = if exact {
            bytes / self.slot * self.slot
        } else {
            bytes
        };
        for start in (0..goes).step_by(self.slot) {
            self.queue.push(Message {
                start,
                length: (goes - start).min(self.slot),
                cut: false,
            });
        }
        self.tail = (goes, bytes - goes);
        Ok(())
    }

    fn flush(&mut self, flow: &mut Flow<'_>) -> Verdict {
        let sink = *flow.sink.facts();
        if !flow.may_write(sink.kind.is_socket()) {
            return Verdict::Blocked(Side::Sink);
        }
        let Some(buffer) = self.buffer.take() else {
            return Verdict::Ended;
        };
        let whole = self.queue[self.next..]
            .iter()
            .take_while(|message| !message.cut)
            .count();
        let done = if whole == 0 {
            Err(Verdict::Failed(Side::Source, Errno::EMSGSIZE))
        } else if sink.kind.is_datagram() {
            self.send(flow, &buffer, whole)
        } else {
            self.write(flow, &buffer, whole)
        };
        self.buffer = Some(buffer);
        match done {
            Ok(n) => {
                flow.gave(n);
                Verdict::Moved(n)
            }
            Err(verdict) => verdict,
        }
    }

    fn message<'b>(&self, buffer: &'b [u8], index: usize) -> &'b [u8] {
        let Message { start, length, .. } = self.queue[index];
        &buffer[start..start + length]
    }

    fn send(&mut self, flow: &mut Flow<'_>, buffer: &[u8], whole: usize) -> Result<u64, Verdict> {
        let wait = flow.may_sleep && !flow.sink.facts().nonblocking;
        let fd = flow.sink_fd();
        let first = self.message(buffer, self.next);
        let singly = || {
            let mut flags = SendFlags::NOSIGNAL;
            if !wait {
                flags |= SendFlags::DONTWAIT;
            }
            let sent = rustix::net::send(fd, first, flags);
            sent.map(|_| 1).map_err(Errno::from)
        };
        let sent = if whole == 1 {
            singly()
        } else {
            let queued = self.queue[self.next..self.next + whole].iter();
            let parts = queued.map(|m| &buffer[m.start..m.start + m.length]);
            match self.batch.send(fd, parts, wait) {
                // Where only batches are refused, singly will do.
                Err(Errno::ENOSYS | Errno::EPERM) => singly(),
                sent => sent,
            }
        };
        match sent {
            Ok(n) => {
                let sent = &self.queue[self.next..self.next + n];
                let bytes = sent.iter().map(|m| m.length as u64).sum();
                self.next += n;
                Ok(bytes)
            }
            Err(Errno::EINTR) => Err(Verdict::Moved(0)),
            Err(Errno::EAGAIN | Errno::ENOBUFS) => Err(Verdict::Blocked(Side::Sink)),
            Err(errno) => Err(Verdict::Failed(Side::Sink, errno)),
        }
    }

    fn write(&mut self, flow: &mut Flow<'_>, buffer: &[u8], whole: usize) -> Result<u64, Verdict> {
        let range = self.next..self.next + whole;
        let mut parts: Vec<IoSlice<'_>> = Vec::with_capacity(whole);
        for index in range {
            let message = self.message(buffer, index);
            let skip = if index == self.next { self.sent } else { 0 };
            if message.len() > skip {
                parts.push(IoSlice::new(&message[skip..]));
            }
        }
        if parts.is_empty() {
            // Empty messages leave no trace in a stream.
            self.next += whole;
            return Ok(0);
        }
        match write_stream(flow, &parts) {
            Ok(0) => Err(Verdict::Failed(Side::Sink, Errno::EIO)),
            Ok(n) => {
                self.advance(n);
                flow.to.advance(n as u64);
                Ok(n as u64)
            }
            Err(Errno::EINTR) => Err(Verdict::Moved(0)),
            Err(Errno::EAGAIN) => Err(Verdict::Blocked(Side::Sink)),
            Err(errno) => Err(Verdict::Failed(Side::Sink, errno)),
        }
    }

    /// So many bytes of the queue have been written.
    fn advance(&mut self, mut bytes: usize) {
        while let Some(message) = self.queue.get(self.next) {
            let rest = message.length - self.sent;
            if bytes < rest {
                self.sent += bytes;
                return;
            }
            bytes -= rest;
            self.sent = 0;
            self.next += 1;
            if bytes == 0 {
                return;
            }
        }
    }
}

impl Step for Datagram {
    fn step(&mut self, flow: &mut Flow<'_>) -> Verdict {
        if self.next >= self.queue.len() {
            if self.ended {
                return Verdict::Ended;
            }
            if let Some(errno) = self.failed.take() {
                return Verdict::Failed(Side::Source, errno);
            }
            if let Err(verdict) = self.fill(flow) {
                return verdict;
            }
            if self.queue.is_empty() {
                return if self.ended {
                    Verdict::Ended
                } else {
                    Verdict::Moved(0)
                };
            }
        }
        self.flush(flow)
    }

    fn held(&self) -> u64 {
        let queued: usize = self.queue[self.next..].iter().map(|m| m.length).sum();
        (queued - self.sent + self.tail.1) as u64
    }

    fn holds(&self) -> bool {
        self.next < self.queue.len() || self.tail.1 > 0
    }

    fn knows_the_end(&self) -> bool {
        true
    }

    fn strand(&mut self) -> Option<Stranded> {
        let buffer = self.buffer.take()?;
        let mut left = Vec::new();
        for index in self.next..self.queue.len() {
            let message = self.message(&buffer, index);
            let skip = if index == self.next { self.sent } else { 0 };
            left.push(message[skip..].to_vec());
        }
        if let (start, bytes @ 1..) = self.tail {
            left.push(buffer[start..start + bytes].to_vec());
        }
        buffer.recycle();
        self.forget();
        (!left.is_empty()).then_some(Stranded::Datagrams(left))
    }

    fn forget(&mut self) {
        self.queue.clear();
        (self.next, self.sent, self.tail) = (0, 0, (0, 0));
    }

    fn finish(&mut self, flow: &mut Flow<'_>) {
        if std::mem::take(&mut self.restore) {
            let _ = sys::pass_credentials(flow.source_fd(), false);
        }
    }
}

impl Drop for Datagram {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            buffer.recycle();
        }
        if let Some(pipe) = self.aside.take() {
            pipe.release();
        }
    }
}

/// What was received, message by message, where the kernel has joined some of
/// one sender's (`UDP_GRO`).
fn push_apart(queue: &mut Vec<Message>, start: usize, received: &Received) {
    let length = received.length;
    let segment = received.segment.unwrap_or(length).clamp(1, length.max(1));
    let mut at = 0;
    loop {
        let end = (at + segment).min(length);
        queue.push(Message {
            start: start + at,
            length: end - at,
            cut: received.truncated && end == length,
        });
        at = end;
        if at >= length {
            return;
        }
    }
}

/// Whether an empty datagram may be no datagram at all.
pub(crate) fn reading_was_shut_down(flow: &Flow<'_>) -> bool {
    let fd = flow.source_fd();
    let mut fds = [PollFd::new(&fd, PollFlags::RDHUP)];
    matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1))
        && fds[0]
            .revents()
            .intersects(PollFlags::RDHUP | PollFlags::HUP)
}

/// What a buffer for any datagram of this kind of socket needs.
pub(crate) fn largest(kind: Kind) -> usize {
    if kind == Kind::Udp {
        LARGEST
    } else {
        largest_local()
    }
}

/// What came of receiving one datagram.
pub(crate) enum One {
    /// It is in the buffer.
    Here(Received),
    /// It is longer than what is left of the size, and stays where it is.
    TooLong,
}

/// One datagram into a buffer, for the path that has no batches.
pub(crate) fn receive_one(flow: &mut Flow<'_>, into: &mut [u8], wait: bool) -> Result<One, Errno> {
    if flow.left < largest(flow.source.kind()).max(into.len()) as u64
        && next_length(flow, wait)? as u64 > flow.left
    {
        return Ok(One::TooLong);
    }
    let received = sys::receive_one(flow.source_fd(), into, wait)?;
    flow.truncated += u64::from(received.truncated);
    Ok(One::Here(received))
}

/// Length of the next datagram, which stays where it is.
fn next_length(flow: &Flow<'_>, wait: bool) -> Result<usize, Errno> {
    let flags = RecvFlags::PEEK | RecvFlags::TRUNC;
    let flags = if wait {
        flags
    } else {
        flags | RecvFlags::DONTWAIT
    };
    let mut none = [0u8; 1];
    Ok(rustix::net::recv(flow.source_fd(), &mut none, flags)?.1)
}

/// The size of the datagrams that a stream is cut into: the caller's block, or
/// what the sink's way takes without fragments.
pub(crate) fn size_for(flow: &Flow<'_>) -> usize {
    if let Some(block) = flow.block {
        // No more memory than what any such socket could send: the datagram
        // is then still too long for it, and EMSGSIZE the answer.
        let most = match flow.sink.kind() {
            Kind::Udp => LARGEST,
            _ => LARGEST_BLOCK,
        };
        return block.min(most);
    }
    let fd = flow.sink_fd();
    match flow.sink.kind() {
        Kind::Udp => sys::path_mtu(fd).map_or(UDP_PAYLOAD, |mtu| mtu.clamp(548, 65_507)),
        // What a loop with the usual buffer would send, where the send buffer
        // has room for it: a message longer than that is EMSGSIZE.
        Kind::UnixDatagram | Kind::UnixSeqpacket => {
            let room = rustix::net::sockopt::socket_send_buffer_size(fd).unwrap_or(LARGEST);
            (room / 4 * 3).clamp(4096, LOCAL)
        }
        _ => UDP_PAYLOAD,
    }
}

/// The largest datagram that a local sender can make by default: what its
/// send buffer may be set to, which the kernel doubles.
fn largest_local() -> usize {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let max = std::fs::read_to_string("/proc/sys/net/core/wmem_max")
            .ok()
            .and_then(|text| text.trim().parse::<usize>().ok())
            .unwrap_or(212_992);
        (max.saturating_mul(2))
            .clamp(LARGEST, 1 << 20)
            .next_multiple_of(4096)
    })
}

fn read_stream(
    flow: &mut Flow<'_>,
    into: &mut [u8],
    aside: &mut Option<OwnedPipe>,
) -> Result<usize, Errno> {
    let fd = flow.source_fd();
    if flow.source.kind().is_socket() {
        let flags = if flow.may_sleep {
            RecvFlags::empty()
        } else {
            RecvFlags::DONTWAIT
        };
        return Ok(rustix::net::recv(fd, into, flags)?.1);
    }
    if flow.source.kind().is_pipe() {
        return pipe::read(fd, into, aside);
    }
    let n = match flow.from {
        Cursor::At(offset) => rustix::io::pread(fd, into, offset)?,
        _ => rustix::io::read(fd, into)?,
    };
    flow.from.advance(n as u64);
    Ok(n)
}

fn write_stream(flow: &mut Flow<'_>, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
    let (fd, facts) = (flow.sink_fd(), *flow.sink.facts());
    if facts.kind.is_socket() {
        let mut flags = SendFlags::NOSIGNAL;
        if !flow.may_sleep {
            flags |= SendFlags::DONTWAIT;
        }
        let mut none = SendAncillaryBuffer::default();
        return Ok(rustix::net::sendmsg(fd, parts, &mut none, flags)?);
    }
    if facts.kind.can_block() && !facts.nonblocking && !flow.may_sleep {
        // A blocking pipe or terminal: what it surely takes.
        let first = &parts[0][..parts[0].len().min(4096)];
        return Ok(rustix::io::write(fd, first)?);
    }
    Ok(match flow.to {
        Cursor::At(offset) => rustix::io::pwritev(fd, parts, offset)?,
        _ => rustix::io::writev(fd, parts)?,
    })
}
