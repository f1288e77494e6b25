//! Room in the sink ahead of the writing.
//!
//! On ext4 a write into blocks that are already reserved costs a third less
//! than one that has to reserve them page by page (`bench run copy-file`).
//! `fallocate(2)` with `FALLOC_FL_KEEP_SIZE` reserves them a window at a time
//! and changes neither length nor contents, so a transfer that is killed
//! leaves a file of the right length.
//!
//! What is left of it behind a transfer that ended early stays reserved, up to
//! a window. The only way to give it back is to truncate the file to the length
//! that it has, and between the look and the call somebody else may have made
//! it longer: their bytes would be gone.

use rustix::fs::FallocateFlags;

use crate::path::Flow;

/// Bytes that are reserved at a time.
const WINDOW: u64 = 64 << 20;
/// Below this the call costs more than it saves.
const WORTH_IT: u64 = 1 << 20;

/// Keeps room reserved ahead of a transfer's writing.
#[derive(Debug)]
pub(super) struct Ahead {
    /// Where in the sink the transfer began.
    start: u64,
    /// Reserved up to here in the sink.
    until: u64,
    /// The transfer is to end here.
    end: u64,
}

impl Ahead {
    /// For a transfer that writes `known` bytes past the sink's present end.
    /// `None` where that gains nothing.
    pub(super) fn new(flow: &Flow<'_>, known: u64) -> Option<Ahead> {
        let sink = flow.sink.facts();
        let gains = sink.filesystem.is_some_and(|fs| fs.reserves_by_page());
        let here = flow.sink_offset()?;
        let new = sink.size.is_some_and(|size| size <= here);
        let plain = gains && new && !sink.append && !sink.direct && known >= WORTH_IT;
        plain.then(|| Ahead {
            start: here,
            until: here,
            end: here.saturating_add(known),
        })
    }

    /// Reserves the next window when the writing comes near the end of the
    /// last. `false` if the file system will not: no need to ask again.
    pub(super) fn advance(&mut self, flow: &Flow<'_>) -> bool {
        let here = self.start + flow.written;
        if self.until >= self.end || self.until.saturating_sub(here) >= WINDOW / 2 {
            return true;
        }
        let length = WINDOW.min(self.end - self.until);
        let keep = FallocateFlags::KEEP_SIZE;
        // A full disk is for the writing to find, at the right byte.
        let done = rustix::fs::fallocate(flow.sink_fd(), keep, self.until, length);
        self.until += length;
        done.is_ok()
    }
}
