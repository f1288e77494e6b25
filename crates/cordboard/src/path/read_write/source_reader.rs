//! One read of a source that is not a datagram socket.

use std::os::fd::{BorrowedFd, OwnedFd};

use super::aligned;
use super::numbers::CounterReader;
use crate::endpoint::{Kind, Side};
use crate::errno::Errno;
use crate::path::common::stream;
use crate::path::flow::Flow;
use crate::path::verdict::Verdict;
use crate::pipe::PacketReader;

/// The longest event of inotify: a header of 16 bytes and a name of up to 256
/// (`struct inotify_event`).
const EVENT: u64 = 272;
/// The longest other record (`struct signalfd_siginfo`).
const RECORD: u64 = 128;

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::path) struct ReadOutcome {
    /// Bytes read; 0 at the end.
    pub(in crate::path) bytes: usize,
    /// The buffer was filled.
    pub(in crate::path) full: bool,
    /// The end: no further read, so that a terminal's end of file need not be
    /// typed twice.
    pub(in crate::path) last: bool,
}

/// Reads a source by the call that suits its kind.
#[derive(Default)]
pub(in crate::path) struct SourceReader {
    /// Further numbers of an event counter.
    more: CounterReader,
    /// For reading from a pipe.
    packet_reader: PacketReader,
    buffered_fd: Option<OwnedFd>,
}

impl SourceReader {
    /// Returns the second description of a pipe, if it is open.
    pub(in crate::path) fn second(&self) -> Option<BorrowedFd<'_>> {
        self.packet_reader.second()
    }

    /// Reads up to the rest of the request into `room`, and counts the bytes.
    pub(in crate::path) fn read(
        &mut self,
        flow: &mut Flow<'_>,
        room: &mut [u8],
    ) -> Result<ReadOutcome, Verdict> {
        let length = if flow.source.kind().is_record() {
            // A record is read whole, whatever the block size.
            let longest = match flow.source.kind() {
                Kind::Inotify => EVENT,
                _ => RECORD,
            };
            usize::try_from(flow.allowance.now_in_pieces(longest))
                .map_or(room.len(), |left| left.min(room.len()))
        } else {
            flow.want(room.len())
        };
        let done = match length {
            // No file extends past 2^63-1.
            0 => Ok(0),
            length => self.call(flow, &mut room[..length]),
        };
        match done {
            Ok(first) => {
                flow.took(first as u64);
                let (more, end) = self.more(flow, first, &mut room[first..]);
                let bytes = first + more;
                let full = first == length;
                Ok(ReadOutcome {
                    bytes,
                    full,
                    // A short read that ends exactly at a local file's size: no
                    // need to read the end again.
                    last: end || bytes == 0 || !full && flow.is_at_size(),
                })
            }
            Err(Errno::EINTR) => Err(flow.was_interrupted(Side::Source)),
            Err(Errno::EAGAIN) => Err(Verdict::Blocked(Side::Source)),
            // The next record is longer than the rest of the size: it stays, as
            // a datagram would. If not even the first record fits, that is a
            // failure.
            Err(Errno::EINVAL)
                if may_have_records(flow)
                    && length < room.len()
                    && length as u64 == flow.allowance.remaining()
                    && flow.read() > 0 =>
            {
                flow.allowance.close();
                Err(Verdict::Moved(0))
            }
            // A packet of a pipe stays too, if it cannot be read in part
            // (`PacketReader`).
            Err(Errno::EMSGSIZE)
                if length as u64 == flow.allowance.remaining() && flow.read() > 0 =>
            {
                flow.allowance.close();
                Err(Verdict::Moved(0))
            }
            Err(errno) => Err(Verdict::Failed(Side::Source, errno)),
        }
    }

    /// Reads what else is available at once from a source that returns one
    /// piece per read: the numbers of an event counter, the pages of a
    /// pseudo-file. Also returns whether the end was reached.
    fn more(&mut self, flow: &mut Flow<'_>, first: usize, room: &mut [u8]) -> (usize, bool) {
        if first == 0 || flow.sink.kind().is_datagram() && !numbers_are_messages(flow) {
            return (0, false);
        }
        if flow.source.kind() != Kind::Eventfd {
            return stream::pages(flow, first, room);
        }
        let most = usize::try_from(flow.allowance.now()).map_or(room.len(), |n| n.min(room.len()));
        let n = self.more.read(flow.source.fd(), &mut room[..most]);
        flow.took(n as u64);
        (n, false)
    }

    fn call(&mut self, flow: &mut Flow<'_>, into: &mut [u8]) -> Result<usize, Errno> {
        let facts = flow.source.facts();
        if facts.is_direct() {
            return aligned::read(flow, &mut self.buffered_fd, into);
        }
        stream::read(flow, into, &mut self.packet_reader)
    }

    /// Releases resources that can be acquired again for the next read.
    pub(super) fn rest(&mut self) {
        self.packet_reader.rest();
    }

    /// Forgets its descriptors without closing them.
    pub(in crate::path) fn forget(&mut self) {
        std::mem::take(&mut self.packet_reader).forget();
        std::mem::forget(self.buffered_fd.take());
    }
}

/// Whether each number of an event counter becomes a message: not if the caller has chosen
/// the size of messages, or a stage makes the bytes.
pub(super) fn numbers_are_messages(flow: &Flow<'_>) -> bool {
    flow.source.kind() == Kind::Eventfd
        && flow.sink.kind().is_datagram()
        && flow.options.block.is_none()
        && !flow.stages.transforms()
}

/// Whether a read that is too short for the next record is `EINVAL`. A pseudo-file has none.
fn may_have_records(flow: &Flow<'_>) -> bool {
    let kind = flow.source.kind();
    kind.is_record() || kind != Kind::Pseudo && flow.source.facts().has_pieces()
}

impl Drop for SourceReader {
    fn drop(&mut self) {
        self.rest();
    }
}
