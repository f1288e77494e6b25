//! Datagrams in batches, by `recvmmsg(2)` (since Linux 2.6.33) and `sendmmsg(2)`
//! (since Linux 3.0): between two datagram sockets every boundary is kept, and a
//! datagram of zero length is sent on; a stream is cut into datagrams of one
//! size; datagrams into a stream are joined.
//!
//! Segmentation offload (`UDP_SEGMENT`) is not used: it needs runs of equal
//! sizes and is refused with `EIO` by some devices (quinn#1128), and a batch
//! saves most of the same calls.

mod drain;
mod ends;
mod fill;
mod one;
mod size;

use std::os::fd::BorrowedFd;

pub(super) use ends::{Credentials, has_ended, is_end};
pub(super) use one::{One, receive_one};
pub(super) use size::{UDP_PAYLOAD, largest, longest, of_block, size_for};

use size::{JOINED, LOCAL};

use crate::endpoint::{Facts, Kind, Side};
use crate::errno::Errno;
use crate::pair::Pair;
use crate::path::common::socket::Sender;
use crate::path::common::terminal::Terminal;
use crate::path::flow::Flow;
use crate::path::step::Step;
use crate::path::verdict::{Takes, Verdict};
use crate::pipe::{NoWait, PacketReader};
use crate::report::Stranded;
use crate::request::{Sparse, Why};
use crate::sys::{Batch, Buffer, Received};

/// Datagrams per batch.
const SLOTS: usize = 32;

/// Accepts pairs with a datagram socket at one end at least, if the other end
/// fits.
pub(crate) fn takes(pair: &Pair<'_>) -> Takes {
    let (source, sink) = (pair.source, pair.sink);
    let direct = |facts: &Facts| facts.is_direct() || facts.is_packet_pipe();
    if direct(source) || direct(sink) {
        return Err("direct I/O and packet pipes need separate buffers".into());
    }
    if pair.request.sparse == Sparse::Always && sink.kind.is_file() {
        return Err("the request turns blocks of zeros into holes".into());
    }
    match (source.kind.is_datagram(), sink.kind.is_datagram()) {
        (true, true) => Ok("batches keep datagram boundaries"),
        // A pseudo-file takes each write for a value of its own. An eventfd takes one
        // number of a write, more is `EINVAL` since Linux 6.9 (`eventfd_write`, fs/eventfd.c),
        // and a write without room for it blocks.
        (true, false) if sink.has_pieces() || sink.kind == Kind::Eventfd => {
            Err("each write would be a separate message".into())
        }
        (true, false) => Ok("received in batches, written in order"),
        (false, true) if source.reads_are_messages() => {
            Err("each read is to be a separate datagram".into())
        }
        (false, true) => Ok("cut into datagrams of one size, sent in batches"),
        (false, false) => Err(Why::Kinds("neither end is a datagram socket")),
    }
}

/// | errno | verdict | evidence |
/// |---|---|---|
/// | `EAGAIN` | blocked | |
/// | `ENOBUFS` on sending | blocked on the sink: a device's queue is temporarily full | `send(2)` |
/// | `ENOSYS`, `EPERM`, `EACCES`, `EINVAL` | declined on receiving; sent one at a time | no such call, or a seccomp filter that does not know it; a protocol refuses a flag |
/// | `EACCES` on receiving that is not returned again | failed: an error of the source | `sys/attempt.rs` |
/// | `EMSGSIZE` of a datagram socket | sent again; then dropped and counted, or failed if the datagram was cut from a stream | `ip(7)`, `unix(7)`: the datagram is too long |
/// | `EMSGSIZE` of a stream socket | sent in shorter pieces | [`Sender`] |
/// | `EMSGSIZE` on the source | failed: a truncated datagram | |
/// | `ECONNREFUSED` | failed on its side: no listener (any more) | `udp(7)` |
pub(crate) struct Datagram {
    /// Neither `batch` nor `buffer` is allocated while idle.
    batch: Option<Batch>,
    buffer: Option<Buffer>,
    slots: usize,
    length: usize,
    slot: usize,
    /// The part of a slot that an ordinary datagram fills at most.
    usual: usize,
    received: Vec<Received>,
    /// The number of next steps that receive one datagram each.
    singly: u32,
    /// Bytes of sequenced packets known to be queued in the source.
    counted: u64,
    queue: Vec<Message>,
    /// Index of the first queued datagram that has not been sent.
    next: usize,
    /// Bytes of it that the sink has accepted.
    sent: usize,
    /// Bytes of a stream, behind the queue's, that wait for the rest of their
    /// datagram: start and length.
    tail: (usize, usize),
    /// For reading from a pipe …
    packet_reader: PacketReader,
    /// … and for writing to one.
    nowait: NoWait,
    /// For a blocking terminal.
    terminal: Terminal,
    /// For a stream socket.
    sender: Sender,
    ended: bool,
    /// The error of receiving, reported after the datagrams before it.
    failed: Option<Errno>,
    /// Distinguish an empty message from the end.
    credentials: Credentials,
}

