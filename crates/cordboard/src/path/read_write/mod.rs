//! `read(2)` and `write(2)` with a buffer in user space, for every pair. The
//! fallback of all other paths, and the fastest for very small files and for
//! devices that produce or take bytes rather than pages.

mod aligned;
mod counter;
mod larger;
mod numbers;
mod records;
mod sink_writer;
mod source_reader;
mod zeros;

use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;

pub(super) use sink_writer::SinkWriter;
pub(super) use source_reader::SourceReader;

use self::larger::Larger;
use self::numbers::NUMBER;
use self::source_reader::numbers_are_messages;
use super::datagram::{self, Credentials, One};
use crate::endpoint::{Facts, Kind, Side};
use crate::errno::Errno;
use crate::pair::Pair;
use crate::path::flow::Flow;
use crate::path::step::Step;
use crate::path::verdict::{Takes, Verdict};
use crate::report::Stranded;
use crate::request::Why;
use crate::sys::{self, Buffer, Received};

/// The initial buffer, and the size to which it grows if reads keep filling it
/// and the sink is a file; a socket's peer should be woken sooner.
const FIRST: usize = 128 << 10;
const LARGEST: usize = 256 << 10;
/// Direct I/O waits for the device on each call, so larger ones pay.
const DIRECT: usize = 1 << 20;
/// Rounds of read and write per step, as long as they are short: a timer's
/// records are 8 bytes.
const ROUNDS: usize = 16;
/// The largest buffer for a block size given by the caller.
pub(super) const LARGEST_BLOCK: usize = 64 << 20;
/// Bytes after which a step ends.
const ENOUGH: u64 = 64 << 10;
/// Reads that filled the buffer before it grows.
const FULL_READS: u32 = 8;

/// Accepts every pair.
pub(crate) fn takes(pair: &Pair<'_>) -> Takes {
    let (source, sink) = (pair.source, pair.sink);
    Ok(if source.kind.is_record() {
        "records are read whole into a buffer"
    } else if source.is_direct() || sink.is_direct() {
        "direct I/O needs an aligned buffer"
    } else if sink.appends() {
        "appending needs a buffer"
    } else {
        "works everywhere"
    })
}

/// Returns the number of bytes for which a transfer from a stream to this sink waits before it
/// writes, unless the source ends: a datagram of the caller's length, a record of that length for
/// a device ([`Joins::Records`](crate::path::Joins::Records)), a number of an eventfd, or a block
/// of direct I/O, which another transfer to the same sink may not have asked for.
pub(crate) fn least_write(sink: &Facts, block: Option<NonZeroUsize>) -> usize {
    match (SinkWriter::unit(sink), block) {
        (unit, _) if sink.is_direct() => unit.max(aligned::UNKNOWN),
        (1, Some(block)) if sink.kind.is_datagram() => datagram::of_block(sink.kind, block.get()),
        (1, Some(block)) if sink.has_pieces() => block.get().min(LARGEST_BLOCK),
        (unit, _) => unit,
    }
}

/// Every errno except `EAGAIN` (blocked; so is a datagram sink's `ENOBUFS`) and
/// `EINTR` (nothing moved) is a failure of the side of the call: no path follows
/// this one.
pub(crate) struct ReadWrite {
    buffer: Option<Buffer>,
    /// Length of the next buffer, its least length, and the first length.
    length: usize,
    least: usize,
    usual: usize,
    larger: Option<Larger>,
    start: usize,
    end: usize,
    /// A read has returned 0: no further read, so that a terminal's end of file
    /// need not be typed twice.
    ended: bool,
    full_reads: u32,
    /// A message of zero length is to be sent on.
    empty_message: bool,
    /// The held bytes are messages of this many bytes each, the last perhaps
    /// shorter; `None`: one message.
    segment: Option<usize>,
    /// The held message was truncated, and is not sent on.
    cut: bool,
    /// Ancillary data of messages is received: the length of each message that
    /// the kernel has joined, or its credentials.
    annotated: bool,
    /// Distinguish an empty message from the end.
    credentials: Credentials,
    /// The source is message-oriented.
    messages: bool,
    /// The length of the messages into which a stream is cut.
    message: usize,
    /// Reads are joined to messages of that length.
    blocks: bool,
    /// The bytes of the current message that a device has accepted.
    begun: usize,
    /// The sink takes bytes in units, which several reads may fill.
    joins: bool,
    reader: SourceReader,
    writer: SinkWriter,
}

