//! Number and length of the blocks to begin.

use std::time::Instant;

use super::adaptive::{Adaptive, Setting};
use crate::path::flow::Flow;
use crate::report::BestSetting;
use crate::request::Watermarks;
use crate::tune::Goal;

/// The block size if watermarks are given without one.
const BLOCK: usize = 1 << 20;

pub(super) enum Pace {
    /// By watermarks, as in the 1992 paper, with blocks of one size.
    Marks { marks: Watermarks, block: usize },
    /// The request has a block size: their number is fixed as well.
    Pinned(Setting),
    /// Adapted to the device.
    Adaptive {
        clock: Instant,
        adaptive: Box<Adaptive>,
        /// The bytes that other paths have written before.
        before: u64,
    },
}

impl Pace {
    /// For an arena of this many bytes, and lengths that are multiples of
    /// `unit`. `None`: the caller's block is smaller than `unit`.
    pub(super) fn new(flow: &Flow<'_>, unit: usize, memory: usize) -> Option<Pace> {
        let largest = (memory / 2).max(unit);
        let block = match flow.options.block {
            Some(block) => block.min(largest) / unit * unit,
            None => BLOCK.min(largest),
        };
        if block == 0 {
            return None;
        }
        Some(match (flow.options.watermarks, flow.options.block) {
            (Some(marks), _) => Pace::Marks { marks, block },
            (None, Some(_)) => Pace::Pinned(Setting::of_blocks(block, memory)),
            (None, None) => Pace::Adaptive {
                clock: Instant::now(),
                adaptive: Box::new(Adaptive::new(memory, flow.options.tunes)),
                before: flow.written(),
            },
        })
    }

    /// Returns how many blocks may be begun now, and their length.
    pub(super) fn allows(&mut self, pending: (u32, u32), goal: Goal) -> (u32, usize) {
        match self {
            Pace::Marks { marks, block } => (marks.reads_to_start(pending.0, pending.1), *block),
            Pace::Pinned(setting) => setting.more(pending),
            Pace::Adaptive { adaptive, .. } => {
                adaptive.set_goal(goal);
                adaptive.setting().more(pending)
            }
        }
    }

    /// Records that `bytes` have reached the sink.
    pub(super) fn learn(&mut self, bytes: u64) {
        if let Pace::Adaptive {
            clock, adaptive, ..
        } = self
            && bytes > 0
        {
            adaptive.learn(clock.elapsed(), bytes);
        }
    }

    /// Returns the best of the settings that were measured.
    pub(super) fn best(&self) -> Option<BestSetting> {
        let Pace::Adaptive {
            adaptive, before, ..
        } = self
        else {
            return None;
        };
        let (setting, after) = adaptive.best()?;
        Some(BestSetting {
            piece: setting.block,
            depth: Some(setting.depth),
            // It was the first one, whatever came before.
            after: if after > 0 { before + after } else { 0 },
        })
    }

    /// Records that a pause or a schedule limits the rate.
    pub(super) fn interrupt(&mut self) {
        if let Pace::Adaptive { adaptive, .. } = self {
            adaptive.interrupt();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::os::fd::AsFd;

    use super::*;
    use crate::sys::LARGEST_ARENA;
    use crate::{Request, Transfer};

    const PAGE: usize = 4096;

    /// Blocks of this size are begun while these are in flight, whatever arrives.
    #[test]
    fn a_block_of_the_request_fixes_the_number_of_blocks() {
        let (source, sink) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        for (block, length, depth) in [
            (PAGE, PAGE, 16),
            (12345, 12288, 16),
            (1 << 20, 1 << 20, 8),
            (3 << 20, 3 << 20, 2),
            (LARGEST_ARENA, LARGEST_ARENA / 2, 2),
        ] {
            let request = Request {
                block: NonZeroUsize::new(block),
                ..Request::default()
            };
            let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
            let mut pace = Pace::new(&transfer.flow, PAGE, LARGEST_ARENA).unwrap();
            for _ in 0..1000 {
                assert_eq!(pace.allows((0, 0), Goal::Rate), (depth, length));
                assert_eq!(pace.allows((1, 1), Goal::Rate), (depth - 2, length));
                pace.learn(8 << 20);
            }
        }
    }
}