/// A datagram in the buffer.
struct Message {
    start: usize,
    length: usize,
    /// Truncated: the rest is lost.
    cut: bool,
}

impl Datagram {
    /// Allocates a buffer of which only the parts that datagrams fill are ever
    /// touched.
    pub(crate) fn start(flow: &mut Flow<'_>) -> Result<Datagram, Why> {
        let source = flow.source.kind();
        let joins = source.is_datagram() && !flow.sink.kind().is_datagram();
        let (usual, slots) = if joins {
            (largest(source), 1)
        } else if !source.is_datagram() {
            let size = size_for(flow);
            // No more than a UNIX socket accepts at once: datagrams that wait in
            // a batch could already have been received. For a network socket as
            // much as a pipe holds: a read then needs no inspection
            // (`PacketReader`).
            (size, (LOCAL / size).clamp(1, 2 * SLOTS))
        } else if source == Kind::Udp {
            (largest(source), SLOTS)
        } else {
            (largest(source), SLOTS / 2)
        };
        let slot = match source.is_datagram() {
            true => longest(source).max(usual),
            false => usual,
        };
        let behind = if joins { JOINED } else { 0 };
        let mut datagram = Datagram {
            batch: None,
            buffer: None,
            slots,
            length: slot * slots + behind,
            slot,
            usual,
            received: Vec::new(),
            singly: 0,
            counted: 0,
            queue: Vec::new(),
            next: 0,
            sent: 0,
            tail: (0, 0),
            packet_reader: PacketReader::default(),
            nowait: NoWait::default(),
            terminal: Terminal::default(),
            sender: Sender::default(),
            ended: false,
            failed: None,
            credentials: Credentials::default(),
        };
        datagram.buffer = Some(datagram.room()?);
        datagram.credentials = Credentials::start(flow);
        Ok(datagram)
    }

    /// Allocates the slots: for the longest datagrams, or the usual ones.
    fn room(&mut self) -> Result<Buffer, Errno> {
        if self.slot == self.usual {
            return Buffer::with_capacity(self.length);
        }
        let behind = self.length - self.slot * self.slots;
        let least = self.usual * self.slots + behind;
        let buffer = Buffer::sparse(self.length, least)?;
        if buffer.len() < self.length {
            (self.slot, self.length) = (self.usual, least);
        }
        Ok(buffer)
    }

    /// Takes the buffer, or allocates one if it was released.
    fn buffer(&mut self) -> Result<Buffer, Verdict> {
        match self.buffer.take() {
            Some(buffer) => Ok(buffer),
            None => (self.room()).map_err(|errno| Verdict::Failed(Side::Source, errno)),
        }
    }

    fn fill(&mut self, flow: &mut Flow<'_>) -> Result<(), Verdict> {
        if !flow.source.kind().is_datagram() {
            return self.cut(flow);
        }
        // Its calls have a flag against blocking, but they clear the mark of
        // readiness too.
        flow.source.may_use(true);
        if flow.sink.kind().is_datagram() {
            self.receive(flow)
        } else {
            self.join(flow)
        }
    }

    fn message<'b>(&self, buffer: &'b [u8], index: usize) -> &'b [u8] {
        let Message { start, length, .. } = self.queue[index];
        &buffer[start..start + length]
    }
}

impl Step for Datagram {
    fn step(&mut self, flow: &mut Flow<'_>) -> Verdict {
        if self.next >= self.queue.len() {
            if let Some(errno) = self.failed.take() {
                return Verdict::Failed(Side::Source, errno);
            }
            if self.ended {
                return Verdict::Ended;
            }
            let polled = flow.source.ready.marked;
            match self.fill(flow) {
                Ok(()) => {}
                Err(Verdict::Blocked(Side::Source)) if polled && has_ended(flow) => {
                    self.ended = true;
                }
                Err(verdict) => return verdict,
            }
            if self.queue.is_empty() {
                return if self.ended && self.failed.is_none() {
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

    fn rest(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            buffer.recycle();
        }
        if let Some(batch) = self.batch.take() {
            batch.recycle();
        }
        self.packet_reader.rest();
        self.nowait.rest();
        (self.received, self.queue, self.next) = (Vec::new(), Vec::new(), 0);
    }

    fn knows_the_end(&self) -> bool {
        true
    }

    fn second_descriptions(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [self.packet_reader.second(), self.nowait.second()]
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

    fn unreported(&mut self) -> Option<Errno> {
        self.failed.take()
    }

    fn forget(&mut self) {
        self.queue.clear();
        (self.next, self.sent, self.tail) = (0, 0, (0, 0));
    }

    fn drop_without_close(mut self: Box<Self>) {
        std::mem::take(&mut self.packet_reader).forget();
        std::mem::take(&mut self.nowait).forget();
    }

    fn finish(&mut self, flow: &mut Flow<'_>) {
        self.credentials.give_back(flow);
    }
}

impl Drop for Datagram {
    fn drop(&mut self) {
        self.rest();
    }
}