impl ReadWrite {
    /// Allocates a buffer, no larger than the bytes to move require.
    pub(crate) fn start(flow: &mut Flow<'_>) -> Result<ReadWrite, Why> {
        let (source, sink) = (flow.source.facts(), flow.sink.facts());
        // No process at the other end has to be woken.
        let at_once = |facts: &Facts| facts.kind.is_cached() || facts.memory;
        let largest = if source.is_direct() || sink.is_direct() {
            DIRECT
        } else if at_once(source) && at_once(sink) {
            LARGEST
        } else {
            FIRST
        };
        let known = match (source.size, source.kind.is_cached()) {
            // One byte more than the size, so that the end takes one read less
            // if the size is right.
            (Some(size), true) => size.min(flow.allowance.remaining()).saturating_add(1),
            _ => flow.allowance.remaining(),
        };
        let mut length = usize::try_from(known).unwrap_or(largest).min(largest);
        if let Some(block) = flow.options.block {
            length = length.max(block.min(LARGEST_BLOCK));
        }
        let joins = SinkWriter::unit(sink);
        let blocks = flow.joins_blocks();
        let message = match flow.options.block {
            _ if sink.kind.is_datagram() => datagram::size_for(flow),
            Some(block) if blocks => block.min(LARGEST_BLOCK),
            _ => usize::MAX,
        };
        // There is always room to read behind bytes that the sink does not take
        // yet.
        let mut least = aligned::unit(source).max(joins);
        if source.kind.is_datagram() {
            least = least.max(datagram::largest(source.kind) + joins - 1);
        } else if blocks || flow.options.block.is_some() && sink.kind.is_datagram() {
            least = least.max(message);
        }
        length = length.max(least);
        let buffer = if source.kind.is_datagram() {
            let longest = datagram::longest(source.kind) + joins - 1;
            Buffer::sparse(length.max(longest), least)?
        } else {
            Buffer::at_most(length, least)?
        };
        Ok(ReadWrite {
            length: buffer.len(),
            least,
            usual: buffer.len(),
            larger: None,
            buffer: Some(buffer),
            start: 0,
            end: 0,
            ended: false,
            full_reads: 0,
            empty_message: false,
            segment: None,
            cut: false,
            annotated: match source.kind {
                Kind::Udp => sys::joins_datagrams(flow.source.fd()),
                kind => kind == Kind::UnixSeqpacket && sink.kind.is_datagram(),
            },
            credentials: Credentials::start(flow),
            messages: source.kind.is_datagram(),
            message,
            blocks,
            begun: 0,
            joins: joins > 1,
            reader: SourceReader::default(),
            writer: SinkWriter::new(),
        })
    }

    fn pending(&self) -> usize {
        self.end - self.start
    }

    /// Whether less is held than the sink takes at once.
    fn is_short(&self, flow: &Flow<'_>) -> bool {
        // Pieces of a stream are joined to whole blocks or numbers.
        let unit = SinkWriter::unit(flow.sink.facts());
        if unit > 1 {
            return self.pending() < unit;
        }
        // The device has accepted a part of a block: the rest follows at once.
        let waits = self.blocks && self.begun == 0;
        let least = if waits { self.message } else { 1 };
        self.pending() < least
    }

