//! Room in the sink ahead of the writing.
//!
//! On ext4 a write into blocks that are already reserved costs a third less
//! than one that has to reserve them page by page (`bench run copy-file`).
//! `fallocate(2)` with `FALLOC_FL_KEEP_SIZE` reserves them a window at a time
//! and changes neither length nor contents, so a transfer that is killed
//! leaves a file of the right length.
//!
//! What is left of it behind the end of the file is given back once the
//! transfer has ended (`path/surplus.rs`); one that is killed leaves it.

use rustix::fs::FallocateFlags;

use crate::path::flow::Flow;
use crate::path::surplus::give_back;
use crate::sys::again;

/// Bytes that are reserved at a time.
const WINDOW: u64 = 64 << 20;
/// Below this the call costs more than it saves.
const WORTH_IT: u64 = 1 << 20;

/// Keeps room reserved ahead of a transfer's writing.
#[derive(Debug)]
pub(crate) struct Preallocation {
    /// Where in the sink the transfer began.
    start: u64,
    /// Reserved up to here in the sink.
    until: u64,
    /// The transfer is to end here.
    end: u64,
    /// The file system will not: no need to ask again.
    refused: bool,
}

impl Preallocation {
    /// For a transfer that writes `known` bytes past the sink's present end.
    /// `None` where that gains nothing.
    pub(crate) fn new(flow: &Flow<'_>, known: u64) -> Option<Preallocation> {
        let sink = flow.sink.facts();
        let gains = sink.filesystem.is_some_and(|fs| fs.reserves_by_page());
        let here = flow.sink.offset()?;
        let new = sink.size.is_some_and(|size| size <= here);
        let plain = gains && new && !sink.append && !sink.direct && known >= WORTH_IT;
        plain.then(|| Preallocation {
            start: here,
            until: here,
            end: here.saturating_add(known),
            refused: false,
        })
    }

    /// Reserves the next window when the writing comes near the end of the
    /// last.
    pub(crate) fn advance(&mut self, flow: &Flow<'_>) {
        let here = self.start + flow.written();
        let near = self.until.saturating_sub(here) < WINDOW / 2;
        if self.refused || self.until >= self.end || !near {
            return;
        }
        let length = WINDOW.min(self.end - self.until);
        let keep = FallocateFlags::KEEP_SIZE;
        // A full disk is for the writing to find, at the right byte. It may have
        // given a part.
        let sink = flow.sink.fd();
        let done = again(|| rustix::fs::fallocate(sink, keep, self.until, length));
        self.until += length;
        self.refused = done.is_err();
    }

    /// Nothing more will be written: gives back what was not needed. Where that
    /// is not to be had (no procfs, no permission, a lease, a file that takes no
    /// direct I/O), it stays reserved.
    pub(crate) fn end(&self, flow: &Flow<'_>) {
        if self.until > self.start + flow.written() {
            let _ = give_back(flow.sink.fd());
        }
    }
}
