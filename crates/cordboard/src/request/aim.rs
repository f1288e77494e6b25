//! The aims of automatic schedules.

use std::num::NonZeroU32;

/// The aim of an automatic schedule, [`Schedule::Auto`](super::Schedule::Auto).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum Aim {
    /// Move as many bytes a second as both sides permit. If a path can choose the length
    /// and the number of blocks in flight, it determines them by measurements.
    #[default]
    Throughput,
    /// Use only the processors and the disks that other work leaves idle. The rate falls
    /// while other work uses all of a processor or a disk, and rises while there is idle
    /// time.
    Background,
    /// Divide the throughput among the transfers of this process that have this aim, in
    /// proportion to their weights.
    Share(NonZeroU32),
}

impl Aim {
    /// Returns the aim to share with this weight. `None`: the weight is 0.
    pub fn share(weight: u32) -> Option<Aim> {
        NonZeroU32::new(weight).map(Aim::Share)
    }
}