    /// One read, if there is room, and one write.
    fn round(&mut self, flow: &mut Flow<'_>) -> Verdict {
        // At the end, at the size or before a hole, the held bytes are written
        // as they are. Otherwise the buffer is first filled up to the amount
        // that the sink takes at once.
        let no_refill = |this: &ReadWrite, flow: &Flow<'_>| {
            this.ended || this.empty_message || this.cut || flow.allowance.is_spent()
        };
        if self.is_short(flow) && !no_refill(self, flow) {
            if flow.allowance.is_held_back() {
                return Verdict::Blocked(Side::Source);
            }
            if let Err(verdict) = self.fill(flow) {
                return verdict;
            }
            if self.is_short(flow) && !no_refill(self, flow) {
                return Verdict::Moved(0);
            }
        }
        if self.empty_message && !flow.sink.kind().is_datagram() {
            self.empty_message = false;
            return Verdict::Moved(0);
        }
        if self.pending() == 0 && !self.empty_message {
            return if self.ended {
                Verdict::Ended
            } else {
                Verdict::Moved(0)
            };
        }
        self.flush(flow)
    }

    /// One read, appended to the held bytes.
    fn fill(&mut self, flow: &mut Flow<'_>) -> Result<(), Verdict> {
        let kind = flow.source.kind();
        let polled = flow.source.ready.marked;
        if !flow.source.may_use(kind.is_socket()) {
            return Err(Verdict::Blocked(Side::Source));
        }
        let mut buffer = match self.buffer.take() {
            Some(buffer) => buffer,
            // It was released while idle, or for another size.
            None => match self.messages {
                true => Buffer::sparse(self.length, self.least),
                false => {
                    let (length, larger) = Larger::take(self.length, self.usual);
                    self.larger = larger;
                    Buffer::at_most(length, self.least)
                }
            }
            .map_err(|errno| Verdict::Failed(Side::Source, errno))?,
        };
        if self.pending() == 0 {
            (self.start, self.end) = (0, 0);
            let files = flow.sink.kind().is_cached();
            if files && self.full_reads >= FULL_READS && buffer.len() < LARGEST {
                buffer = Larger::grow(buffer, LARGEST, self.usual, &mut self.larger);
            }
        } else if self.start > 0 {
            buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.pending());
        }
        debug_assert!(self.end < buffer.len(), "no room to read into");
        let room = &mut buffer[self.end..];
        let done = if kind.is_datagram() {
            self.receive(flow, room)
        } else {
            self.read(flow, room)
        };
        if self.end > self.least {
            buffer.is_not_sparse();
        }
        self.buffer = Some(buffer);
        match done {
            Err(Verdict::Blocked(Side::Source)) if polled && datagram::has_ended(flow) => {
                self.ended = true;
                Ok(())
            }
            done => done,
        }
    }

    fn read(&mut self, flow: &mut Flow<'_>, room: &mut [u8]) -> Result<(), Verdict> {
        let got = self.reader.read(flow, room)?;
        if got.bytes > 0 {
            self.full_reads = if got.full { self.full_reads + 1 } else { 0 };
        }
        self.end += got.bytes;
        self.ended = got.last;
        if numbers_are_messages(flow) {
            self.segment = Some(NUMBER);
        }
        Ok(())
    }

    /// Receives one message: a short read would lose the rest of it.
    fn receive(&mut self, flow: &mut Flow<'_>, room: &mut [u8]) -> Result<(), Verdict> {
        let wait = flow.source.ready.may_sleep;
        let mut received = receive_message(flow, room, wait, self.annotated)?;
        let unknown = flow.source.kind() == Kind::UnixSeqpacket && !self.annotated;
        if received.length == 0 && unknown {
            self.credentials = Credentials::ask(flow);
            let next = receive_message(flow, room, false, true);
            self.credentials.give_back(flow);
            received = next?;
        }
        (self.segment, self.cut) = (received.segment, received.truncated);
        self.end += received.length;
        flow.took(received.length as u64);
        if received.length == 0 {
            let ended = datagram::is_end(flow, &received);
            (self.ended, self.empty_message) = (ended, !ended);
        }
        Ok(())
    }

    /// One write of held bytes.
    fn flush(&mut self, flow: &mut Flow<'_>) -> Verdict {
        if self.cut {
            return Verdict::Failed(Side::Source, Errno::EMSGSIZE);
        }
        if !self.writer.is_open(flow) {
            return Verdict::Blocked(Side::Sink);
        }
        let Some(buffer) = &self.buffer else {
            return Verdict::Ended;
        };
        let mut bytes = &buffer[self.start..self.end];
        if self.blocks || flow.writes_messages() {
            let most = match self.segment {
                // A pipe may have taken part of one.
                Some(each) => each - self.start % each,
                None => records::first_message(flow, bytes, self.message - self.begun, self.blocks),
            };
            bytes = &bytes[..bytes.len().min(most)];
        }
        let n = match records::send(flow, &mut self.writer, bytes, self.message) {
            Ok(Some(n)) => n,
            Ok(None) => {
                self.empty_message = false;
                self.start += bytes.len();
                return Verdict::Moved(0);
            }
            Err(verdict) => return verdict,
        };
        self.empty_message = false;
        self.start += n;
        if self.blocks {
            self.begun = if n < bytes.len() { self.begun + n } else { 0 };
        }
        // Last: a stage may panic, and the counts must be right then too.
        flow.stages.inspect(&bytes[..n]);
        Verdict::Moved(n as u64)
    }
}

