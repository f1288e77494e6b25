//! How fast a transfer may take bytes from its source.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use super::Aim;

/// When bytes may be taken from the source.
///
/// A schedule limits the bytes taken, on every path, and does not change the path. It is
/// an upper bound at each moment. One record or datagram, which cannot be divided, may
/// exceed it. So may a read of a pipe whose sink keeps message boundaries, by less than a
/// page, and a read or write of a pseudo-file or of an unknown device, by less than 64 KiB,
/// or than [`Request::block`](super::Request::block) if that is longer (at most 64 MiB). The
/// next wait is then longer. A skipped hole does not count. Time in which
/// the source has no bytes, or the sink has no room, is not made up for later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum Schedule {
    /// As fast as both sides permit.
    #[default]
    Unlimited,
    /// This many bytes a second, in pieces of 10 ms.
    Rate(NonZeroU64),
    /// The (k, t) of the `cue()` paper: `count` blocks, then a rest. A block has the
    /// length of [`Request::block`](super::Request::block), or [`Schedule::BLOCK`]
    /// bytes without one. The rest begins when the blocks have been taken. A rest of
    /// less than a millisecond lasts a millisecond.
    Blocks {
        /// The number of blocks between two rests.
        count: NonZeroU32,
        /// The time between two bursts.
        rest: Duration,
    },
    /// The library determines the schedule from measurements while the transfer runs.
    Auto(Aim),
}

impl Schedule {
    /// The length of a block of [`Schedule::Blocks`], in bytes, if the request has
    /// none.
    pub const BLOCK: u64 = 128 << 10;

    /// Returns the schedule of this many bytes a second; 0 is no limit.
    pub fn rate(bytes: u64) -> Schedule {
        NonZeroU64::new(bytes).map_or(Schedule::Unlimited, Schedule::Rate)
    }

    /// Returns the schedule of `count` blocks between two rests; 0 blocks are no limit.
    pub fn blocks(count: u32, rest: Duration) -> Schedule {
        NonZeroU32::new(count).map_or(Schedule::Unlimited, |count| Schedule::Blocks {
            count,
            rest,
        })
    }
}
