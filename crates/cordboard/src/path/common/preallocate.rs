//! Preallocates blocks in the sink ahead of the writes.
//!
//! On ext4 a write into reserved blocks costs a fifth less than one that
//! reserves them page by page (`bench run copy-file`). `fallocate(2)` with
//! `FALLOC_FL_KEEP_SIZE` reserves a window at a time and changes neither length
//! nor contents, so a transfer that is killed leaves a file of the right length.
//!
//! Surplus blocks past the end of the file are released once the transfer has
//! ended (`path/common/surplus.rs`); a transfer that is killed leaves them.

use rustix::fs::FallocateFlags;

use crate::path::common::surplus::give_back;
use crate::path::flow::Flow;
use crate::sys::{again, file_size_limit};

/// Bytes reserved per call.
const WINDOW: u64 = 64 << 20;
/// Below this the call costs more than it saves.
const WORTH_IT: u64 = 1 << 20;

/// Keeps blocks reserved ahead of a transfer's writes.
#[derive(Debug)]
pub(crate) struct Preallocation {
    /// The sink's offset at which the transfer began.
    start: u64,
    /// The sink's offset up to which blocks are reserved.
    until: u64,
    /// The sink's offset at which the transfer is expected to end.
    end: u64,
    /// The file system has refused: not tried again.
    refused: bool,
}

impl Preallocation {
    /// For a transfer that writes `known` bytes past the sink's present end.
    /// `None` if that gains nothing.
    pub(crate) fn new(flow: &Flow<'_>, known: u64) -> Option<Preallocation> {
        let sink = flow.sink.facts();
        let gains = sink.filesystem.is_some_and(|fs| fs.reserves_by_page());
        let here = flow.sink.offset()?;
        let new = sink.size.is_some_and(|size| size <= here);
        let plain = gains && new && !sink.append && !sink.o_direct && known >= WORTH_IT;
        plain.then(|| Preallocation {
            start: here,
            until: here,
            end: here.saturating_add(known),
            refused: false,
        })
    }

    /// Reserves the next window when the writes come near the end of the last.
    pub(crate) fn advance(&mut self, flow: &Flow<'_>) {
        let here = self.start + flow.written();
        let near = self.until.saturating_sub(here) < WINDOW / 2;
        if self.refused || self.until >= self.end || !near {
            return;
        }
        // `fallocate(2)` reserves blocks past `RLIMIT_FSIZE` too (`inode_newsize_ok` is not
        // called with `FALLOC_FL_KEEP_SIZE`), but a write there, which would release them,
        // fails.
        let Ok(limit) = file_size_limit() else {
            return;
        };
        let end = limit.map_or(self.end, |limit| limit.min(self.end));
        let length = WINDOW.min(end.saturating_sub(self.until));
        if length == 0 {
            return;
        }
        let keep = FallocateFlags::KEEP_SIZE;
        // The write reports a full disk, at the right byte. The call may have
        // reserved a part.
        let sink = flow.sink.fd();
        let done = again(|| rustix::fs::fallocate(sink, keep, self.until, length));
        self.until += length;
        self.refused = done.is_err();
    }

    /// Releases unused blocks, once nothing more will be written. If that is
    /// impossible (no procfs, no permission, a lease, a file without direct
    /// I/O), it stays reserved.
    pub(crate) fn end(&self, flow: &Flow<'_>) {
        if self.until > self.start + flow.written() {
            let _ = give_back(flow.sink.fd());
        }
    }
}