/// Receives one message of a datagram socket. `annotated`: with ancillary data.
fn receive_message(
    flow: &mut Flow<'_>,
    room: &mut [u8],
    wait: bool,
    annotated: bool,
) -> Result<Received, Verdict> {
    match datagram::receive_one(flow, room, wait, annotated) {
        Ok(One::Here(received)) => Ok(received),
        Ok(One::TooLong) => {
            flow.allowance.close();
            Err(Verdict::Moved(0))
        }
        Err(Errno::EINTR) => Err(flow.was_interrupted(Side::Source)),
        Err(Errno::EAGAIN) => Err(Verdict::Blocked(Side::Source)),
        Err(errno) => Err(Verdict::Failed(Side::Source, errno)),
    }
}

impl Step for ReadWrite {
    fn step(&mut self, flow: &mut Flow<'_>) -> Verdict {
        let source = flow.source.facts();
        // Another read could block before the bytes just moved are reported.
        let may_sleep = flow.mode.is_watched() && flow.source.ready.may_sleep;
        let sleeps = may_sleep && source.reading_waits() && !source.nonblocking;
        let mut moved = 0;
        // Without an observer, looping here costs least.
        let (rounds, enough) = if flow.mode.is_watched() {
            (ROUNDS, ENOUGH)
        } else {
            (ROUNDS * 4, ENOUGH * 16)
        };
        for _ in 0..rounds {
            match self.round(flow) {
                // A signal came, or more is to be waited for.
                Verdict::Moved(0) => break,
                Verdict::Moved(n) => moved += n,
                verdict if moved == 0 => return verdict,
                // The next call returns it again.
                Verdict::Blocked(_) => break,
                Verdict::Ended => break,
                verdict => return verdict,
            }
            if moved >= enough || flow.allowance.now() == 0 || sleeps {
                break;
            }
        }
        Verdict::Moved(moved)
    }

    fn held(&self) -> u64 {
        self.pending() as u64
    }

    fn holds(&self) -> bool {
        self.pending() > 0 || self.empty_message
    }

    fn rest(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            // It may be shorter if other transfers use up the memory.
            self.length = self.length.max(buffer.len());
            buffer.recycle();
        }
        self.larger = None;
        self.reader.rest();
        self.writer.rest();
    }

    fn piece(&self) -> Option<usize> {
        Some(self.length)
    }

    fn set_piece(&mut self, bytes: usize) {
        self.length = bytes.max(self.least);
        if let Some(buffer) = self.buffer.take() {
            buffer.recycle();
        }
        self.larger = None;
    }

    fn knows_the_end(&self) -> bool {
        true
    }

    fn second_descriptions(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [self.reader.second(), self.writer.second()]
    }

    fn strand(&mut self) -> Option<Stranded> {
        if !self.holds() {
            return None;
        }
        let buffer = self.buffer.as_ref()?;
        let stranded = if (self.messages || self.segment.is_some()) && !self.joins {
            let each = self.segment.unwrap_or(self.end).max(1);
            let mut all = Vec::new();
            let mut at = self.start;
            while at < self.end || all.is_empty() {
                let end = (at / each + 1).saturating_mul(each).min(self.end);
                all.push(buffer[at..end].to_vec());
                at = end;
            }
            Stranded::Datagrams(all)
        } else {
            Stranded::copied(&buffer[self.start..self.end])
        };
        self.forget();
        Some(stranded)
    }

    fn drop_without_close(mut self: Box<Self>) {
        self.reader.forget();
        self.writer.forget();
    }

    fn finish(&mut self, flow: &mut Flow<'_>) {
        self.credentials.give_back(flow);
        self.writer.finish(flow);
    }

    fn forget(&mut self) {
        (self.start, self.end, self.begun) = (0, 0, 0);
        (self.empty_message, self.cut, self.segment) = (false, false, None);
    }
}

impl Drop for ReadWrite {
    fn drop(&mut self) {
        self.rest();
    }
}
