//! Number and length of the blocks to begin.

use std::time::Instant;

use super::adaptive::Adaptive;
use crate::path::flow::Flow;
use crate::request::Watermarks;

/// The block size if watermarks are given without one.
const BLOCK: usize = 1 << 20;

pub(super) enum Pace {
    /// By watermarks, as in the 1992 paper, with blocks of one size.
    Fixed { marks: Watermarks, block: usize },
    /// Adapted to the device.
    Adaptive {
        clock: Instant,
        adaptive: Box<Adaptive>,
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
            (None, fixed) => Pace::Adaptive {
                clock: Instant::now(),
                adaptive: Box::new(Adaptive::new(
                    memory,
                    fixed.map(|_| block),
                    flow.options.tunes,
                )),
            },
            (Some(marks), _) => Pace::Fixed { marks, block },
        })
    }

    /// Returns how many blocks may be begun now, and their length.
    pub(super) fn allows(&self, pending: (u32, u32)) -> (u32, usize) {
        match self {
            Pace::Fixed { marks, block } => (marks.reads_to_start(pending.0, pending.1), *block),
            Pace::Adaptive { adaptive, .. } => {
                let setting = adaptive.setting();
                let in_flight = pending.0 + pending.1;
                (setting.depth.saturating_sub(in_flight), setting.block)
            }
        }
    }

    /// Records that `bytes` have reached the sink.
    pub(super) fn learn(&mut self, bytes: u64) {
        if let Pace::Adaptive { clock, adaptive } = self
            && bytes > 0
        {
            adaptive.learn(clock.elapsed(), bytes);
        }
    }

    /// Records that a pause or a schedule limits the rate.
    pub(super) fn interrupt(&mut self) {
        if let Pace::Adaptive { adaptive, .. } = self {
            adaptive.interrupt();
        }
    }
}
