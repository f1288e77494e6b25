//! The number of bytes that a read requests.

use super::cursor::Cursor;
use super::{Flow, Joins};
use crate::endpoint::Kind;
use crate::pipe::packets;

/// The bytes that a schedule does not divide where the length of a record is unknown. It is a
/// multiple of the alignments that pseudo-files require, and longer than most of them.
const PIECE: u64 = 64 << 10;

impl Flow<'_> {
    /// Returns how many bytes to request: all that are left, but no more than
    /// `at_most`.
    pub(crate) fn want(&self, at_most: usize) -> usize {
        self.at_most(self.granted(), at_most)
    }

    /// Returns how many bytes a read may request once the schedule has granted them.
    pub(crate) fn want_later(&self) -> usize {
        let left = self.allowance.remaining().min(self.allowance.extent());
        self.at_most(left, usize::MAX)
    }

    /// Returns how many of `left` bytes to request at once.
    fn at_most(&self, left: u64, at_most: usize) -> usize {
        // A pseudo-file may have nothing after its first read (`do_proc_dointvec`,
        // kernel/sysctl.c).
        let block = self
            .options
            .block
            .filter(|_| self.source.kind() != Kind::Pseudo);
        let at_most = block.map_or(at_most, |block| block.min(at_most));
        // No file extends past 2^63-1: requesting more is EINVAL or EOVERFLOW.
        let here = match self.source.cursor {
            // A source without a size.
            Cursor::Position if !self.source.kind().is_cached() => 0,
            _ => self.counted_place().unwrap_or(0),
        };
        let to_limit = (i64::MAX as u64).saturating_sub(here);
        let claimed = self.source.cursor.claimed().unwrap_or(u64::MAX);
        let left = left.min(to_limit).min(claimed);
        usize::try_from(left).map_or(at_most, |left| left.min(at_most))
    }

    /// Returns the bytes that may be taken now, and more if a grant would divide a piece.
    pub(in crate::path) fn granted(&self) -> u64 {
        // Only the read shows whether a pipe has packets.
        let packets = self.source.kind().is_pipe() && self.writes_messages();
        let block = self.options.block.unwrap_or(0) as u64;
        match (self.has_pieces(), packets) {
            (true, _) => self.allowance.now_in_pieces(block.max(PIECE)),
            (false, true) => self.allowance.now_in_pieces(packets::largest() as u64),
            (false, false) => self.allowance.now(),
        }
    }

    /// Returns whether a read of a stream is one write, of any length.
    pub(in crate::path) fn reads_stay(&self) -> bool {
        self.source.facts().may_be_messages() || self.options.joins == Joins::Nothing
    }

    /// Returns whether the source is a private channel, which another thread fills.
    pub(in crate::path) fn is_out_of_a_channel(&self) -> bool {
        self.options.joins == Joins::Records
    }

    /// Returns whether reads are joined to blocks of the request, the length of each write. A
    /// message that was received whole is sent whole.
    pub(in crate::path) fn joins_blocks(&self) -> bool {
        let joins = match self.options.joins {
            Joins::Nothing => false,
            Joins::Datagrams => self.sink.kind().is_datagram(),
            Joins::Records => self.sink.kind().is_datagram() || self.sink.facts().has_pieces(),
        };
        joins && self.options.block.is_some() && !self.source.kind().is_datagram()
    }

    /// Returns whether a schedule must not divide a read or a write. The next read of a
    /// sysctl returns nothing, and the next write to it is ignored (`proc_first_pos_non_zero_ignore`,
    /// kernel/sysctl.c). Other pseudo-files and devices fail with `EINVAL` if a read is not
    /// aligned or shorter than a record, or drop the rest of a packet. A write to a device
    /// may be a record of its own.
    fn has_pieces(&self) -> bool {
        self.source.facts().has_pieces() || self.sink.facts().has_pieces()
    }
}
